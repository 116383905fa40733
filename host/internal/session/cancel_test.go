package session_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// A cancelled turn ends cancelled, and the session goes on.
func TestCancelEndsTheTurn(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		a := r.prompt(sid, "go")
		r.wait()
		if !r.cancel(sid, a.Turn, true) {
			t.Error("cancelled = false, want true")
		}
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCancelled {
			t.Errorf("reason = %q, want cancelled", end.Reason)
		}
		if r.cancel(sid, a.Turn, true) || r.cancel(sid, "", true) {
			t.Error("a turn that is over was cancelled again")
		}
	})
}

// Two cancels of one turn do not reach the turn after it.
func TestSecondCancelSparesTheNextTurn(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			<-ctx.Done()
			time.Sleep(second) // it takes its time to stop
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.goes(func() { r.cancel(sid, "", true) })
		r.goes(func() { r.cancel(sid, "", true) })
		r.wait()
		r.prompt(sid, "next")
		time.Sleep(2 * second)
		r.wait()
		ends := every[frames.TurnEnd](r, sid)
		if len(ends) != 2 || ends[0].Reason != frames.TurnCancelled || ends[1].Reason != frames.TurnCompleted {
			t.Errorf("turns ended %+v, want cancelled and completed", ends)
		}
	})
}

// A queued prompt is cancelled by its turn id; the running turn is not.
func TestCancelOfAQueuedPrompt(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		q := r.prompt(sid, "second")
		r.wait()
		if !r.cancel(sid, q.Turn, true) {
			t.Error("cancelled = false, want true")
		}
		if d := last[frames.PromptDequeued](r, sid); d.PromptID != q.ID || d.Reason != "cancelled" {
			t.Errorf("dequeued %+v", d)
		}
		if st := r.pub.status(sid); st.State != frames.StateRunning {
			t.Errorf("status %+v, want running", st)
		}
		if r.cancel(sid, q.Turn, true) {
			t.Error("it was cancelled twice")
		}
	})
}

// Everything pending in a cancelled turn is settled before the turn's end is in
// the log, and what it asks afterwards is settled unasked.
func TestCancelSettlesWhatIsPending(t *testing.T) {
	bubble(t, func(r *rig) {
		late := make(chan agent.Decision, 1)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 3 {
				r.goes(func() { _, _ = t.Ask(ctx, ask("c", `{}`)) })
			}
			<-ctx.Done()
			d, err := t.Ask(context.WithoutCancel(ctx), ask("c", `{}`))
			if err != nil {
				return agent.Result{}, err
			}
			late <- d
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		if n := len(r.approvals(sid)); n != 3 {
			t.Fatalf("%d pending, want 3", n)
		}
		r.cancel(sid, "", true)
		r.wait()
		for _, d := range every[frames.ApprovalDecided](r, sid) {
			if d.Outcome != frames.Cancelled || d.Origin != frames.CauseAbort {
				t.Errorf("decided %+v, want cancelled/abort", d)
			}
		}
		if d := <-late; d.Outcome != frames.Cancelled {
			t.Errorf("a late ask got %+v, want cancelled", d)
		}
		ts := r.types(sid)
		if n := len(every[frames.ApprovalDecided](r, sid)); n != 4 || ts[len(ts)-1] != "turn/end" {
			t.Errorf("%d decided and then %v, want 4 and turn/end last", n, ts)
		}
		if n := len(framesOf[*frames.ApprovalRequested](r.pub, sid)); n != 3 {
			t.Errorf("%d cards were shown, want 3", n)
		}
	})
}

// What a turn leaves open is closed before its end: text as a partial message,
// tools with an error.
func TestEndClosesWhatIsOpen(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			b, rb := t.NewBlock(), t.NewBlock()
			_ = t.Text(ctx, b, "half a ")
			_ = t.Text(ctx, b, "sentence")
			_ = t.Reasoning(ctx, rb, "a thought")
			_ = t.Emit(ctx, frames.ToolCall{CallID: "c1", Name: "sh"})
			return hang(ctx, t, agent.Prompt{})
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.cancel(sid, "", true)
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "tool/call", "assistant/message", "reasoning/message", "tool/result", "turn/end")
		if m := last[frames.AssistantMessage](r, sid); !m.Partial || m.Content[0].Text != "half a sentence" {
			t.Errorf("message %+v, want the partial text", m)
		}
		if res := last[frames.ToolResult](r, sid); !res.IsError || res.ErrorCode != "cancelled" {
			t.Errorf("result %+v, want the error cancelled", res)
		}
	})
}

// An agent that does not stop is given up after the close timeout; the session
// stays usable.
func TestStubbornAgentIsGivenUp(t *testing.T) {
	bubble(t, func(r *rig) {
		release := make(chan struct{})
		r.agent.on("go", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) {
			<-release
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		start := time.Now()
		r.cancel(sid, "", true)
		r.prompt(sid, "next")
		time.Sleep(agent.CloseTimeout + second)
		r.wait()
		if ends := every[frames.TurnEnd](r, sid); len(ends) != 2 || ends[0].Reason != frames.TurnCancelled || ends[1].Reason != frames.TurnCompleted {
			t.Errorf("after %v turns ended %+v, want cancelled and completed", time.Since(start), ends)
		}
		if n := len(framesOf[*frames.AgentError](r.pub, sid)); n != 1 {
			t.Errorf("%d agent errors, want one", n)
		}
		close(release)
	})
}

// A crash of the agent ends its turn with an error and nothing else; the next
// prompt gets a new agent.
func TestPanicIsContained(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_ = t.Emit(ctx, frames.ToolCall{CallID: "c1", Name: "sh"})
			panic("boom")
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnError || end.Message == "" {
			t.Errorf("end %+v, want an error with a message", end)
		}
		if res := last[frames.ToolResult](r, sid); res.ErrorCode != "error" {
			t.Errorf("result %+v, want the error", res)
		}
		if n := len(framesOf[*frames.AgentError](r.pub, sid)); n != 1 {
			t.Errorf("%d agent errors, want one", n)
		}
		if r.cancel(sid, "", true) {
			t.Error("there was something to cancel")
		}
		r.prompt(sid, "next")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the next turn ended %+v", end)
		}
		if opened, closed := r.agent.count(); opened != 2 || closed != 1 {
			t.Errorf("opened %d, closed %d agents, want 2 and 1", opened, closed)
		}
	})
}

// An agent that cannot start ends the prompt's turn with an error; the session
// stays usable.
func TestAgentThatCannotStart(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.openErr = context.DeadlineExceeded
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnError {
			t.Errorf("end %+v, want an error", end)
		}
		if n := len(framesOf[*frames.AgentError](r.pub, sid)); n != 1 {
			t.Errorf("%d agent errors, want one", n)
		}
		r.agent.mu.Lock()
		r.agent.openErr = nil
		r.agent.mu.Unlock()
		r.prompt(sid, "next")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the next turn ended %+v", end)
		}
	})
}

// The response to a call is placed before anything that the call caused is
// published.
func TestResponsesPrecedeWhatTheyCause(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.cancel(sid, "", true)
		r.wait()
		id := string(sid)
		got := slices.DeleteFunc(r.pub.script(), func(s string) bool { return s == "host/agent-error "+id })
		want := []string{
			"placed " + id, "add " + id, "placed " + id, "turn/start " + id, "user/message " + id,
			"placed " + id, "turn/end " + id,
		}
		// The first placed comes before the session is known to the publisher.
		if !slices.Equal(got, want) {
			t.Errorf("order:\n got %v\nwant %v", got, want)
		}
	})
}
