package acp_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// events are those of type P in all sessions.
func events[P frames.Payload](p played) []P {
	var out []P
	for _, s := range p.host.Sessions() {
		for _, e := range s.Events() {
			if e, ok := e.(P); ok {
				out = append(out, e)
			}
		}
	}
	return out
}

// shows fails the test unless the recording shows what it is played for.
func (p played) shows(t *testing.T, ok bool) {
	t.Helper()
	if !ok {
		t.Fatalf("%s does not show this", p.name)
	}
}

// updates are the agent's updates of a kind, as they were recorded.
func (p played) updates(kind string) []json.RawMessage {
	var out []json.RawMessage
	for _, m := range p.all("agent>host", "session/update") {
		if u := json.RawMessage(field(m.Params, "update")); field(u, "sessionUpdate") == kind {
			out = append(out, u)
		}
	}
	return out
}

// at is the place of the first message of the host for which is holds, -1 if none.
func (p played) at(is func(message) bool) int { return slices.IndexFunc(p.heard, is) }

func method(name string) func(message) bool {
	return func(m message) bool { return m.Method == name }
}

func holdsModeFirst(t *testing.T, p played) {
	m, _ := p.find("host>agent", "session/new")
	a, _ := p.answer("agent>host", string(m.ID))
	p.shows(t, field(a.Result, "modes", "currentModeId") != "default")
	if set, prompted := p.at(method("session/set_mode")), p.at(method("session/prompt")); set < 0 || set > prompted {
		t.Errorf("the mode was set at %d, the prompt sent at %d", set, prompted)
	}
}

func holdsLegacyBlocks(t *testing.T, p played) {
	m, _ := p.find("host>agent", "session/new")
	a, _ := p.answer("agent>host", string(m.ID))
	p.shows(t, field(a.Result, "modes") != "" && field(a.Result, "configOptions") != "")
	c, ok := p.root.Agent.(agent.Configurable)
	if !ok {
		t.Fatal("the agent takes no options")
	}
	if err := c.Configure(t.Context(), json.RawMessage(`{"model":"no such model"}`)); err == nil || !strings.Contains(err.Error(), "it offers") {
		t.Errorf("Configure = %v; want what the agent offers", err)
	}
}

func holdsIDZero(t *testing.T, p played) {
	ask, _ := p.find("agent>host", "session/request_permission")
	p.shows(t, string(ask.ID) == "0")
	if p.at(func(m message) bool { return m.Method == "" && string(m.ID) == "0" && len(m.Result) > 0 }) < 0 {
		t.Error("the request 0 has no answer")
	}
}

func holdsWithdrawn(t *testing.T, p played) {
	_, withdrawn := p.find("agent>host", "$/cancel_request")
	p.shows(t, withdrawn)
	d := events[frames.ApprovalDecided](p)
	if len(d) != 1 || d[0].Outcome != frames.Cancelled {
		t.Errorf("decided %+v; want one, cancelled", d)
	}
	if n := len(slices.DeleteFunc(slices.Clone(p.heard), func(m message) bool { return m.Method != "" })); n != 1 {
		t.Errorf("%d answers; want one", n)
	}
}

func holdsAnsweredFirst(t *testing.T, p played) {
	answered := p.at(func(m message) bool { return m.Method == "" && cancelled(m) })
	if told := p.at(method("session/cancel")); told < 0 || answered < 0 || answered > told {
		t.Errorf("answered at %d, cancelled at %d; want the answer first", answered, told)
	}
	for _, d := range events[frames.ApprovalDecided](p) {
		if d.Outcome != frames.Cancelled {
			t.Errorf("decided %+v; want cancelled", d)
		}
	}
}

func holdsRefused(t *testing.T, p played) {
	ask, found := p.find("agent>host", "fs/write_text_file")
	p.shows(t, found)
	if i := p.at(func(m message) bool { return m.Method == "" && string(m.ID) == string(ask.ID) }); i < 0 || field(p.heard[i].Error, "code") != "-32601" {
		t.Errorf("answer %d; want -32601", i)
	}
}

