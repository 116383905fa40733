package editor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/editor"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// A turn of the editor's is seen whole, each text once, and the prompt is answered after
// all of it.
func TestPromptShowsItsTurn(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		s := f.open(r)
		if got := f.stop(f.say(s, "think hm hm; say one two; plan do it; back a guess; say three")); got != "end_turn" {
			t.Errorf("the prompt ended with %q, want end_turn", got)
		}
		text := f.text(s, "agent_message_chunk")
		if !strings.HasPrefix(text, "one twoa guess") || !strings.HasSuffix(text, "three") || !strings.Contains(text, "took back") {
			t.Errorf("text %q", text)
		}
		if got := f.text(s, "agent_thought_chunk"); got != "hm hm" {
			t.Errorf("thoughts %q, want hm hm", got)
		}
		if got := f.seen(s, "plan", "usage_update"); len(got) != 2 {
			t.Errorf("%d plans and usages, want 2", len(got))
		}
		if got := f.seen(s, "user_message_chunk"); got != nil {
			t.Errorf("the editor's own words came back: %v", got)
		}
	})
}

// The end of a turn is told in the protocol's words; a failure is an error.
func TestPromptTellsHowItsTurnEnded(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		s := f.open(r)
		for reason, want := range map[string]string{
			"completed": "end_turn", "max-tokens": "max_tokens", "max-steps": "max_turn_requests", "refused": "refusal", "cancelled": "cancelled",
		} {
			if got := f.stop(f.say(s, "end "+reason)); got != want {
				t.Errorf("a turn that ended %q: %q, want %q", reason, got, want)
			}
		}
		if got := f.stop(f.say(s, "break everything")); !strings.Contains(got, "it failed: everything") {
			t.Errorf("a turn that failed: %q, want the error", got)
		}
	})
}

// A prompt waits behind somebody else's turn, and is answered when its own ends.
func TestPromptWaitsForItsOwnTurn(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		prompt(t, c, s, "slowly a b c")
		mine := f.say(s, "say mine")
		<-time.After(1500 * time.Millisecond)
		select {
		case <-mine:
			t.Fatal("it was answered before its turn")
		default:
		}
		if got := f.stop(mine); got != "end_turn" {
			t.Errorf("it ended with %q", got)
		}
		if got := f.text(s, "agent_message_chunk"); got != "a b cmine" {
			t.Errorf("text %q", got)
		}
		if got := f.seen(s, "user_message_chunk"); len(got) != 1 || !strings.Contains(string(got[0].Raw), `"label":"other"`) {
			t.Errorf("what the other said: %s", got)
		}
	})
}

// session/cancel of a prompt that waits leaves the turn of somebody else alone; of one
// that runs it ends the turn.
func TestCancelEndsTheEditorsPrompts(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		prompt(t, c, s, "wait")
		synctest.Wait()
		first, second := f.say(s, "say one"), f.say(s, "say two")
		synctest.Wait()
		f.conn.Notify("session/cancel", map[string]string{"sessionId": s})
		if a, b := f.stop(first), f.stop(second); a != "cancelled" || b != "cancelled" {
			t.Errorf("the prompts ended %q and %q, want both cancelled", a, b)
		}
		if v := view(t, c, s); v.TurnID == "" || len(v.Queue()) > 0 {
			t.Errorf("the other's turn: %q, the queue: %v", v.TurnID, v.Queue())
		}
		f.conn.Notify("session/cancel", map[string]string{"sessionId": s}) // with no prompt of its own: what runs
		synctest.Wait()
		if v := view(t, c, s); v.TurnID != "" {
			t.Error("the turn goes on after session/cancel")
		}
		running := f.say(s, "wait")
		synctest.Wait()
		f.conn.Notify("session/cancel", map[string]string{"sessionId": s})
		if got := f.stop(running); got != "cancelled" {
			t.Errorf("it ended %q, want cancelled", got)
		}
		if got := f.text(s, "agent_message_chunk"); got != "" {
			t.Errorf("cancelled prompts ran: %q", got)
		}
	})
}

