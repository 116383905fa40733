package host_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
)

// A prompt streams to its client, asks another one, and goes on with the answer;
// both are told everything once and in order, and a third that comes late gets the
// same durable events.
func TestPromptAskAnswerAndLateJoin(t *testing.T) {
	r := start(t, nil)
	a, b := r.dial(canary), r.dial(canary)
	must[rpc.SubscribeResult](b, "mux.subscribe", map[string]any{"host": true})
	b.frame(frames.HostLiveFrame)
	s := r.create(a, nil)
	subscribe(a, s.SessionID)
	got := prompt(a, s.SessionID, `ask {"command":"ls ","n":1.50}`)
	if !got.Accepted || got.TurnID == "" {
		t.Fatalf("prompt = %+v", got)
	}
	var card frames.ApprovalRequested
	if err := json.Unmarshal(b.frame(frames.ApprovalRequestedFrame).Params, &card); err != nil {
		t.Fatal(err)
	}
	if string(card.Input) != `{"command":"ls ","n":1.50}` {
		t.Errorf("the card shows %s, want the input byte for byte", card.Input)
	}
	must[rpc.Accepted](b, "approval.respond", map[string]any{"sessionId": s.SessionID, "id": card.ID, "outcome": "allowed-once", "inputHash": card.InputHash})
	var resolved frames.ApprovalResolved
	if err := json.Unmarshal(a.frame(frames.ApprovalResolvedFrame).Params, &resolved); err != nil {
		t.Fatal(err)
	}
	if resolved.ID != card.ID || resolved.Outcome != frames.AllowedOnce || resolved.By == nil || resolved.By.Label != "test" {
		t.Errorf("resolved = %+v", resolved)
	}
	end := a.event(frames.TurnEndEvent)
	if ran := r.agent.allowed(); len(ran) != 1 || ran[0] != `{"command":"ls ","n":1.50}` {
		t.Errorf("ran %q", ran)
	}
	late := r.dial(canary)
	subscribe(late, s.SessionID)
	next := frames.Seq(1)
	for {
		m := late.until("an event", func(m message) bool { return true })
		if m.Method == string(frames.SessionLiveFrame) {
			break
		}
		if e, ok := eventOf(t, m); ok {
			if e.Seq != next {
				t.Fatalf("event %d, want %d", e.Seq, next)
			}
			next++
		}
	}
	if next != end.Seq+1 {
		t.Errorf("the late client got %d events, want %d", next-1, end.Seq)
	}
	again := a.call("approval.respond", map[string]any{"sessionId": s.SessionID, "id": card.ID, "outcome": "rejected"})
	if kindOf(again) != "approval-not-pending" || !strings.Contains(string(again.Error.Data), `"allowed-once"`) || !strings.Contains(string(again.Error.Data), string(resolved.By.ClientID)) {
		t.Errorf("a late answer: %+v, want approval-not-pending with outcome and who", again.Error)
	}
}

// A client that lost its connection resumes from its cursor: what happened
// meanwhile comes once and in order, and what was settled meanwhile is not shown
// again.
func TestReconnectResumesFromTheCursor(t *testing.T) {
	r := start(t, nil)
	p, other := r.dial(canary), r.dial(canary)
	s := r.create(p, nil)
	subscribe(p, s.SessionID)
	prompt(p, s.SessionID, `ask {"n":1}`)
	var card frames.ApprovalRequested
	if err := json.Unmarshal(p.frame(frames.ApprovalRequestedFrame).Params, &card); err != nil {
		t.Fatal(err)
	}
	cursor := p.event(frames.ApprovalAskedEvent).Seq
	_ = p.ws.CloseNow()
	subscribe(other, s.SessionID)
	must[rpc.Accepted](other, "approval.respond", map[string]any{"sessionId": s.SessionID, "id": card.ID, "outcome": "rejected"})
	other.event(frames.TurnEndEvent)
	prompt(other, s.SessionID, `ask {"n":2}`)
	head := other.event(frames.ApprovalAskedEvent).Seq

	p = r.dial(canary)
	must[rpc.SubscribeResult](p, "mux.subscribe", map[string]any{"sessions": []any{map[string]any{"sessionId": s.SessionID, "since": cursor, "epoch": s.Epoch}}})
	var cards []frames.RequestID
	next := cursor + 1
	p.until("session/live", func(m message) bool {
		if e, ok := eventOf(t, m); ok && e.Seq > 0 {
			if e.Seq != next {
				t.Errorf("event %d, want %d", e.Seq, next)
			}
			next++
		}
		var c frames.ApprovalRequested
		if m.Method == string(frames.ApprovalRequestedFrame) && json.Unmarshal(m.Params, &c) == nil {
			cards = append(cards, c.ID)
		}
		return m.Method == string(frames.SessionLiveFrame)
	})
	if next != head+1 || len(cards) != 1 || cards[0] == card.ID {
		t.Errorf("resumed up to %d with cards %v; want %d and the one new card", next-1, cards, head)
	}
	bad := map[string]any{"sessions": []any{map[string]any{"sessionId": s.SessionID, "since": 10_000}}}
	if got := kindOf(p.call("mux.subscribe", bad)); got != "cursor-ahead" {
		t.Errorf("a cursor beyond the head: %s", got)
	}
}

