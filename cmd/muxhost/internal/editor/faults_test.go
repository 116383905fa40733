package editor_test

import (
	"context"
	"encoding/json"
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
	"github.com/muxhost/muxhost/rpc"
)

// load opens a session that there is.
func (f *fake) load(r *rig, session string) {
	f.t.Helper()
	f.must("session/load", map[string]any{"sessionId": session, "cwd": r.cwd, "mcpServers": []int{}})
}

// A large prompt is taken, or refused once with words, whatever letters it has; it never
// breaks the connection.
func TestLargePromptIsTakenOrRefused(t *testing.T) {
	for _, c := range []struct {
		letter, want string
		kib          int
	}{{"x", "end_turn", 190}, {"<", "end_turn", 190}, {"x", "at most 196608 are taken", 500}, {"\x01", "too-large", 190}} {
		virtual(t, func(t *testing.T, r *rig) {
			f := r.edit("")
			s := f.open(r)
			if got := f.stop(f.say(s, "end completed;"+strings.Repeat(c.letter, c.kib<<10))); !strings.Contains(got, c.want) {
				t.Errorf("%d KiB of %q: it ended %q, want %q", c.kib, c.letter, got, c.want)
			}
			if got := f.stop(f.say(s, "say more")); got != "end_turn" {
				t.Errorf("%d KiB of %q: the next prompt ended %q", c.kib, c.letter, got)
			}
		})
	}
}

// Many parts that are small alone are taken together.
func TestManyPartsAreTaken(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		s := f.open(r)
		parts := []any{map[string]string{"type": "text", "text": "say hello"}}
		for i := range 8 {
			parts = append(parts, map[string]any{
				"type": "resource", "resource": map[string]string{"uri": fmt.Sprintf("file:///f%d", i), "text": strings.Repeat("<a>", 20<<10)},
			})
		}
		_, ch := f.conn.Start("session/prompt", map[string]any{"sessionId": s, "prompt": parts})
		if got := f.stop(ch); got != "end_turn" {
			t.Errorf("it ended %q", got)
		}
	})
}

// A call that ended in a part of the log that was trimmed unseen is told of.
func TestCallThatEndedUnseenIsTold(t *testing.T) {
	short := func(c *host.Config) { c.Retention = host.Retention{MaxEvents: 20} }
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		ch := f.say(s, `run {"x":1}`)
		f.only()
		r.cut(true)
		if err := c.Respond(t.Context(), rpc.ApprovalParams{SessionID: frames.SessionID(s), ID: pending(t, c)[0], Outcome: frames.AllowedOnce}); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			prompt(t, c, s, fmt.Sprintf("say w%d", i))
			<-time.After(time.Second)
		}
		r.cut(false)
		f.stop(ch)
		<-time.After(time.Minute)
		if got := f.seen(s, "tool_call_update"); len(got) != 1 || got[0].Status != "completed" || got[0].text() != "allowed-once by reply" {
			t.Errorf("of the call: %+v", got)
		}
	}, short)
}

// A session that is closed and loaded again at once is open.
func TestClosedSessionIsLoadedAgainAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		s := f.open(r)
		for range 50 {
			_, closed := f.conn.Start("session/close", map[string]string{"sessionId": s})
			_, loaded := f.conn.Start("session/load", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
			if a, b := <-closed, <-loaded; a.Err != nil || b.Err != nil {
				t.Fatalf("close: %v, load: %v", a.Err, b.Err)
			}
			if got := f.stop(f.say(s, "say hello")); got != "end_turn" {
				t.Fatalf("a prompt ended %q", got)
			}
		}
	})
}

// A session below one that is closed is closed too: its prompt is answered.
func TestCloseAnswersPromptsOfSessionsBelow(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit(`{"subagents":{}}`)
		s := f.open(r)
		f.stop(f.say(s, "spawn say hello"))
		child := f.seen(s, "subagent_update")[0].Child
		f.load(r, child)
		ch := f.say(child, "wait")
		synctest.Wait()
		f.must("session/close", map[string]string{"sessionId": s})
		select {
		case <-ch:
		case <-time.After(time.Minute):
			t.Error("the prompt has no answer")
		}
	})
}

