package acp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// Against every recorded agent the host says exactly what was recorded, in that
// order and with those ids, and loses nothing of what the agent says.
func TestRecordedAgents(t *testing.T) {
	files, err := filepath.Glob("testdata/replay/*.jsonl")
	if err != nil || len(files) != 75 {
		t.Fatalf("%d recordings, %v; want all 75", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			rec := readRecording(t, file)
			synctest.Test(t, rec.play)
		})
	}
}

// recorded is one line of a recording.
type recorded struct {
	Dir string  `json:"dir"`
	Msg message `json:"msg"`
}

func (r recorded) host() bool { return r.Dir == "host>agent" }

// recording is a conversation between a host and an agent.
type recording struct {
	name  string
	lines []recorded
	// early are the host's answers that came before the recorded place.
	early map[string]message
	// asked are the agent's requests so far, by id; heard all that the host sent.
	asked map[string]bool
	heard []message
	main  string // the agent's id of the session
	// cancelled is set when the turn was cancelled; until then every answer must
	// be the recorded one.
	cancelled bool

	// then is called when all was played, before anything is closed.
	then    func(*testing.T, *agenttest.Host, *agenttest.Session)
	results []agent.Result // of the turns

	mu     sync.Mutex
	cancel context.CancelFunc // of the running turn
}

func readRecording(t *testing.T, file string) *recording {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recording{name: strings.TrimSuffix(filepath.Base(file), ".jsonl"), early: map[string]message{}, asked: map[string]bool{}}
	for line := range bytes.Lines(b) {
		var r recorded
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		rec.lines = append(rec.lines, r)
	}
	return rec
}

// find returns the first message of a direction with a method.
func (rec *recording) find(dir, method string) (message, bool) {
	for _, r := range rec.lines {
		if r.Dir == dir && r.Msg.Method == method {
			return r.Msg, true
		}
	}
	return message{}, false
}

// all returns every message of a direction with a method.
func (rec *recording) all(dir, method string) []message {
	var out []message
	for _, r := range rec.lines {
		if r.Dir == dir && r.Msg.Method == method {
			out = append(out, r.Msg)
		}
	}
	return out
}

// answer returns the recorded answer of dir to an id.
func (rec *recording) answer(dir, id string) (message, bool) {
	for _, r := range rec.lines {
		if r.Dir == dir && r.Msg.Method == "" && string(r.Msg.ID) == id {
			return r.Msg, true
		}
	}
	return message{}, false
}

func field(raw json.RawMessage, path ...string) string {
	for _, key := range path {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil {
			return ""
		}
		raw = m[key]
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// play runs the host against the recording.
func (rec *recording) play(t *testing.T) {
	o := acp.Options{Name: "fake"}
	if m, ok := rec.find("host>agent", "session/set_mode"); ok {
		o.ApprovalMode = field(m.Params, "modeId")
	}
	if m, ok := rec.find("host>agent", "session/new"); ok {
		a, _ := rec.answer("agent>host", string(m.ID))
		rec.main = field(a.Result, "sessionId")
	}
	var config string
	if m, ok := rec.find("host>agent", "session/set_config_option"); ok {
		config = fmt.Sprintf(`{%q:%q}`, field(m.Params, "configId"), field(m.Params, "value"))
	}
	d := driver(t, o, func(f *fake) { rec.agent(f) })
	for _, method := range []string{"session/load", "session/resume"} {
		if m, ok := rec.find("host>agent", method); ok {
			rec.main = field(m.Params, "sessionId")
			d = withPast{d, rec.main}
		}
	}
	h := agenttest.New(agenttest.Script{Cwd: "/home/dev/demo", Approve: rec.approve, Answer: rec.reply}, d)
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		shut(t, d)
	}()
	s, err := h.Open(t.Context(), json.RawMessage(config))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rec.all("host>agent", "session/prompt") {
		rec.prompt(t, s, p)
	}
	synctest.Wait()
	rec.check(t, h, s)
	if rec.then != nil {
		rec.then(t, h, s)
	}
}

// withPast is a driver whose sessions have a log that names the agent's session.
type withPast struct {
	agent.Driver
	id string
}

func (d withPast) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	return d.openWith(ctx, s, nil)
}