// A response precedes every frame that its method caused, over a real socket, for
// every method that causes frames.
func TestResponsePrecedesItsFrames(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	must[rpc.SubscribeResult](p, "mux.subscribe", map[string]any{"host": true})
	p.frame(frames.HostLiveFrame)
	for range 20 {
		s := r.create(p, nil)
		mustNotSee(t, p, "session.create", string(s.SessionID))
		subscribe(p, s.SessionID)
		mustNotSee(t, p, "mux.subscribe", "session/subscribed")
		p.frame(frames.SessionLiveFrame)
		got := prompt(p, s.SessionID, `ask {"x":1}`)
		mustNotSee(t, p, "session.prompt", string(got.TurnID))
		var card frames.ApprovalRequested
		if err := json.Unmarshal(p.frame(frames.ApprovalRequestedFrame).Params, &card); err != nil {
			t.Fatal(err)
		}
		must[rpc.Accepted](p, "approval.respond", map[string]any{"sessionId": s.SessionID, "id": card.ID, "outcome": "rejected"})
		mustNotSee(t, p, "approval.respond", "approval/resolved")
		p.event(frames.TurnEndEvent)
		must[rpc.SessionResult](p, "session.configure", map[string]any{"sessionId": s.SessionID, "title": "renamed-now"})
		mustNotSee(t, p, "session.configure", "renamed-now")
		p.event(frames.SessionRenamedEvent)
		must[rpc.Empty](p, "session.delete", map[string]any{"sessionId": s.SessionID})
		mustNotSee(t, p, "session.delete", "host/session-removed")
		p.frame(frames.SessionRemovedFrame)
	}
}

// mustNotSee fails if a frame that came before the response speaks of what.
func mustNotSee(t *testing.T, p *peer, method, what string) {
	t.Helper()
	for _, m := range p.seen {
		if m.Method == what || strings.Contains(string(m.Params), what) {
			t.Errorf("before the response of %s came %s %.200s", method, m.Method, m.Params)
		}
	}
}

// Every method that host.describe lists answers; what is none is unknown.
func TestEveryListedMethodAnswers(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	s := r.create(p, nil)
	done := map[string]bool{}
	for _, c := range everyMethod(s.SessionID, r.cwd) {
		if got := kindOf(p.call(c.method, c.params)); got != c.want {
			t.Errorf("%s: %s, want %s", c.method, got, c.want)
		}
		done[c.method] = true
	}
	for _, m := range must[rpc.DescribeResult](p, "host.describe", map[string]any{}).Features {
		if !done[m] {
			t.Errorf("host.describe lists %s, which this test does not call", m)
		}
	}
	for _, m := range []string{"rpc.ping", "host/describe"} {
		if got := kindOf(p.call(m, map[string]any{})); got != "-32601" {
			t.Errorf("%s: %s, want -32601", m, got)
		}
	}
}

// methodCall is a call and the kind of its answer.
type methodCall struct {
	method string
	params any
	want   string
}