// A prompt that the editor takes back is answered cancelled, and does not run.
func TestWithdrawnPromptIsCancelled(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		n, ch := f.conn.Start("session/prompt", map[string]any{"sessionId": s, "prompt": []any{map[string]string{"type": "text", "text": "wait"}}})
		synctest.Wait()
		f.conn.Notify("$/cancel_request", map[string]any{"requestId": n})
		if got := f.stop(ch); got != "cancelled" {
			t.Errorf("it ended %q, want cancelled", got)
		}
		synctest.Wait()
		if v := view(t, c, s); v.TurnID != "" {
			t.Error("its turn goes on")
		}
	})
}

// A connection that is cut loses and repeats nothing: neither text nor requests; what was
// settled meanwhile is withdrawn, and the prompt's end is told.
func TestLostConnectionLosesNothing(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		ch := f.say(s, `slowly a b c d e f g h; run {"x":1}; say end`)
		for range 6 {
			<-time.After(1200 * time.Millisecond)
			r.cut(false)
		}
		<-time.After(10 * time.Second)
		if got := f.text(s, "agent_message_chunk"); got != "a b c d e f g h" {
			t.Errorf("text %q", got)
		}
		f.only()
		r.cut(true)
		if err := c.Respond(t.Context(), rpc.ApprovalParams{SessionID: frames.SessionID(s), ID: pending(t, c)[0], Outcome: frames.AllowedOnce}); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second)
		r.cut(false)
		if got := f.stop(ch); got != "end_turn" {
			t.Errorf("it ended %q", got)
		}
		if all, withdrawn := f.requests(); len(all) != 1 || withdrawn != 1 {
			t.Errorf("%d requests, %d withdrawn, want 1 and 1", len(all), withdrawn)
		}
		if got := f.text(s, "agent_message_chunk"); got != "a b c d e f g hend" {
			t.Errorf("text %q", got)
		}
	})
}

// A host that stays away ends the program: what the editor waits for is refused.
func TestHostThatStaysAwayEndsTheProgram(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		ch := f.say(f.open(r), "wait")
		synctest.Wait()
		began := time.Now()
		r.cut(true)
		if got := f.stop(ch); !strings.Contains(got, "the host is gone") {
			t.Errorf("the prompt ended %q, want an error", got)
		}
		if err := <-f.done; !errors.Is(err, editor.ErrHostGone) {
			t.Errorf("Serve = %v, want ErrHostGone", err)
		}
		if d := time.Since(began); d < time.Minute || d > 2*time.Minute {
			t.Errorf("it ended after %v, want a minute", d)
		}
	})
}

// When the editor ends, its turn goes on, and what is pending stays so.
func TestEndOfInputDetaches(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		f.say(s, `run {"x":1}; say after`)
		f.only()
		began := time.Now()
		f.leave()
		if err := <-f.done; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("it ended after %v, want at once", d)
		}
		open := pending(t, c)
		if len(open) != 1 {
			t.Fatalf("%d wait, want 1", len(open))
		}
		if err := c.Respond(t.Context(), rpc.ApprovalParams{SessionID: frames.SessionID(s), ID: open[0], Outcome: frames.AllowedOnce}); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second)
		if v := view(t, c, s); len(v.Turns) != 1 || v.Turns[0].Reason != frames.TurnCompleted {
			t.Errorf("the turns: %+v", v.Turns)
		}
	})
}