func (d withPast) openWith(ctx context.Context, s agent.Session, more []frames.Event) (agent.Agent, error) {
	s.History = func(_ context.Context, after frames.Seq, _ int) ([]frames.Event, error) {
		if after > 0 {
			return nil, nil
		}
		data, err := json.Marshal(map[string]string{"sessionId": d.id, "for": string(s.ID)})
		return append([]frames.Event{{Seq: 1, Type: "acp.agentclientprotocol.com/session", Data: data}}, more...), err
	}
	return d.Driver.Open(ctx, s)
}

// prompt runs one recorded turn and compares how it ended.
func (rec *recording) prompt(t *testing.T, s *agenttest.Session, p message) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec.mu.Lock()
	rec.cancel = cancel
	rec.mu.Unlock()
	var blocks []struct{ Text string }
	if err := json.Unmarshal([]byte(field(p.Params, "prompt")), &blocks); err != nil || len(blocks) != 1 {
		t.Fatalf("a recorded prompt of %s, %v; want one block", p.Params, err)
	}
	res, err := s.Prompt(ctx, blocks[0].Text)
	rec.results = append(rec.results, res)
	a, ended := rec.answer("agent>host", string(p.ID))
	host := ctx.Err() != nil
	failed := !ended && !host || len(a.Error) > 0
	if failed != (err != nil) {
		t.Errorf("Prompt = %+v, %v; the agent ended it with %s %s", res, err, a.Result, a.Error)
	}
	// Where something was refused, some agents call the turn cancelled.
	itself := field(a.Result, "stopReason") == "cancelled" && len(rec.all("agent>host", "session/request_permission")) == 0
	if err == nil && (host || itself) != (res.Reason == frames.TurnCancelled) {
		t.Errorf("Prompt = %+v, %v; cancelled by the host %t, by the agent %t", res, err, host, itself)
	}
}

// agent plays the agent's part, and compares the host's.
func (rec *recording) agent(f *fake) {
	for i, r := range rec.lines {
		switch {
		case !r.host():
			if r.Msg.Method != "" && r.Msg.ID != nil {
				rec.asked[string(r.Msg.ID)] = true
			}
			b, err := json.Marshal(r.Msg)
			if err != nil {
				f.t.Error(err)
			}
			if _, loads := rec.find("host>agent", "session/load"); loads {
				b = bytes.ReplaceAll(b, []byte(`"resume":{}`), []byte(`"resume":null`))
			}
			f.line("%s", b)
		case r.Msg.Method == "":
			rec.expectAnswer(f, r.Msg, rec.lines[i+1:])
		default:
			rec.expectCall(f, r.Msg)
		}
	}
	if strings.HasSuffix(rec.name, "-killed") {
		return
	}
	for {
		m, ok := rec.recv(f)
		if !ok {
			return
		}
		if m.Method == "session/close" {
			f.result(m, "{}")
			continue
		}
		if silent := m.Method == "session/cancel" && rec.open(); !silent && !rec.extra(m) {
			f.t.Errorf("the host sent %s after all: %s%s%s", m.Method, m.Params, m.Result, m.Error)
		}
	}
}

// recv returns the host's next message and notes it.
func (rec *recording) recv(f *fake) (message, bool) {
	m, ok := f.recv()
	if ok {
		rec.heard = append(rec.heard, m)
	}
	return m, ok
}

// open reports whether a prompt has no answer in the recording.
func (rec *recording) open() bool {
	return slices.ContainsFunc(rec.all("host>agent", "session/prompt"), func(p message) bool {
		_, ok := rec.answer("agent>host", string(p.ID))
		return !ok
	})
}

// stop cancels the running turn.
func (rec *recording) stop() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.cancelled = true
	rec.cancel()
}

