package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// busy is a turn with a tool call, an approval and a question open.
func busy(r *rig) turnFunc {
	return func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		if err := t.Emit(ctx, frames.ToolCall{CallID: "done", Name: "sh"}, frames.ToolResult{CallID: "done"}, frames.ToolCall{CallID: "c1", Name: "sh"}); err != nil {
			return agent.Result{}, err
		}
		if _, err := t.Ask(ctx, agent.Approval{Call: "done", Tool: frames.Tool{Name: "free"}, Input: []byte(`{}`)}); err != nil {
			return agent.Result{}, err
		}
		r.goes(func() { _, _ = t.Question(ctx, frames.Question{Question: "which?"}) })
		_, err := t.Ask(ctx, ask("c1", `{"command":"ls"}`))
		return agent.Result{}, err
	}
}

// After a crash the log is closed on open: what was asked is decided, an open
// tool call has an error result, the turn is interrupted. The session is idle
// and takes prompts.
func TestCrashIsRepaired(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", busy(r))
		sid := r.create(session.CreateArgs{Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "free", Decision: "allow"}}}})
		r.prompt(sid, "go")
		r.wait()
		id := r.approvals(sid)[0].ID
		before := len(r.log(sid))
		r.crash()
		got := r.types(sid)[before:]
		want := map[string]int{"tool/result": 1, "question/decided": 1, "approval/decided": 1, "turn/end": 1}
		for _, e := range got {
			want[e]--
		}
		for e, n := range want {
			if n != 0 {
				t.Errorf("repair wrote %v: %s is off by %d", got, e, n)
			}
		}
		if got[len(got)-1] != "turn/end" {
			t.Errorf("repair wrote %v, want turn/end last", got)
		}
		if d := last[frames.ApprovalDecided](r, sid); d.ID != id || d.Outcome != frames.Cancelled || d.Origin != frames.CauseShutdown {
			t.Errorf("decided %+v, want cancelled/shutdown", d)
		}
		if res := last[frames.ToolResult](r, sid); res.CallID != "c1" || !res.IsError || res.ErrorCode != "interrupted" {
			t.Errorf("result %+v, want c1 interrupted", res)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnInterrupted {
			t.Errorf("end %+v, want interrupted", end)
		}
		if s, _ := r.m.Get(sid); s.State != frames.StateIdle || s.Pending != 0 || s.Head != frames.Seq(len(r.log(sid))) {
			t.Errorf("summary %+v, want idle at the head", s)
		}
		err := r.answer(sid, id, frames.AllowedOnce)
		if e, ok := errors.AsType[*pending.NotPendingError](err); !ok || e.Settled == nil || e.Settled.Cause != frames.CauseShutdown {
			t.Errorf("late answer: %v, want not pending, settled by shutdown", err)
		}
		r.prompt(sid, "next")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the next turn ended %+v", end)
		}
		if n := len(every[frames.SessionResumed](r, sid)); n != 1 {
			t.Errorf("%d session/resumed, want one", n)
		}
	})
}

// Repair runs once: a second start writes nothing.
func TestRepairIsIdempotent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", busy(r))
		sid := r.create(session.CreateArgs{Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "free", Decision: "allow"}}}})
		r.prompt(sid, "go")
		r.wait()
		r.crash()
		head := len(r.log(sid))
		r.crash()
		if got := len(r.log(sid)); got != head {
			t.Errorf("head = %d after a second start, want %d", got, head)
		}
	})
}

// A crash with running children leaves every log closed: the parent's says that
// the child was interrupted.
func TestCrashWithChildrenIsRepaired(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("kid"))
		r.agent.on("kid", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		kid := r.children(sid)[0]
		r.crash()
		r.wantTypes(sid, "turn/start", "user/message", "agent/spawned", "agent/completed", "turn/end")
		if c := last[frames.AgentCompleted](r, sid); c.ChildSessionID != kid || c.Status != "interrupted" {
			t.Errorf("completed %+v, want the child interrupted", c)
		}
		if end := last[frames.TurnEnd](r, kid); end.Reason != frames.TurnInterrupted {
			t.Errorf("the child ended %+v, want interrupted", end)
		}
		if ss, _, _ := r.m.List(session.Filter{State: frames.StateRunning}); len(ss) != 0 {
			t.Errorf("running after a restart: %+v", ss)
		}
		if ss, _, _ := r.m.List(session.Filter{Roots: true}); len(ss) != 1 || ss[0].SessionID != sid {
			t.Errorf("roots after a restart: %+v", ss)
		}
	})
}

// A session that cannot be repaired at the start is when it is first touched.
func TestRepairIsTriedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.disk.fail(store.ErrClosed)
		r.stop()
		was := r.tweak
		r.tweak = func(c *session.Config) {
			was(c)
			c.Store.(*disk).lost = store.ErrFull
		}
		r.start()
		if n := len(every[frames.TurnEnd](r, sid)); n != 0 {
			t.Fatalf("%d turns ended though nothing could be stored", n)
		}
		r.prompt(sid, "next")
		r.wait()
		if ends := every[frames.TurnEnd](r, sid); len(ends) != 2 || ends[0].Reason != frames.TurnInterrupted {
			t.Errorf("ends %+v, want interrupted and completed", ends)
		}
	})
}

// A steer that no turn took before a crash becomes a turn of its own.
func TestSteerSurvivesACrash(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.prompt(sid, "left", mode(frames.ModeSteer), withID("s1"))
		r.wait()
		r.crash()
		r.agent.on("left", hang)
		r.prompt(sid, "next")
		r.wait()
		r.cancel(sid, "", true)
		r.wait()
		if got := said(r, sid); len(got) != 3 || got[1] != "left" || got[2] != "next" {
			t.Errorf("turns for %v, want go, left, next", got)
		}
		for _, e := range r.log(sid) {
			if e.Type == frames.TurnStartEvent && e.TurnID == "" {
				t.Errorf("turn %d has no id", e.Seq)
			}
		}
	})
}

// A crash at any append of a repair, however much there is to close, leaves
// nothing closed twice and nothing open.
func TestRepairInterruptedAnywhereClosesOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		const many = 150 // of each
		r.agent.on("kid", hang)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for i := range many {
				_ = t.Emit(ctx, frames.ToolCall{CallID: frames.CallID(fmt.Sprint("c", i)), Name: "sh"})
				_, _ = t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
				if _, err := t.Task(ctx, "build", "make"); (err != nil) != (i >= 64) {
					r.t.Errorf("task %d: %v, want 64 of them", i, err)
				}
			}
			return hang(ctx, t, agent.Prompt{})
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		was, crashes := r.tweak, 0
		r.tweak = func(c *session.Config) {
			was(c)
			d := c.Store.(*disk)
			d.after, d.late = 1, store.ErrClosed
			if crashes == 0 {
				d.after += many // the children come first
			}
		}
		for ; crashes < 8; crashes++ {
			r.crash()
		}
		r.tweak = was
		r.crash()
		for what, n := range map[string][2]int{
			"children": {len(every[frames.AgentSpawned](r, sid)), len(every[frames.AgentCompleted](r, sid))},
			"tasks":    {len(every[frames.TaskStarted](r, sid)), len(every[frames.TaskCompleted](r, sid))},
			"calls":    {len(every[frames.ToolCall](r, sid)), len(every[frames.ToolResult](r, sid))},
			"turns":    {len(every[frames.TurnStart](r, sid)), len(every[frames.TurnEnd](r, sid))},
		} {
			if n[0] == 0 || n[0] != n[1] {
				t.Errorf("%s: %d began, %d ended", what, n[0], n[1])
			}
		}
	})
}