// everyMethod calls each method in turn, about the session id, which the last ones
// close and delete.
func everyMethod(id frames.SessionID, cwd string) []methodCall {
	sid := map[string]any{"sessionId": id}
	with := func(more map[string]any) map[string]any {
		out := map[string]any{"sessionId": id}
		maps.Copy(out, more)
		return out
	}
	text := []frames.ContentBlock{frames.Text("say hi")}
	return []methodCall{
		{"host.describe", map[string]any{}, "ok"},
		{"mux.subscribe", map[string]any{"sessions": []any{sid}, "tree": true}, "ok"},
		{"mux.unsubscribe", map[string]any{"sessions": []any{id}}, "ok"},
		{"sessions.list", map[string]any{}, "ok"},
		{"session.create", map[string]any{"cwd": cwd, "parentSessionId": id}, "ok"},
		{"session.get", with(map[string]any{"view": true}), "ok"},
		{"session.history", sid, "ok"},
		{"session.fork", sid, "fork-not-at-turn-end"},
		{"session.export", with(map[string]any{"format": "jsonl"}), "ok"},
		{"blob.write", map[string]any{"data": ""}, "ok"},
		{"session.prompt", with(map[string]any{"content": text}), "ok"},
		{"session.cancel", sid, "ok"},
		{"session.configure", with(map[string]any{"title": "t"}), "ok"},
		{"approval.respond", with(map[string]any{"id": "none", "outcome": "rejected"}), "approval-not-pending"},
		{"question.respond", with(map[string]any{"id": "none", "cancel": true}), "question-not-pending"},
		{"pending.list", map[string]any{}, "ok"},
		{"grants.list", map[string]any{}, "ok"},
		{"grants.revoke", map[string]any{"id": "none"}, "grant-not-found"},
		{"tasks.list", sid, "ok"},
		{"tasks.get", with(map[string]any{"taskId": "none"}), "task-not-found"},
		{"tasks.wait", with(map[string]any{"taskId": "none"}), "task-not-found"},
		{"tasks.cancel", with(map[string]any{"taskId": "none"}), "task-not-found"},
		{"blob.read", map[string]any{"blob": "sha256-" + strings.Repeat("0", 64)}, "blob-not-found"},
		{"rpc.discover", map[string]any{}, "ok"},
		{"clients.list", map[string]any{}, "ok"},
		{"tokens.list", map[string]any{}, "ok"},
		{"tokens.create", map[string]any{"label": "x", "scope": "observe"}, "ok"},
		{"tokens.revoke", map[string]any{"id": "none"}, "-32602"},
		{"session.close", sid, "ok"},
		{"session.delete", with(map[string]any{"tree": true}), "ok"},
		{"session.get", sid, "session-not-found"},
	}
}

// A client tells its hosts apart and knows who it is.
func TestDescribeTellsHostAndClient(t *testing.T) {
	guest := host.NewToken()
	r := start(t, func(c *host.Config) {
		c.Name, c.Version, c.HostID = "den", "1.2.3", "host-1"
		c.Tokens = []host.Token{{Secret: guest, Scopes: []rpc.Scope{rpc.ScopeAnswer}}}
	})
	d := must[rpc.DescribeResult](r.dial(guest), "host.describe", map[string]any{})
	if d.HostID != "host-1" || d.Name != "den" || d.Version != "1.2.3" || d.ProtocolVersion != "1.0" || d.DefaultAgent != "script" || len(d.Agents) != 1 {
		t.Errorf("describe = %+v", d)
	}
	if d.You.Label != "test" || d.You.ClientID == "" || len(d.You.Scopes) != 2 || d.You.Scopes[1] != rpc.ScopeAnswer {
		t.Errorf("you = %+v, want observe and answer", d.You)
	}
	if kind := kindOf(r.dial(guest).call("session.create", map[string]any{"cwd": r.cwd})); kind != "forbidden" {
		t.Errorf("create with the scope answer: %s, want forbidden", kind)
	}
}

// Answers that two parsers could read differently settle nothing, and neither does
// one with another input's hash.
func TestAmbiguousAnswersSettleNothing(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	s := r.create(p, nil)
	subscribe(p, s.SessionID)
	prompt(p, s.SessionID, `ask {"command":"true"}`)
	var card frames.ApprovalRequested
	if err := json.Unmarshal(p.frame(frames.ApprovalRequestedFrame).Params, &card); err != nil {
		t.Fatal(err)
	}
	base := `"sessionId":"` + string(s.SessionID) + `","id":"` + string(card.ID) + `"`
	for params, want := range map[string]string{
		`{` + base + `,"outcome":"rejected","OUTCOME":"allowed-once"}`:                      "-32602",
		`{` + base + `,"Outcome":"allowed-once"}`:                                           "-32602",
		`{` + base + `,"outcome":"allow"}`:                                                  "-32602",
		`{` + base + `,"outcome":null}`:                                                     "-32602",
		`{` + base + `,"outcome":"allowed-once","by":"me"}`:                                 "-32602",
		`{` + base + `,"outcome":"allowed-once","inputHash":"` + card.InputHash[1:] + `0"}`: "input-hash-mismatch",
	} {
		if got := kindOf(p.call("approval.respond", params)); got != want {
			t.Errorf("%s: %s, want %s", params, got, want)
		}
	}
	m := p.call("approval.respond", map[string]any{"sessionId": s.SessionID, "id": "guess", "outcome": "allowed-once"})
	if kindOf(m) != "approval-not-pending" {
		t.Errorf("a guessed id: %s", kindOf(m))
	}
	if list := must[rpc.PendingResult](p, "pending.list", map[string]any{}); len(list.Pending) != 1 || len(r.agent.allowed()) != 0 {
		t.Errorf("pending = %+v, ran %q; want it open and nothing run", list, r.agent.allowed())
	}
}

