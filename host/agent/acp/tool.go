package acp

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"

	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

const (
	// maxDetails is the largest machine-readable part of a result that stays in
	// its event; of a larger one a blob is kept.
	maxDetails = 48 << 10
	// maxOutput bounds the terminal output kept of one call: its end.
	maxOutput = 1 << 20
	// maxStrays bounds how many calls are remembered outside of turns.
	maxStrays = 256
)

// tool is one tool call as the agent described it so far.
type tool struct {
	id     string
	fields map[string]json.RawMessage // the last value of each
	meta   map[string]json.RawMessage
	began  time.Time
	// announced says that tool/call is stored, ended that tool/result is.
	announced, ended bool
	// own says that the agent announced the call itself.
	own bool
	// why says why it was not allowed, and with which code, if it was not.
	code, why string
	shown     string // what progress has shown of its text
	output    string // of a terminal that the agent keeps itself
}

// tool returns the call with that id, which may be new.
func (th *thread) tool(id string) *tool {
	t := th.tools[id]
	if t == nil {
		t = th.stray(id)
		delete(th.strays, id)
		th.tools[id] = t
		th.order = append(th.order, t)
	}
	return t
}

// stray returns the call with that id outside of turns, where calls are not announced.
// When there are too many they are forgotten: a request names what it is about.
func (th *thread) stray(id string) *tool {
	t := th.strays[id]
	if t == nil {
		if len(th.strays) == maxStrays {
			clear(th.strays)
		}
		t = &tool{id: id, fields: map[string]json.RawMessage{}, meta: map[string]json.RawMessage{}, began: time.Now()}
		th.strays[id] = t
	}
	return t
}

// again is what a request says of a call that has ended: what was said of that call
// before counts only where the request says nothing.
func (t *tool) again(fields map[string]json.RawMessage) *tool {
	n := &tool{id: t.id, fields: map[string]json.RawMessage{}, meta: map[string]json.RawMessage{}, ended: true}
	if n.merge(fields); len(n.fields) == 0 {
		n.fields, n.meta = t.fields, t.meta
	}
	return n
}

// call returns the call that a request is about.
func (th *thread) call(id string) *tool {
	if th.turn == nil {
		return th.stray(id)
	}
	return th.tool(id)
}

// merge takes the fields that a message about the call holds.
func (t *tool) merge(fields map[string]json.RawMessage) {
	for k, v := range fields {
		switch k {
		case "sessionUpdate", "toolCallId", "_meta":
		default:
			t.fields[k] = v
		}
	}
	var meta map[string]json.RawMessage
	if json.Unmarshal(fields["_meta"], &meta) == nil {
		maps.Copy(t.meta, meta)
	}
}

// toolUpdate takes tool_call and tool_call_update alike; a call that was never
// announced begins with whatever names it first.
func (th *thread) toolUpdate(u update) {
	id := u.text("toolCallId")
	switch known := th.tools[id]; {
	case id == "", known != nil && known.ended:
		th.vendorOnce(u)
		return
	case known == nil && th.turn == nil:
		t := th.stray(id) // it belongs to a turn that is over, or to none
		if t.merge(u.fields); terminal(t.text("status")) {
			delete(th.strays, id)
		}
		th.vendorOnce(u)
		return
	}
	t := th.tool(id)
	t.own = true
	t.merge(u.fields)
	status := t.text("status")
	text := th.progress(t)
	if status != "" && status != "pending" {
		th.announce(t)
	}
	th.show(t, text)
	if terminal(status) {
		th.finish(t, status)
	}
}

// terminal reports whether a status is the last of a call.
func terminal(status string) bool {
	return status == "completed" || status == "failed" || status == "cancelled"
}

func (t *tool) text(field string) string {
	if acprpc.IsNull(t.fields[field]) {
		return ""
	}
	return acprpc.Plain(t.fields[field])
}

