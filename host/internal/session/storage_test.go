package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// A call that cannot be stored fails and changes nothing; when there is space
// again it succeeds.
func TestFailedCallChangesNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.disk.fail(store.ErrFull)
		_, err := r.tryPrompt(sid, "hello", withID("p1"))
		if _, ok := errors.AsType[*session.StorageError](err); !ok || !errors.Is(err, store.ErrFull) {
			t.Errorf("err = %v, want a StorageError of ErrFull", err)
		}
		if err := r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir}, nil); !errors.Is(err, store.ErrFull) {
			t.Errorf("create: %v, want ErrFull", err)
		}
		if s, _ := r.m.Get(sid); s.Head != 1 || s.State != frames.StateIdle {
			t.Errorf("summary %+v, want untouched", s)
		}
		if ss, _, _ := r.m.List(session.Filter{}); len(ss) != 1 {
			t.Errorf("%d sessions, want one", len(ss))
		}
		r.disk.fail(nil)
		r.prompt(sid, "hello", withID("p1"))
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "assistant/message", "turn/end")
	})
}

// An append whose outcome was unknown and that landed is as good as any.
func TestUnknownThatLandedCounts(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.disk.set(func(d *disk) { d.landed = store.ErrUnknown })
		r.prompt(sid, "hello")
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "assistant/message", "turn/end")
		if got := len(r.pub.events(sid)); got != 4 {
			t.Errorf("%d events were published, want 4", got)
		}
	})
}

// An append whose outcome was unknown and that did not land failed.
func TestUnknownThatDidNotLandFails(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.disk.set(func(d *disk) { d.lost = store.ErrUnknown })
		if _, err := r.tryPrompt(sid, "hello"); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("err = %v, want ErrUnknown", err)
		}
		r.wantTypes(sid)
		if got := len(r.pub.events(sid)); got != 0 {
			t.Errorf("%d events were published, want none", got)
		}
	})
}

// Where not even the head can be read, the next step finds out: what landed is
// published then, in order.
func TestLimboIsResolvedLater(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed=", landed), func(t *testing.T) {
			bubble(t, func(r *rig) {
				sid := r.create(session.CreateArgs{})
				r.disk.set(func(d *disk) {
					d.blind = store.ErrUnknown
					if landed {
						d.landed = store.ErrUnknown
					} else {
						d.lost = store.ErrUnknown
					}
				})
				if _, err := r.tryPrompt(sid, "hello", withID("p1")); !errors.Is(err, store.ErrUnknown) {
					t.Errorf("err = %v, want ErrUnknown", err)
				}
				r.disk.set(func(d *disk) { d.blind = nil })
				r.prompt(sid, "hello", withID("p1"))
				r.prompt(sid, "more")
				r.wait()
				if got := said(r, sid); !slices.Equal(got, []string{"hello", "more"}) {
					t.Errorf("turns for %v, want hello and more once each", got)
				}
				if got, want := len(r.pub.events(sid)), len(r.log(sid))-1; got != want {
					t.Errorf("%d events were published, want %d", got, want)
				}
			})
		})
	}
}

// When a running turn can no longer be stored its agent is stopped, clients are
// told, and once there is space the log is closed and the session usable.
func TestFullDiskEndsTheTurnAndHeals(t *testing.T) {
	bubble(t, func(r *rig) {
		failed := make(chan error, 1)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_ = t.Emit(ctx, frames.ToolCall{CallID: "c1", Name: "sh"})
			r.disk.fail(store.ErrFull)
			failed <- t.Emit(ctx, frames.TodoWrite{})
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		if err := <-failed; !errors.Is(err, store.ErrFull) {
			t.Errorf("emit: %v, want ErrFull", err)
		}
		if n := len(framesOf[*frames.AgentError](r.pub, sid)); n != 1 {
			t.Errorf("%d agent errors, want one", n)
		}
		if _, err := r.tryPrompt(sid, "early"); !errors.Is(err, store.ErrFull) {
			t.Errorf("prompt while full: %v, want ErrFull", err)
		}
		time.Sleep(5 * time.Minute)
		r.disk.fail(nil)
		time.Sleep(30 * second)
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "tool/call", "tool/result", "turn/end")
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnError {
			t.Errorf("end %+v, want an error", end)
		}
		r.prompt(sid, "next")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the next turn ended %+v", end)
		}
	})
}