// A session that is loaded is sent folded, before the answer, and then goes on; one that
// is resumed sends nothing of the past; --session sends it after the answer.
func TestLoadSendsTheSessionFolded(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		s := f.open(r)
		ch := f.say(s, `think hm; say one; run {"x":1}; plan p; say two`)
		f.choose(f.only(), "allowed-once")
		f.stop(ch)
		slow := f.say(s, "slowly x y z")
		<-time.After(1500 * time.Millisecond)

		next := r.edit("")
		next.must("session/load", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
		if got := next.text(s, "agent_message_chunk"); got != "onetwox y " {
			t.Errorf("at the answer the text is %q", got)
		}
		if got := next.text(s, "user_message_chunk"); !strings.HasSuffix(got, "say twoslowly x y z") {
			t.Errorf("the prompts are %q", got)
		}
		calls := next.seen(s, "tool_call", "tool_call_update")
		if len(calls) != 1 || calls[0].Status != "completed" || calls[0].text() != "allowed-once by reply" {
			t.Errorf("the calls are %+v", calls)
		}
		third := r.edit("")
		third.must("session/resume", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
		fourth := r.edit("", func(o *editor.Options) { o.Session = s })
		if got := fourth.open(r); got != s {
			t.Errorf("session/new opened %q, want %q", got, s)
		}
		f.stop(slow)
		synctest.Wait()
		for i, e := range []*fake{next, fourth} {
			if got := e.text(s, "agent_message_chunk"); got != "onetwox y z" {
				t.Errorf("editor %d: text %q", i, got)
			}
		}
		if got := third.text(s, "agent_message_chunk"); got != "x y z" {
			t.Errorf("resumed: text %q", got)
		}
		if other := fourth.open(r); other == s {
			t.Error("the second session/new opened the same session again")
		}
	})
}

// An editor that reads slowly gets a long history whole.
func TestSlowEditorGetsItAll(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		s := f.open(r)
		f.stop(f.say(s, strings.Repeat("say w;", 1500)))
		r.slow = true
		next := r.edit("")
		next.must("session/load", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
		if got := next.text(s, "agent_message_chunk"); got != strings.Repeat("w", 1500) {
			t.Errorf("%d bytes, want 1500", len(got))
		}
	})
}

// A closed session is not heard of any more and goes on; its prompts are answered.
func TestCloseDetaches(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		ch := f.say(s, `slowly a b; run {"x":1}`)
		<-time.After(4 * time.Second)
		f.only()
		f.must("session/close", map[string]string{"sessionId": s})
		if got := f.stop(ch); got != "cancelled" {
			t.Errorf("the prompt ended %q", got)
		}
		if _, withdrawn := f.requests(); withdrawn != 1 || len(pending(t, c)) != 1 {
			t.Errorf("%d withdrawn, %d wait in the host; want 1 and 1", withdrawn, len(pending(t, c)))
		}
		n := len(f.seen(s))
		prompt(t, c, s, "say more")
		<-time.After(time.Minute)
		if got := len(f.seen(s)); got != n {
			t.Errorf("%d updates after the close", got-n)
		}
		if _, err := f.call("session/prompt", map[string]any{"sessionId": s, "prompt": []int{}}); err == nil {
			t.Error("a prompt to a closed session was taken")
		}
	})
}

// set_mode changes the mode of the policy and keeps its rules; everybody is told.
func TestModeIsThePolicys(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		rules := []frames.Rule{{Tool: "rm", Decision: "deny"}}
		if _, err := c.Configure(t.Context(), rpc.ConfigureParams{SessionID: frames.SessionID(s), Policy: &frames.Policy{Rules: rules}}); err != nil {
			t.Fatal(err)
		}
		f.must("session/set_mode", map[string]string{"sessionId": s, "modeId": "deny"})
		synctest.Wait()
		if p := view(t, c, s).Policy; p.Mode != "deny" || len(p.Rules) != 1 {
			t.Errorf("the policy is %+v", p)
		}
		if got := f.seen(s, "current_mode_update"); len(got) != 1 || got[0].Mode != "deny" {
			t.Errorf("mode updates: %+v", got)
		}
		if _, err := f.call("session/set_mode", map[string]string{"sessionId": s, "modeId": "yolo"}); err == nil {
			t.Error("an unknown mode was taken")
		}
	})
}