// name is what the tool is called: by the agent, or else its kind. kindOnly says that
// it gave no name, or several.
func (t *tool) name() (name string, kindOnly bool) {
	names := map[string]bool{}
	if n := t.text("name"); n != "" {
		names[n] = true
	}
	for _, vendor := range t.meta {
		var m struct {
			ToolName string `json:"toolName"`
		}
		if json.Unmarshal(vendor, &m) == nil && m.ToolName != "" {
			names[frames.ValidText(m.ToolName)] = true
		}
	}
	if len(names) == 1 {
		for n := range names {
			return claimed(n), false
		}
	}
	if k := t.text("kind"); k != "" {
		return claimed(k), true
	}
	return "tool", true
}

// claimed is a name that an agent gave: it cannot be that of a tool of the host's.
func claimed(name string) string {
	if strings.HasPrefix(name, agent.OwnTools) {
		return "agent:" + name
	}
	return name
}

func (t *tool) describe() frames.Tool {
	title, _ := frames.Preview(t.text("title"), 1<<10)
	name, _ := t.name()
	return frames.Tool{Name: name, Kind: t.text("kind"), Title: title}
}

// input is what the call is about to do, as far as the agent says: its raw input,
// and all it shows beside where there is none or where it shows a change.
func (t *tool) input() json.RawMessage {
	raw, shown := t.fields["rawInput"], t.fields["content"]
	if object(raw) && !strings.Contains(string(shown), `"diff"`) {
		return raw
	}
	in := map[string]json.RawMessage{}
	for _, k := range []string{"rawInput", "title", "kind", "content", "locations"} {
		if v := t.fields[k]; !acprpc.IsNull(v) {
			in[k] = v
		}
	}
	return acprpc.Marshal(in)
}

// stored is raw as it can be kept in an event.
func stored(raw json.RawMessage) json.RawMessage {
	if frames.CheckJSON(raw, frames.JSONLimits{IJSON: true}) != nil {
		return acprpc.Marshal(map[string]string{"text": acprpc.Plain(raw)})
	}
	return raw
}

func (t *tool) locations() []frames.Location {
	var list []struct {
		Path string          `json:"path"`
		Line json.RawMessage `json:"line"`
	}
	var out []frames.Location
	if json.Unmarshal(t.fields["locations"], &list) != nil {
		return nil
	}
	for _, at := range list[:min(len(list), 100)] {
		out = append(out, frames.Location{Path: frames.ValidText(at.Path), Line: int(whole(at.Line))})
	}
	return out
}

// announce stores the beginning of a call. It comes as late as it can, because
// agents stream the input of a call that is still pending.
func (th *thread) announce(t *tool) {
	if t.announced || th.turn == nil {
		return
	}
	t.announced = true
	th.closeBlock()
	d, in := t.describe(), t.fields["rawInput"]
	if !object(in) {
		in = t.input()
	}
	th.emit(frames.ToolCall{
		CallID: frames.CallID(t.id), Name: d.Name, Kind: d.Kind, Title: d.Title,
		Input: stored(in), Locations: t.locations(),
	})
}

// announceAll announces the calls that the agent has moved on from.
func (th *thread) announceAll() {
	for _, t := range th.order {
		if !t.announced {
			th.announce(t)
		}
	}
}

// progress is the text that the call has shown since the last time.
func (th *thread) progress(t *tool) string {
	var d struct {
		Data string `json:"data"`
	}
	raw, ok := t.meta["terminal_output_delta"]
	if ok {
		delete(t.meta, "terminal_output_delta")
		if json.Unmarshal(raw, &d) == nil {
			data := frames.ValidText(d.Data)
			t.output = frames.Tail(t.output+data, maxOutput)
			return data
		}
	}
	text := t.said()
	more, ok := strings.CutPrefix(text, t.shown)
	if !ok {
		more = "\n" + text // it was replaced
	}
	t.shown = text
	return more
}

// show streams progress of a call that still runs.
func (th *thread) show(t *tool, text string) {
	if text == "" || th.turn == nil || t.text("status") != "in_progress" {
		return
	}
	if err := th.turn.Progress(th.l.storing(), frames.CallID(t.id), text); err != nil {
		th.turn.cancel(err)
	}
}