// expectCall waits for the host's next call or notification; answers may come
// before it, and must be the recorded ones.
func (rec *recording) expectCall(f *fake, want message) {
	if want.Method == "session/cancel" {
		synctest.Wait() // what came before has arrived
		rec.stop()
	}
	for {
		got, ok := rec.recv(f)
		switch {
		case !ok:
			f.t.Errorf("the host went away; want %s", want.Method)
			return
		case got.Method == "":
			rec.hold(f, got)
			continue
		case rec.extra(got):
			continue
		}
		same := got.Method == want.Method && string(got.ID) == string(want.ID)
		if same && want.Method == "initialize" {
			same = field(got.Params, "protocolVersion") == field(want.Params, "protocolVersion")
		} else {
			same = same && equalJSON(got.Params, want.Params)
		}
		if !same {
			f.t.Errorf("the host sent %s %s %s\nwant %s %s %s", got.ID, got.Method, got.Params, want.ID, want.Method, want.Params)
		}
		return
	}
}

// expectAnswer waits for the host's answer to a request of the agent.
func (rec *recording) expectAnswer(f *fake, want message, rest []recorded) {
	for _, r := range rest {
		if cancelled(want) && r.host() && r.Msg.Method == "session/cancel" {
			rec.stop()
		}
	}
	got, held := rec.early[string(want.ID)]
	for !held {
		m, ok := rec.recv(f)
		if !ok {
			f.t.Errorf("the host went away; want the answer to %s", want.ID)
			return
		}
		if m.Method != "" {
			if !rec.extra(m) {
				f.t.Errorf("the host sent %s %s; want the answer to %s", m.Method, m.Params, want.ID)
			}
			continue
		}
		rec.hold(f, m)
		got, held = rec.early[string(want.ID)]
	}
	if !equalJSON(got.Result, want.Result) || field(got.Error, "code") != field(want.Error, "code") {
		f.t.Errorf("the host answered %s with %s%s\nwant %s%s", want.ID, got.Result, got.Error, want.Result, want.Error)
	}
}

// hold keeps an answer for the recorded place. One that is not recorded may only be
// a cancellation, after the turn was cancelled.
func (rec *recording) hold(f *fake, got message) {
	if _, ok := rec.answer("host>agent", string(got.ID)); !ok && !(cancelled(got) && rec.stopped()) {
		f.t.Errorf("the host answered %s with %s%s; nothing is recorded", got.ID, got.Result, got.Error)
	}
	if !rec.asked[string(got.ID)] {
		f.t.Errorf("the host answered %s, which the agent had not asked yet", got.ID)
	}
	if _, twice := rec.early[string(got.ID)]; twice {
		f.t.Errorf("the host answered %s twice", got.ID)
	}
	rec.early[string(got.ID)] = got
}

func (rec *recording) stopped() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.cancelled
}

// extra reports whether a message may be sent though it was not recorded: the
// recorded host did not cancel subagents.
func (rec *recording) extra(m message) bool {
	return m.Method == "session/cancel" && rec.stopped() && field(m.Params, "sessionId") != rec.main
}

func cancelled(m message) bool {
	return field(m.Result, "outcome", "outcome") == "cancelled" || field(m.Result, "action") == "cancel"
}

func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	if len(a) == 0 && len(b) == 0 {
		return true
	}
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// approve decides as the recorded person did.
func (rec *recording) approve(ctx context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
	for _, ask := range rec.all("agent>host", "session/request_permission") {
		if field(ask.Params, "toolCall", "toolCallId") != string(a.Call) {
			continue
		}
		said, ok := rec.answer("host>agent", string(ask.ID))
		if _, aborted := rec.find("host>agent", "session/cancel"); ok && cancelled(said) && !aborted {
			return agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
		}
		if !ok || cancelled(said) {
			break
		}
		var p struct {
			Options []struct{ OptionID, Kind string }
		}
		if json.Unmarshal(ask.Params, &p) != nil {
			break
		}
		for _, o := range p.Options {
			if o.OptionID == field(said.Result, "outcome", "optionId") && o.Kind == "allow_once" {
				return agent.Decision{Outcome: frames.AllowedOnce, Cause: frames.CauseReply}
			}
		}
		return agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply}
	}
	<-ctx.Done()
	return agent.Decision{Outcome: frames.Cancelled, Cause: frames.CauseAbort}
}

