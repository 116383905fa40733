package editor

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// maxProgress is how much of a running tool's output is sent, in bytes: its end.
const maxProgress = 16 << 10

// details is what an agent of the protocol said of a call and events do not say.
type details struct {
	Title     string                     `json:"title"`
	Content   []json.RawMessage          `json:"content"`
	Locations json.RawMessage            `json:"locations"`
	RawInput  json.RawMessage            `json:"rawInput"`
	RawOutput json.RawMessage            `json:"rawOutput"`
	Meta      map[string]json.RawMessage `json:"_meta"`
}

// detailsOf reads what the session's agent said, where it speaks the protocol.
func (th *thread) detailsOf(raw json.RawMessage) (d details) {
	if th.b.agents[th.view.Agent] {
		_ = json.Unmarshal(raw, &d) // what does not read is not there
	}
	d.Content = slices.DeleteFunc(d.Content, foreign)
	return d
}

// foreign reports whether content of a call is a terminal: those are the agent's own, and
// their output is in the result's text.
func foreign(c json.RawMessage) bool {
	var t struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(c, &t) != nil || t.Type == "terminal"
}

// toolEvent sends what became of a call.
func (th *thread) toolEvent(p any) {
	switch p := p.(type) {
	case *frames.ToolCall:
		th.running[p.CallID] = true
		th.emit(th.call(&frames.ToolCard{
			CallID: p.CallID, Name: p.Name, Kind: p.Kind, Title: p.Title, Input: p.Input, Locations: p.Locations,
			Truncated: p.Truncated, Running: true,
		}))
	case *frames.ToolProgress:
		th.b.later(th, p.CallID)
	case *frames.ToolResult:
		th.over(p.CallID)
		u := th.result(&frames.ToolCard{
			CallID: p.CallID, Content: p.Content, IsError: p.IsError, ErrorCode: p.ErrorCode, DurationMs: p.DurationMs, Details: p.Details,
		})
		u["sessionUpdate"], u["toolCallId"] = "tool_call_update", p.CallID
		th.emit(u)
	case *frames.TurnEnd:
		for _, id := range slices.Sorted(maps.Keys(th.running)) {
			th.over(id)
			th.emit(obj{"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed"})
		}
	}
}

// over notes that a call has ended.
func (th *thread) over(id frames.CallID) {
	delete(th.running, id)
	delete(th.b.dirty[th], id)
}

// call is a tool call as the editor first sees it.
func (th *thread) call(t *frames.ToolCard) obj {
	u := obj{
		"sessionUpdate": "tool_call", "toolCallId": t.CallID, "title": first(t.Title, t.Name, "tool"),
		"kind": toolKind(t.Kind), "status": "in_progress",
	}
	set(u, "name", t.Name)
	if !acprpc.IsNull(t.Input) {
		u["rawInput"] = t.Input
	}
	if len(t.Locations) > 0 {
		u["locations"] = locations(t.Locations)
	}
	if t.Truncated != nil {
		u["_meta"] = obj{"muxhost": obj{"truncated": t.Truncated}}
	}
	return u
}

func locations(list []frames.Location) []obj {
	var out []obj
	for _, l := range list {
		at := obj{"path": l.Path}
		if l.Line > 0 {
			at["line"] = l.Line
		}
		out = append(out, at)
	}
	return out
}

// result is how a call ended.
func (th *thread) result(t *frames.ToolCard) obj {
	d := th.detailsOf(t.Details)
	u := obj{"status": "completed"}
	if t.IsError {
		u["status"] = "failed"
	}
	u["content"] = contents(d.Content, t.Content)
	meta := obj{"durationMs": t.DurationMs}
	set(meta, "errorCode", t.ErrorCode)
	all := obj{}
	for k, v := range d.Meta {
		all[k] = v
	}
	all["muxhost"] = meta
	u["_meta"] = all
	switch {
	case !acprpc.IsNull(d.RawOutput):
		u["rawOutput"] = d.RawOutput
	case !th.b.agents[th.view.Agent] && !acprpc.IsNull(t.Details):
		u["rawOutput"] = t.Details
	}
	if !acprpc.IsNull(d.Locations) {
		u["locations"] = d.Locations
	}
	return u
}

// contents is what a call shows at its end: what its agent said, as it came, and what
// the events say beyond that.
func contents(raw []json.RawMessage, content []frames.ContentBlock) []any {
	out := []any{}
	there := map[string]bool{}
	for _, c := range raw {
		out = append(out, c)
		var text struct {
			Content struct {
				Text string `json:"text"`
			} `json:"content"`
		}
		if json.Unmarshal(c, &text) == nil {
			there[text.Content.Text] = true
		}
	}
	for _, c := range content {
		if len(raw) == 0 || c.Type == "text" && !there[c.Text] {
			out = append(out, obj{"type": "content", "content": shown(c)})
		}
	}
	return out
}

// later notes that a call's progress is to be sent.
func (b *bridge) later(th *thread, id frames.CallID) {
	if b.dirty[th] == nil {
		b.dirty[th] = map[frames.CallID]bool{}
	}
	b.dirty[th][id] = true
	if b.tick == nil {
		b.tick = time.After(progressEvery)
	}
}

// flush sends the progress that was noted.
func (b *bridge) flush() {
	for th, calls := range b.dirty {
		if calls[""] {
			th.sendDigest(false)
		}
		if live := th.view.Live(); live != nil {
			for _, t := range live.Tools {
				if calls[t.CallID] {
					th.emit(obj{
						"sessionUpdate": "tool_call_update", "toolCallId": t.CallID, "status": "in_progress",
						"content": []obj{{"type": "content", "content": obj{"type": "text", "text": frames.Tail(t.Text, maxProgress)}}},
					})
				}
			}
		}
	}
	clear(b.dirty)
}
