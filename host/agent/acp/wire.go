package acp

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// The parts of the protocol that a host acts on. Everything else stays raw.

type initialized struct {
	Version      int `json:"protocolVersion"`
	Capabilities struct {
		Load   bool `json:"loadSession"`
		Prompt struct {
			Image    bool `json:"image"`
			Embedded bool `json:"embeddedContext"`
		} `json:"promptCapabilities"`
		MCP struct {
			HTTP bool `json:"http"`
		} `json:"mcpCapabilities"`
		Session map[string]json.RawMessage `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
	Agent struct {
		Name    string `json:"name"`
		Title   string `json:"title"`
		Version string `json:"version"`
	} `json:"agentInfo"`
	Auth []authMethod `json:"authMethods"`
}

type authMethod struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// can reports whether a session capability is offered: any object means yes.
func (i *initialized) can(name string) bool {
	raw := i.Capabilities.Session[name]
	return !acprpc.IsNull(raw) && string(raw) != "false"
}

// reopens reports whether a session can be opened again by another process.
func (i *initialized) reopens() bool { return i.Capabilities.Load || i.can("resume") }

// opened is the answer to session/new, load, resume and fork.
type opened struct {
	ID      string         `json:"sessionId"`
	Modes   *modeState     `json:"modes"`
	Options []configOption `json:"configOptions"`
	Models  *modelState    `json:"models"`
}

type modeState struct {
	Current   string `json:"currentModeId"`
	Available []struct {
		ID string `json:"id"`
	} `json:"availableModes"`
}

type modelState struct {
	Available []struct {
		ID string `json:"modelId"`
	} `json:"availableModels"`
}

// configOption is one option of a session.
type configOption struct {
	ID       string          `json:"id"`
	Category string          `json:"category"`
	Type     string          `json:"type"`
	Current  json.RawMessage `json:"currentValue"`
	Options  json.RawMessage `json:"options"`
}

// values are the values that a select option offers, also those in groups.
func (o configOption) values() []string {
	type entry struct {
		Value   string          `json:"value"`
		Options json.RawMessage `json:"options"`
	}
	var out []string
	var walk func(raw json.RawMessage)
	walk = func(raw json.RawMessage) {
		var entries []entry
		if json.Unmarshal(raw, &entries) != nil {
			return
		}
		for _, e := range entries {
			if len(e.Options) > 0 {
				walk(e.Options)
			} else {
				out = append(out, e.Value)
			}
		}
	}
	walk(o.Options)
	return out
}

func (o configOption) is(category string) bool { return o.Category == category || o.ID == category }

type prompted struct {
	StopReason string          `json:"stopReason"`
	Usage      json.RawMessage `json:"usage"`
}

type permission struct {
	SessionID string                     `json:"sessionId"`
	ToolCall  map[string]json.RawMessage `json:"toolCall"`
	Options   []permissionOption         `json:"options"`
}

type permissionOption struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

type outcome struct {
	Outcome  string `json:"outcome"`
	OptionID string `json:"optionId,omitempty"`
}

type permissionAnswer struct {
	Outcome outcome `json:"outcome"`
	// Answers are what a person said, by the question's place, where the request was a
	// list of questions.
	Answers map[string]string `json:"answers,omitempty"`
}

type elicitationAnswer struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content,omitempty"`
}

// update is one session/update: its kind, its fields, and its bytes.
type update struct {
	kind   string
	fields map[string]json.RawMessage
	raw    json.RawMessage
}

func decodeUpdate(raw json.RawMessage) update {
	u := update{raw: raw}
	if json.Unmarshal(raw, &u.fields) == nil {
		u.kind = acprpc.Plain(u.fields["sessionUpdate"])
	}
	return u
}

func (u update) text(field string) string {
	if acprpc.IsNull(u.fields[field]) {
		return ""
	}
	return acprpc.Plain(u.fields[field])
}

// rest returns the fields of the update beside those named and those that are null, or
// nil if there are none.
func (u update) rest(known ...string) json.RawMessage {
	left := map[string]json.RawMessage{}
	maps.Copy(left, u.fields)
	delete(left, "sessionUpdate")
	for _, k := range known {
		delete(left, k)
	}
	maps.DeleteFunc(left, func(_ string, v json.RawMessage) bool { return acprpc.IsNull(v) })
	if len(left) == 0 {
		return nil
	}
	return acprpc.Marshal(left)
}

// contentRest is what a content block says beside what the contract's can hold, or nil.
func contentRest(raw json.RawMessage) json.RawMessage {
	var block update
	if json.Unmarshal(raw, &block.fields) != nil {
		return nil
	}
	left := block.rest("type", "text", "mimeType", "data", "uri", "name", "resource")
	var inner update
	if json.Unmarshal(block.fields["resource"], &inner.fields) == nil {
		left = append(left, inner.rest("uri", "text", "blob", "mimeType")...)
	}
	return left
}

// listRest is what the objects of a list say beside the known fields, or nil.
func listRest(raw json.RawMessage, known ...string) json.RawMessage {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var left json.RawMessage
	for _, fields := range list {
		left = append(left, update{fields: fields}.rest(known...)...)
	}
	return left
}

// content is a content block of the agent, with its bytes.
type content struct {
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

// toolContent is one piece of what a tool call shows.
type toolContent struct {
	Type    string  `json:"type"`
	Content content `json:"content"`
	Path    string  `json:"path"`
}

// decimal is a JSON number as a decimal string without exponent, or "".
func decimal(raw json.RawMessage) string {
	f, err := strconv.ParseFloat(acprpc.Plain(raw), 64)
	if err != nil || f < 0 || f > 1e12 {
		return ""
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// whole is a JSON number as an integer that clients can hold, or 0.
func whole(raw json.RawMessage) int64 {
	f, err := strconv.ParseFloat(acprpc.Plain(raw), 64)
	if err != nil || f < 0 || f >= 1<<53 {
		return 0
	}
	return int64(f)
}

// object reports whether raw is a JSON object that is not empty.
func object(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 2 && raw[0] == '{' && strings.TrimSpace(string(raw[1:len(raw)-1])) != ""
}