// reply answers questions as the recorded person did.
func (rec *recording) reply(_ context.Context, _ *agenttest.Session, q []frames.Question) agent.Answers {
	ask, _ := rec.find("agent>host", "elicitation/create") // no recording has two
	said, _ := rec.answer("host>agent", string(ask.ID))
	switch field(said.Result, "action") {
	case "decline":
		return agent.Answers{Outcome: frames.Cancelled, Cause: frames.CauseReply}
	case "cancel":
		return agent.Answers{Outcome: frames.Cancelled, Cause: frames.CauseTimeout}
	}
	out := agent.Answers{Outcome: frames.Answered, Cause: frames.CauseReply}
	for _, one := range q {
		if v := field(said.Result, "content", one.ID); v != "" {
			out.Answers = append(out.Answers, frames.Answer{ID: one.ID, Labels: []string{v}})
		}
	}
	return out
}

// check compares what was stored with what the recorded agent said.
func (rec *recording) check(t *testing.T, h *agenttest.Host, root *agenttest.Session) {
	t.Helper()
	said, calls, kinds := rec.said()
	got := map[string]string{}
	asked := 0
	for _, s := range h.Sessions() {
		id := rec.main
		if s != root {
			id = rec.childOf(s)
		}
		started, ended := map[frames.CallID]int{}, map[frames.CallID]int{}
		for _, e := range s.Events() {
			switch e := e.(type) {
			case frames.AssistantMessage:
				got[id] += e.Content[0].Text
			case frames.ToolCall:
				started[e.CallID]++
			case frames.ToolResult:
				ended[e.CallID]++
			case frames.ApprovalAsked:
				asked++
			}
		}
		if fmt.Sprint(started) != fmt.Sprint(calls[id]) || fmt.Sprint(ended) != fmt.Sprint(calls[id]) {
			t.Errorf("session %s: calls began %v and ended %v; the agent named %v", id, started, ended, calls[id])
		}
	}
	for id := range maps.Keys(got) {
		said[id] += "" // what was not said must not be stored
	}
	for id, text := range said {
		if got[id] != text {
			t.Errorf("session %s: stored %q; the agent said %q", id, got[id], text)
		}
	}
	if n := len(rec.all("agent>host", "session/request_permission")); asked != n {
		t.Errorf("%d approvals were asked for; the agent asked %d times", asked, n)
	}
	for kind := range kinds {
		if len(rawOf(root, kind)) == 0 {
			t.Errorf("no %s is kept", kind)
		}
	}
}

// said is what the recorded agent said: text and tool calls for each session, and
// the kinds of updates that no event has a place for.
func (rec *recording) said() (text map[string]string, calls map[string]map[frames.CallID]int, kinds map[string]bool) {
	text, calls, kinds = map[string]string{}, map[string]map[frames.CallID]int{rec.main: {}}, map[string]bool{}
	live := false
	for _, r := range rec.lines {
		if r.host() {
			live = live || r.Msg.Method == "session/prompt"
			continue
		}
		if !live {
			continue // before the first prompt only a replay says something
		}
		id, u := field(r.Msg.Params, "sessionId"), json.RawMessage(field(r.Msg.Params, "update"))
		if calls[id] == nil {
			calls[id] = map[frames.CallID]int{}
		}
		switch kind := field(u, "sessionUpdate"); kind {
		case "agent_message_chunk":
			text[id] += field(u, "content", "text")
		case "tool_call", "tool_call_update":
			calls[id][frames.CallID(field(u, "toolCallId"))] = 1
		case "session_info_update", "session_message", "subagent_update":
			kinds[kind] = true
		}
		if r.Msg.Method == "session/request_permission" {
			calls[id][frames.CallID(field(r.Msg.Params, "toolCall", "toolCallId"))] = 1
		}
	}
	return text, calls, kinds
}

// childOf is the agent's id of the subagent that s shows.
func (rec *recording) childOf(s *agenttest.Session) string {
	for _, m := range rec.all("agent>host", "session/update") {
		u := json.RawMessage(field(m.Params, "update"))
		if field(u, "sessionUpdate") == "subagent_update" && strings.HasPrefix(firstText(field(u, "title"), field(u, "description")), strings.TrimSuffix(s.Title, "…")) {
			return field(u, "sessionId")
		}
	}
	return "?"
}

func firstText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