// said is all text that the call shows.
func (t *tool) said() string {
	var said []string
	for _, c := range t.content() {
		if c.Type == "content" && c.Content.Type == "text" && c.Content.Text != "" {
			said = append(said, frames.ValidText(c.Content.Text))
		}
	}
	return strings.Join(said, "\n")
}

func (t *tool) content() []toolContent {
	var list []toolContent
	if json.Unmarshal(t.fields["content"], &list) != nil {
		return nil
	}
	return list
}

// finish stores the result of a call. What the agent calls completed may have
// failed, or not have run at all; that is not guessed.
func (th *thread) finish(t *tool, status string) {
	th.announce(t)
	t.ended = true
	res := frames.ToolResult{
		CallID: frames.CallID(t.id), Content: th.results(t), IsError: status != "completed",
		DurationMs: time.Since(t.began).Milliseconds(), Details: th.details(t),
	}
	switch {
	case status == "cancelled":
		res.ErrorCode = "cancelled"
	case status == "failed":
		res.ErrorCode = "failed"
	}
	th.emit(res)
}

// results are what a call shows at its end, as events can hold it.
func (th *thread) results(t *tool) []frames.ContentBlock {
	out := t.result()
	for i := range out {
		out[i] = th.bounded(out[i])
	}
	return out
}

// result is what a call shows at its end.
func (t *tool) result() []frames.ContentBlock {
	out := []frames.ContentBlock{}
	for _, c := range t.content() {
		switch c.Type {
		case "content":
			if b, ok := contentBlock(c.Content); ok && (b.Type != "text" || b.Text != "") {
				out = append(out, b)
			}
		case "diff":
			out = append(out, frames.ContentBlock{Type: "resource_link", URI: "file://" + frames.ValidText(c.Path), Name: frames.ValidText(c.Path)})
		}
	}
	if t.output != "" {
		out = append(out, frames.Text(t.output))
	}
	if len(out) > 0 {
		return out
	}
	var raw struct {
		Output string `json:"output"`
	}
	var text string
	switch {
	case json.Unmarshal(t.fields["rawOutput"], &text) == nil && text != "":
		return []frames.ContentBlock{frames.Text(frames.ValidText(text))}
	case json.Unmarshal(t.fields["rawOutput"], &raw) == nil && raw.Output != "":
		return []frames.ContentBlock{frames.Text(frames.ValidText(raw.Output))}
	}
	return out
}

// details is everything that the agent said of a call and the events do not say.
func (th *thread) details(t *tool) json.RawMessage {
	left := maps.Clone(t.fields)
	for _, k := range []string{"status", "name"} {
		delete(left, k)
	}
	if len(t.meta) > 0 {
		left["_meta"] = acprpc.Marshal(t.meta)
	}
	raw := stored(acprpc.Marshal(left))
	if len(raw) > maxDetails {
		return acprpc.Marshal(map[string]any{"truncated": th.whole(raw)})
	}
	return raw
}

// closeTools ends every call that the agent left open.
func (th *thread) closeTools(cancelled bool) {
	code, text := "unknown", "The agent did not say how this call ended."
	if cancelled {
		code, text = "cancelled", "The turn was cancelled; the agent did not say how this call ended."
	}
	for _, t := range th.order {
		switch {
		case !t.announced || t.ended:
		case t.code != "":
			th.refuse(t, t.code, t.why)
		default:
			th.refuse(t, code, text)
		}
	}
	th.tools, th.order = map[string]*tool{}, nil
}

// refused notes that a call was not allowed. One that the agent announced may still
// have its say; of others many agents say nothing more.
func (th *thread) refused(t *tool, code, why string) {
	if t.own {
		t.code, t.why = code, why
		return
	}
	th.refuse(t, code, why)
}

// refuse ends a call with what the host knows of it.
func (th *thread) refuse(t *tool, code, text string) {
	t.ended = true
	content := th.results(t)
	th.emit(frames.ToolResult{
		CallID: frames.CallID(t.id), Content: append(content, frames.Text(text)), IsError: true, ErrorCode: code,
		DurationMs: time.Since(t.began).Milliseconds(), Details: th.details(t),
	})
}