func holdsNotification(t *testing.T, p played) {
	if got := rawOf(p.root, "notification"); len(got) == 0 || field([]byte(got[0]), "method") != "_auth/status_update" {
		t.Errorf("kept %v; want the notification", got)
	}
}

func holdsAfterwards(t *testing.T, p played) {
	var kinds []string
	over := false
	for _, r := range p.lines {
		switch {
		case !r.host() && r.Msg.Method == "" && field(r.Msg.Result, "stopReason") != "":
			over = true
		case over && r.Msg.Method == "session/update":
			kinds = append(kinds, field(r.Msg.Params, "update", "sessionUpdate"))
		}
	}
	p.shows(t, len(kinds) > 0)
	for _, kind := range kinds {
		// What comes right behind the answer may still be the turn's.
		asResult := kind == "tool_call_update" && len(events[frames.ToolResult](p)) > 0
		if len(rawOf(p.root, kind)) == 0 && !asResult {
			t.Errorf("no %s is kept", kind)
		}
	}
}

func holdsCascade(t *testing.T, p played) {
	if len(p.host.Sessions()) != 2 {
		t.Fatalf("%d sessions; want the subagent's too", len(p.host.Sessions()))
	}
	kid := p.host.Sessions()[1]
	if d := agenttest.Last[frames.ApprovalDecided](kid); d.Outcome != frames.Cancelled {
		t.Errorf("the subagent's request was decided %+v; want cancelled", d)
	}
	if c := agenttest.Last[frames.AgentCompleted](p.root); c.Status != string(frames.TurnCancelled) {
		t.Errorf("the subagent ended %+v; want cancelled", c)
	}
}

func holdsForm(t *testing.T, p played) {
	ask, found := p.find("agent>host", "elicitation/create")
	p.shows(t, found)
	if got := rawOf(p.root, "elicitation"); len(got) != 1 || !equalJSON([]byte(got[0]), ask.Params) {
		t.Errorf("kept %v; want the form as it came", got)
	}
	q := agenttest.Last[frames.QuestionAsked](p.root).Questions
	if len(q) != 1 || len(q[0].Options) < 2 || q[0].Options[0].Description != "warm" || !q[0].AllowText {
		t.Errorf("asked %+v; want one question with its options, and room for other words", q)
	}
	d := agenttest.Last[frames.QuestionDecided](p.root)
	if answered := strings.HasSuffix(p.name, "-accept"); answered != (d.Outcome == frames.Answered) {
		t.Errorf("decided %+v", d)
	}
}

func holdsRejections(t *testing.T, p played) {
	for _, d := range events[frames.ApprovalDecided](p) {
		if d.Outcome.Allows() {
			t.Errorf("decided %+v; want no allowance", d)
		}
	}
	for _, r := range p.results {
		if r.Reason != frames.TurnCompleted {
			t.Errorf("the turn ended %+v; want completed", r)
		}
	}
}

func holdsCommands(t *testing.T, p played) {
	distinct := map[string]bool{}
	for _, u := range p.updates("available_commands_update") {
		distinct[string(u)] = true
	}
	p.shows(t, len(distinct) > 0)
	if n := count[frames.CommandAvailable](p.root); n == 0 || n > len(distinct) {
		t.Errorf("%d lists are stored; the agent sent %d that differ", n, len(distinct))
	}
}

func holdsNoReplay(t *testing.T, p played) {
	p.shows(t, len(p.updates("agent_message_chunk"))+len(p.updates("tool_call")) > 0)
	prompts := len(p.all("host>agent", "session/prompt"))
	if n := len(events[frames.AssistantMessage](p)); (n == 0) != (prompts == 0) {
		t.Errorf("%d messages in %d turns; want none of the replay", n, prompts)
	}
	if len(p.host.Sessions()) != 1 || len(events[frames.ToolCall](p)) != 0 {
		t.Errorf("%d sessions, %d calls; want none of the replay", len(p.host.Sessions()), len(events[frames.ToolCall](p)))
	}
}

func holdsStalled(t *testing.T, p played) {
	if n := len(events[frames.ErrorReported](p)); n != 1 {
		t.Errorf("%d reports; want one", n)
	}
	if r := events[frames.ToolResult](p); len(r) != 1 || !r[0].IsError {
		t.Errorf("results %+v; want the open call closed", r)
	}
	if p.at(method("session/cancel")) < 0 {
		t.Error("the turn was not cancelled at the agent")
	}
}