// A command does not wait for the next try: it heals the session first.
func TestCommandHealsAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			r.disk.fail(store.ErrFull)
			return agent.Result{}, t.Emit(ctx, frames.TodoWrite{})
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		time.Sleep(time.Minute)
		r.disk.fail(nil)
		r.prompt(sid, "next")
		r.wait()
		if got := said(r, sid); len(got) != 2 {
			t.Errorf("turns for %v, want two", got)
		}
	})
}

// An allow that cannot be stored is none: the agent gets a no, the caller
// storage-failed, everybody else unavailable.
func TestAllowThatCannotBeStoredIsNone(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 1)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			d, err := t.Ask(ctx, ask("c1", `{}`))
			got <- d
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.disk.fail(store.ErrFull)
		placed := false
		err := r.m.Answer(r.t.Context(), pending.Answer{Session: sid, ID: r.approvals(sid)[0].ID, Kind: pending.KindApproval, Outcome: frames.AllowedOnce}, func() { placed = true })
		if _, ok := errors.AsType[*pending.StorageError](err); !ok || placed {
			t.Errorf("answer: %v, placed %v; want a StorageError and no response", err, placed)
		}
		if d := <-got; d.Allowed() || d.Outcome != frames.Unavailable {
			t.Errorf("the agent got %+v, want unavailable", d)
		}
		r.wait()
		res := framesOf[*frames.ApprovalResolved](r.pub, sid)
		if len(res) != 1 || res[0].Outcome != frames.Unavailable || res[0].Origin != frames.CauseAbort {
			t.Errorf("resolved %+v, want unavailable/abort once", res)
		}
		r.disk.fail(nil)
		time.Sleep(time.Minute)
		r.wait()
		if d := last[frames.ApprovalDecided](r, sid); d.Outcome != frames.Unavailable {
			t.Errorf("the log says %+v, want unavailable", d)
		}
	})
}

// A rejection stands at once, though it could not be stored; the caller is told
// both, and the log says so later.
func TestRejectionStandsThoughTheDiskIsFull(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 1)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			d, err := t.Ask(ctx, ask("c1", `{}`))
			got <- d
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.disk.fail(store.ErrFull)
		err := r.answer(sid, r.approvals(sid)[0].ID, frames.Rejected)
		if e, ok := errors.AsType[*pending.StorageError](err); !ok || !e.Stands {
			t.Errorf("answer: %v, want a StorageError that says that it stands", err)
		}
		if d := <-got; d.Outcome != frames.Rejected || d.Cause != frames.CauseReply {
			t.Errorf("the agent got %+v, want rejected/reply", d)
		}
		r.disk.fail(nil)
		time.Sleep(time.Minute)
		r.wait()
		if d := last[frames.ApprovalDecided](r, sid); d.Outcome != frames.Rejected {
			t.Errorf("the log says %+v, want rejected", d)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("end %+v, want completed", end)
		}
	})
}

// A child's end that could not be told to the parent's log is told later.
func TestChildsEndIsToldLater(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
			return agent.Result{}, err
		})
		r.agent.on("kid", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			err := pause(ctx, second)
			r.disk.fail(store.ErrFull)
			return agent.Result{}, err
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		time.Sleep(time.Minute)
		r.disk.fail(nil)
		time.Sleep(time.Minute)
		r.wait()
		if c := last[frames.AgentCompleted](r, sid); c.Status != "completed" {
			t.Errorf("completed %+v", c)
		}
	})
}

// A queued prompt whose start could not be stored starts once there is space.
func TestQueueGoesOnAfterAFullDisk(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, pause(ctx, second)
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.prompt(sid, "queued")
		r.disk.set(func(d *disk) { d.after, d.late = 1, store.ErrFull })
		time.Sleep(2 * second)
		r.wait()
		if got := said(r, sid); len(got) != 1 {
			t.Fatalf("turns for %v, want the first only", got)
		}
		r.disk.set(func(d *disk) { d.err = nil })
		time.Sleep(time.Minute)
		r.wait()
		if got := said(r, sid); len(got) != 2 {
			t.Errorf("turns for %v, want both", got)
		}
	})
}