// Broken and oversized messages are answered or cut off as the wire says, and
// other connections notice nothing.
func TestBrokenMessagesHurtOnlyTheirConnection(t *testing.T) {
	r := start(t, nil)
	good := r.dial(canary)
	for name, c := range map[string]struct {
		kind  websocket.MessageType
		msg   string
		code  websocket.StatusCode // 0: answered
		error int64
	}{
		"deep":         {websocket.MessageText, `{"jsonrpc":"2.0","id":1,"method":"host.describe","params":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 0, rpc.CodeInvalidRequest},
		"tokens":       {websocket.MessageText, `[` + strings.Repeat("0,", 200_000) + `0]`, 0, rpc.CodeInvalidRequest},
		"not JSON":     {websocket.MessageText, `{`, 0, rpc.CodeParse},
		"batch":        {websocket.MessageText, `[]`, 0, rpc.CodeInvalidRequest},
		"binary":       {websocket.MessageBinary, `{}`, 1003, 0},
		"invalid text": {websocket.MessageText, "\xff", 1007, 0},
		"too large":    {websocket.MessageText, strings.Repeat(" ", 1<<20+1), 1009, 0},
	} {
		p := r.dial(canary)
		if err := p.ws.Write(t.Context(), c.kind, []byte(c.msg)); err != nil && c.code == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		if c.code == 0 {
			if m := p.read(); m.Error == nil || m.Error.Code != c.error || string(m.ID) != "null" {
				t.Errorf("%s: %+v, want %d with id null", name, m.Error, c.error)
			}
			must[rpc.DescribeResult](p, "host.describe", map[string]any{})
			continue
		}
		_, _, err := p.ws.Read(t.Context())
		if got := websocket.CloseStatus(err); got != c.code {
			t.Errorf("%s: closed with %d (%v), want %d", name, got, err, c.code)
		}
	}
	must[rpc.DescribeResult](good, "host.describe", map[string]any{})
}

// Shutting down tells clients, settles what is open, ends turns, and closes with
// 1001, in this order.
func TestShutdownSettlesTellsAndCloses(t *testing.T) {
	r := start(t, func(c *host.Config) { c.DrainTimeout = 50 * time.Millisecond })
	p := r.dial(canary)
	s := r.create(p, nil)
	subscribe(p, s.SessionID)
	prompt(p, s.SessionID, `ask {"command":"true"}`)
	p.frame(frames.ApprovalRequestedFrame)
	down := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { down <- r.host.Shutdown(context.Background()) })
	defer wg.Wait()
	p.frame(frames.HostDrainingFrame)
	if kind := kindOf(p.call("session.create", map[string]any{"cwd": r.cwd})); kind != "draining" {
		t.Errorf("create while draining: %s", kind)
	}
	var resolved frames.ApprovalResolved
	if err := json.Unmarshal(p.frame(frames.ApprovalResolvedFrame).Params, &resolved); err != nil || resolved.Outcome != frames.Cancelled || resolved.Origin != frames.CauseShutdown {
		t.Errorf("resolved = %+v, %v; want cancelled by shutdown", resolved, err)
	}
	end, err := p.event(frames.TurnEndEvent).Payload()
	if e, ok := end.(*frames.TurnEnd); err != nil || !ok || e.Reason != frames.TurnInterrupted {
		t.Errorf("turn/end = %+v, %v; want interrupted", end, err)
	}
	for {
		_, _, err := p.ws.Read(t.Context())
		if err == nil {
			continue
		}
		if got := websocket.CloseStatus(err); got != websocket.StatusGoingAway {
			t.Errorf("closed with %v, want 1001", err)
		}
		break
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if len(r.agent.allowed()) != 0 {
		t.Errorf("ran %q", r.agent.allowed())
	}
}