// An answer that the editor gives as its last word counts.
func TestLastWordOfAnEditorCounts(t *testing.T) {
	for range 20 {
		virtual(t, func(t *testing.T, r *rig) {
			f, c := r.edit(""), r.other()
			s := f.open(r)
			f.say(s, `run {"x":1}`)
			in := f.only()
			f.choose(in, "allowed-once")
			f.leave()
			<-f.done
			if d := decided(view(t, c, s)); d == nil || d.Outcome != frames.AllowedOnce {
				t.Errorf("decided %+v, want allowed-once", d)
			}
		})
	}
}

// An editor that does not read, says more and leaves is noticed.
func TestDeafEditorThatLeavesIsNoticed(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		first := r.edit("")
		s := first.open(r)
		first.stop(first.say(s, strings.Repeat("say w;", 1500)))
		in, say := io.Pipe()
		deaf, out := io.Pipe() // nobody reads
		defer deaf.Close()
		done := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer func() { stop(); wg.Wait() }()
		wg.Go(func() { done <- editor.Serve(ctx, editor.Options{In: in, Out: out, Dial: r.dial}) })
		write := func(line string) {
			if _, err := io.WriteString(say, line+"\n"); err != nil {
				t.Error(err)
			}
		}
		write(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`)
		buf := make([]byte, 1)
		for _, _ = deaf.Read(buf); buf[0] != '\n'; _, _ = deaf.Read(buf) {
		}
		write(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":%q,"cwd":"/"}}`, s))
		synctest.Wait()
		write(strings.Repeat(`{"jsonrpc":"2.0","id":3,"method":"session/list","params":{}}`+"\n", 5))
		say.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve = %v, want nil", err)
			}
		case <-time.After(time.Hour):
			t.Error("the program goes on")
		}
	})
}

// A prompt that is cancelled while the host refuses it ends cancelled.
func TestCancelledPromptThatIsRefusedIsCancelled(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		r.cut(true)
		ch := f.say(s, "say one")
		synctest.Wait()
		f.conn.Notify("session/cancel", map[string]string{"sessionId": s})
		if err := c.Delete(t.Context(), frames.SessionID(s), true); err != nil {
			t.Fatal(err)
		}
		r.cut(false)
		if got := f.stop(ch); got != "cancelled" {
			t.Errorf("it ended %q, want cancelled", got)
		}
	})
}

// A prompt that was taken out of the queue in a part of the log that was trimmed unseen is
// answered.
func TestPromptDequeuedUnseenIsAnswered(t *testing.T) {
	short := func(c *host.Config) { c.Retention = host.Retention{MaxEvents: 20} }
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		running := prompt(t, c, s, "wait")
		ch := f.say(s, "say mine")
		synctest.Wait()
		r.cut(true)
		queued := view(t, c, s).Queue()[0]
		for _, turn := range []frames.TurnID{queued.TurnID, running.TurnID} {
			if _, err := c.Cancel(t.Context(), rpc.CancelParams{SessionID: frames.SessionID(s), TurnID: turn}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			prompt(t, c, s, fmt.Sprintf("say w%d", i))
			<-time.After(time.Second)
		}
		r.cut(false)
		<-time.After(5 * time.Minute)
		select {
		case r := <-ch:
			if !strings.Contains(string(r.Result), "cancelled") {
				t.Errorf("it ended %s, %v; want cancelled", r.Result, r.Err)
			}
		default:
			t.Error("the prompt has no answer")
		}
	}, short)
}

// Params that are left out are none; what is wrong with others is said in words.
func TestParamsMayBeLeftOut(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		for _, c := range []struct{ method, params, want string }{
			{"session/list", `null`, ""},
			{"session/load", `null`, "session"},
			{"session/prompt", `[]`, "params is a JSON array"},
			{"session/new", `{"cwd":5}`, "cwd is a JSON number"},
		} {
			_, err := f.call(c.method, json.RawMessage(c.params))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.method, err, c.want)
			}
		}
	})
}

