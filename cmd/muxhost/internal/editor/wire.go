package editor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// obj is a JSON object that is being made.
type obj map[string]any

// peer is what the editor says of itself.
type peer struct {
	Capabilities struct {
		Elicitation struct {
			Form json.RawMessage `json:"form"`
		} `json:"elicitation"`
		Session struct {
			Notices    json.RawMessage `json:"notices"`
			Compaction json.RawMessage `json:"compaction"`
		} `json:"session"`
		Subagents json.RawMessage `json:"subagents"`
	} `json:"clientCapabilities"`
	Info struct {
		Name    string `json:"name"`
		Title   string `json:"title"`
		Version string `json:"version"`
	} `json:"clientInfo"`
}

// offers reports whether a capability is there: any object means yes.
func offers(raw json.RawMessage) bool { return !acprpc.IsNull(raw) && string(raw) != "false" }

func (p *peer) forms() bool       { return offers(p.Capabilities.Elicitation.Form) }
func (p *peer) notices() bool     { return offers(p.Capabilities.Session.Notices) }
func (p *peer) compactions() bool { return offers(p.Capabilities.Session.Compaction) }
func (p *peer) subagents() bool   { return offers(p.Capabilities.Subagents) }

// label is what people recognise the editor by.
func (p *peer) label() string {
	for _, s := range []string{p.Info.Name, p.Info.Title} {
		if s = frames.ValidText(s); s != "" {
			s, _ = frames.Preview(s, 64)
			return s
		}
	}
	return "editor"
}

// params reads the params of a request into dst; none are an empty object.
func params(in acprpc.Inbound, dst any) error {
	if acprpc.IsNull(in.Params) {
		return nil
	}
	err := json.Unmarshal(in.Params, dst)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a JSON %s, want another type", first(e.Field, "params"), e.Value)
	}
	return err
}

// sessionParams are those of every request about sessions.
type sessionParams struct {
	SessionID frames.SessionID  `json:"sessionId"`
	Cwd       string            `json:"cwd"`
	Cursor    string            `json:"cursor"`
	Mode      string            `json:"modeId"`
	MCP       []json.RawMessage `json:"mcpServers"`
}

// block is a content block of the editor.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	MimeType string `json:"mimeType"`
	Data     string `json:"data"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Resource struct {
		URI      string `json:"uri"`
		Text     string `json:"text"`
		Blob     string `json:"blob"`
		MimeType string `json:"mimeType"`
	} `json:"resource"`
}

// stopped is the answer to a prompt.
func stopped(reason string, meta obj) obj {
	out := obj{"stopReason": reason}
	if meta != nil {
		out["_meta"] = obj{"muxhost": meta}
	}
	return out
}

// word returns s if it is one of those, else the first of them.
func word(s string, those ...string) string {
	if slices.Contains(those, s) {
		return s
	}
	return those[0]
}

// toolKind is the kind of a tool in the protocol's words.
func toolKind(kind string) string {
	return word(kind, "other", "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode")
}

// The modes of a session are those of its policy.
const (
	modeAsk  = "ask"
	modeDeny = "deny"
)

// modeOf is the mode of a policy.
func modeOf(p *frames.Policy) string {
	if p == nil {
		return modeAsk
	}
	return word(p.Mode, modeAsk, modeDeny)
}

// modes are the modes of a session, and the one that it is in.
func modes(now string) obj {
	return obj{"currentModeId": now, "availableModes": []obj{
		{"id": modeAsk, "name": "Ask", "description": "What needs an approval is asked."},
		{"id": modeDeny, "name": "Deny", "description": "Nothing is asked: what needs an approval is rejected."},
	}}
}