func holdsSerial(t *testing.T, p played) {
	if len(p.results) != 2 {
		t.Fatalf("%d turns; want 2", len(p.results))
	}
	texts := events[frames.AssistantMessage](p)
	if last := texts[len(texts)-1].Content[0].Text; last != "The second prompt ran." {
		t.Errorf("the last turn said %q", last)
	}
}

// holdsNothing is for what playing checks already.
func holdsNothing(*testing.T, played) {}

func holdsBacklog(t *testing.T, p played) {
	late := 0
	for i, r := range p.lines {
		if r.Msg.Method == "session/cancel" {
			late = i
		}
		if late > 0 && field(r.Msg.Result, "stopReason") != "" {
			p.shows(t, i-late > 40)
			break
		}
	}
	if p.results[0].Reason != frames.TurnCancelled {
		t.Errorf("the turn ended %+v; want cancelled", p.results[0])
	}
}

func holdsPlan(t *testing.T, p played) {
	planned := len(p.updates("plan"))
	if n := len(events[frames.TodoWrite](p)); n != planned {
		t.Errorf("%d lists are stored; the agent sent %d plans", n, planned)
	}
	if planned == 0 && len(events[frames.ToolCall](p)) == 0 && p.name != "codex-plan" {
		t.Error("neither a plan nor a call is stored")
	}
}

func holdsUnannounced(t *testing.T, p played) {
	for _, ask := range p.all("agent>host", "session/request_permission") {
		id := field(ask.Params, "toolCall", "toolCallId")
		announced := slices.ContainsFunc(p.updates("tool_call"), func(u json.RawMessage) bool { return field(u, "toolCallId") == id })
		p.shows(t, !announced)
		began := slices.IndexFunc(events[frames.ToolCall](p), func(c frames.ToolCall) bool { return string(c.CallID) == id })
		ended := slices.IndexFunc(events[frames.ToolResult](p), func(r frames.ToolResult) bool { return string(r.CallID) == id })
		if began < 0 || ended < 0 {
			t.Fatalf("the call %s began %d, ended %d", id, began, ended)
		}
		said := slices.ContainsFunc(p.updates("tool_call_update"), func(u json.RawMessage) bool { return field(u, "toolCallId") == id })
		if r := events[frames.ToolResult](p)[ended]; !said && !r.IsError {
			t.Errorf("the call ended %+v, of which the agent said nothing", r)
		}
	}
}

func holdsAskedInProgress(t *testing.T, p played) {
	p.shows(t, slices.ContainsFunc(append(p.updates("tool_call"), p.updates("tool_call_update")...), func(u json.RawMessage) bool {
		return field(u, "status") == "in_progress"
	}))
	var order []string
	for _, e := range p.root.Events() {
		switch e.(type) {
		case frames.ToolCall, frames.ApprovalAsked, frames.ApprovalDecided, frames.ToolResult:
			order = append(order, string(e.EventType()))
		}
	}
	if got := strings.Join(order[:4], " "); got != "tool/call approval/asked approval/decided tool/result" {
		t.Errorf("the order was %s", got)
	}
}

func holdsMetaOutput(t *testing.T, p played) {
	r := agenttest.Last[frames.ToolResult](p.root)
	if len(r.Content) != 1 || r.Content[0].Text != "out-text\nerr-text\n" || field(r.Details, "_meta", "terminal_exit", "exit_code") != "3" {
		t.Errorf("the result is %+v %s", r, r.Details)
	}
}

func holdsFailedCommand(t *testing.T, p played) {
	r := agenttest.Last[frames.ToolResult](p.root)
	failed := map[string]bool{"claude-perm-allow": true, "codex-perm-allow": true}[p.name]
	if r.IsError != failed {
		t.Errorf("the result is %+v; want what the agent calls it", r)
	}
	if p.name == "opencode-perm-allow" && field(r.Details, "rawOutput", "metadata", "exit") != "3" {
		t.Errorf("the details are %s; want the exit code", r.Details)
	}
}
