package session_test

import (
	"context"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// A prompt of an idle session starts its turn at once, and everything that it
// says is stored in order.
func TestPromptRunsATurn(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		a := r.prompt(sid, "hello")
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "assistant/message", "turn/end")
		if a.Queued || a.Turn == "" || a.ID == "" {
			t.Errorf("answer = %+v, want ids and not queued", a)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("turn/end reason = %q, want completed", end.Reason)
		}
		if st := r.pub.status(sid); st.State != frames.StateIdle {
			t.Errorf("status = %+v, want idle", st)
		}
	})
}

// What an agent asks waits for a person; the answer is what the agent hears,
// with the frozen input.
func TestAskWaitsForAPerson(t *testing.T) {
	bubble(t, func(r *rig) {
		var got agent.Decision
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			var err error
			got, err = t.Ask(ctx, ask("c1", `{"command":"ls"}`))
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		as := r.approvals(sid)
		if len(as) != 1 {
			t.Fatalf("pending = %v, want one", as)
		}
		if st := r.pub.status(sid); st.State != frames.StateRequiresAction || st.Pending != 1 {
			t.Errorf("status = %+v, want requires-action with 1 pending", st)
		}
		if err := r.answer(sid, as[0].ID, frames.AllowedOnce); err != nil {
			t.Fatal(err)
		}
		r.wait()
		if !got.Allowed() || string(got.Input) != `{"command":"ls"}` {
			t.Errorf("decision = %+v, want allowed with the input", got)
		}
		r.wantTypes(sid, "turn/start", "user/message", "approval/asked", "approval/decided", "turn/end")
	})
}