// Notices are for what happens now: in a session that is loaded, an error is a message.
func TestNoticesAreNotReplayed(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit(`{"session":{"notices":{}}}`)
		s := f.open(r)
		f.stop(f.say(s, "trouble here"))
		if got := f.seen(s, "notice"); len(got) != 1 || !strings.Contains(got[0].Title, "here") {
			t.Errorf("notices: %+v", got)
		}
		next := r.edit(`{"session":{"notices":{}}}`)
		next.load(r, s)
		if got := next.seen(s, "notice"); len(got) != 0 {
			t.Errorf("notices of the past: %+v", got)
		}
		if got := next.text(s, "agent_message_chunk"); !strings.Contains(got, "here") {
			t.Errorf("text %q, want the error", got)
		}
	})
}

// A session that is deleted under the editor takes its requests back, and answers its
// prompt.
func TestDeletedSessionLeavesNothingOpen(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		ch, waits := f.say(s, `run {"x":1}`), f.say(s, "say two")
		f.only()
		if err := c.Delete(t.Context(), frames.SessionID(s), true); err != nil {
			t.Fatal(err)
		}
		if a, b := f.stop(ch), f.stop(waits); a == "" || b == "" || a == "end_turn" || b == "end_turn" {
			t.Errorf("the prompts ended %q and %q", a, b)
		}
		if _, withdrawn := f.requests(); withdrawn != 1 {
			t.Errorf("%d withdrawn, want 1", withdrawn)
		}
		if other := f.open(r); other == s {
			t.Error("the deleted session was opened again")
		}
	})
}

// A session that the options name and that cannot be had is refused each time: no other
// takes its place.
func TestNamedSessionIsNotReplaced(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("", func(o *editor.Options) { o.Session = "nobody" })
		for range 2 {
			if got, err := f.call("session/new", map[string]any{"cwd": r.cwd, "mcpServers": []int{}}); err == nil {
				t.Errorf("session/new opened %s", got)
			}
		}
	})
}

// Commands that are advised reach the host that the editor uses.
func TestAdviceNamesTheHost(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit("", func(o *editor.Options) { o.Hint = " --state-dir X" }), r.other()
		s := f.open(r)
		f.say(s, "ask")
		synctest.Wait()
		if got, want := f.text(s, "agent_message_chunk"), fmt.Sprintf("muxhost answer %s --state-dir X\n", pending(t, c)[0]); !strings.HasSuffix(got, want) {
			t.Errorf("it was told %q, want %q", got, want)
		}
	})
}

// What was seen of two blocks at once is not repeated when their turn ended in a part of the
// log that was trimmed unseen.
func TestBlocksThatEndedUnseenAreNotRepeated(t *testing.T) {
	short := func(c *host.Config) { c.Retention = host.Retention{MaxEvents: 20} }
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		f.stop(f.say(s, "say before,"))
		ch := f.say(s, "both a b c d,")
		<-time.After(2500 * time.Millisecond)
		r.cut(true)
		var want strings.Builder
		want.WriteString("before,a b c d,")
		for i := range 20 {
			word := fmt.Sprintf("w%d,", i)
			want.WriteString(word)
			prompt(t, c, s, "say "+word)
			<-time.After(time.Second)
		}
		r.cut(false)
		f.stop(ch)
		<-time.After(time.Minute)
		if got := f.text(s, "agent_message_chunk"); got != want.String() {
			t.Errorf("text %q, want %q", got, want.String())
		}
		if got := f.text(s, "agent_thought_chunk"); got != "a b c d," {
			t.Errorf("thoughts %q", got)
		}
	}, short)
}

// A session that is closed while it is loaded is closed.
func TestSessionIsClosedWhileItIsLoaded(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		first, c := r.edit(""), r.other()
		s := first.open(r)
		first.stop(first.say(s, "say hello"))
		f := r.edit("")
		_, loaded := f.conn.Start("session/load", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
		_, closed := f.conn.Start("session/close", map[string]string{"sessionId": s})
		<-loaded
		if got := <-closed; got.Err != nil {
			t.Errorf("close: %v", got.Err)
		}
		synctest.Wait()
		n := len(f.seen(s))
		prompt(t, c, s, "say more")
		<-time.After(time.Minute)
		if got := len(f.seen(s)); got != n {
			t.Errorf("%d updates after the close", got-n)
		}
		f.load(r, s)
		if got := f.text(s, "agent_message_chunk"); !strings.HasSuffix(got, "hellomore") {
			t.Errorf("loaded again: %q", got)
		}
	})
}