// What is not offered, or comes too early, is refused with words.
func TestWhatIsNotOfferedIsRefused(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		for _, c := range []struct{ method, params, want string }{
			{"session/delete", `{}`, "not offered"},
			{"session/new", `{"cwd":"here"}`, "absolute"},
			{"session/load", `{"sessionId":"nobody","cwd":"/"}`, "nobody"},
			{"session/prompt", `{"sessionId":"nobody"}`, "not open here"},
			{"initialize", `{}`, "already"},
		} {
			_, err := f.call(c.method, json.RawMessage(c.params))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.method, err, c.want)
			}
		}
	})
}

// What an agent of the protocol said of a call arrives as it was; what version 1 has no
// word for, and what was said already, does not.
func TestAgentOfTheProtocolIsPassedOnAsItWas(t *testing.T) {
	asACP := func(c *host.Config) { c.Drivers = []agent.Driver{script{"acp"}} }
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit(`{"session":{"notices":{}}}`)
		s := f.open(r)
		f.stop(f.say(s, "raw"))
		var raws []string
		for _, u := range f.seen(s) {
			raws = append(raws, string(u.Raw))
		}
		got := strings.Join(raws, "\n")
		for _, want := range []string{
			`{"type":"diff","path":"/f","oldText":"a","newText":"b"}`, `"rawOutput":{"n":1}`, `"line":3`, `"vendor":{"k":"v"}`, `"from a terminal"`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"late","future":[1]}`, `"path":"/late"`, `{"sessionUpdate":"notice","severity":"info","title":"A word"}`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("it lacks %s:\n%s", want, got)
			}
		}
		for _, not := range []string{"terminalId", "twice", "future_kind"} {
			if strings.Contains(got, not) {
				t.Errorf("it has %s:\n%s", not, got)
			}
		}
		if strings.Count(got, `"done"`) != 1 {
			t.Errorf("the text is there more than once:\n%s", got)
		}
		next := r.edit("")
		next.must("session/load", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
		if got := next.seen(s, "tool_call"); len(got) != 1 || !strings.Contains(string(got[0].Raw), `"oldText":"a"`) {
			t.Errorf("loaded: %+v", got)
		}
	}, asACP)
}

// A log that was trimmed while the connection was away is sent from where the editor's
// picture ends: nothing is missing, nothing is there twice, the prompt's end is told.
func TestTrimmedLogIsCaughtUp(t *testing.T) {
	short := func(c *host.Config) { c.Retention = host.Retention{MaxEvents: 20} }
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		f.stop(f.say(s, "say before,"))
		ch := f.say(s, "slowly mine,")
		synctest.Wait()
		r.cut(true)
		var want strings.Builder
		want.WriteString("before,mine,")
		for i := range 20 {
			word := fmt.Sprintf("w%d,", i)
			want.WriteString(word)
			prompt(t, c, s, "say "+word)
			<-time.After(time.Second)
		}
		if v, err := c.History(t.Context(), rpc.HistoryParams{SessionID: frames.SessionID(s)}); err != nil || v.First < 30 {
			t.Fatalf("the log begins at %d, %v; want it trimmed", v.First, err)
		}
		r.cut(false)
		if got := f.stop(ch); got != "end_turn" {
			t.Errorf("the prompt ended %q", got)
		}
		<-time.After(time.Minute)
		if got := f.text(s, "agent_message_chunk"); got != want.String() {
			t.Errorf("text %q, want %q", got, want.String())
		}
	}, short)
}

// A host that cannot be reached is an answer to initialize, and the program's end.
func TestUnreachableHostIsTold(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		r.dark = true
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		done := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			done <- editor.Serve(context.WithoutCancel(t.Context()), editor.Options{In: inR, Out: outW, Dial: r.dial})
		})
		conn := acprpc.New(outR, inW, acprpc.Options{})
		conn.Run(func(acprpc.Inbound) {})
		if err := conn.Call(t.Context(), "initialize", map[string]any{"protocolVersion": 1}, nil); err == nil || !strings.Contains(err.Error(), "not reachable") {
			t.Errorf("initialize: %v, want that the host is not reachable", err)
		}
		if err := <-done; !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("Serve = %v, want ErrUnreachable", err)
		}
		conn.End(acprpc.ErrGone)
		conn.Wait()
		wg.Wait()
	})
}
