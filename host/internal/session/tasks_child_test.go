package session_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// A child session is a task of its parent from its start to the end of its first
// turn, and cancelling it ends that turn with all below.
func TestAChildIsATask(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("mid", "quick", "bad"))
		r.agent.on("mid", spawns("leaf"))
		r.agent.on("leaf", hang)
		r.agent.on("bad", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) {
			return agent.Result{Reason: frames.TurnMaxSteps, Message: "10 steps"}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		kids := r.children(sid)
		ts := r.tasks(session.TaskFilter{Session: sid})
		if got, want := states(ts), []string{"scripted running", "scripted completed", "scripted failed: max-steps: 10 steps"}; !slices.Equal(got, want) {
			t.Fatalf("tasks: %v, want %v", got, want)
		}
		mid := ts[0]
		if mid.Kind != "agent" || mid.Child != kids[0] || string(mid.ID) != string(kids[0]) || mid.Session != sid || mid.Turn == "" {
			t.Errorf("task = %+v, want the child %s of %s", mid, kids[0], sid)
		}
		if n := len(r.tasks(session.TaskFilter{Tree: sid, Running: true})); n != 2 {
			t.Errorf("%d tasks run in the tree, want the child and the grandchild", n)
		}
		ends := make(chan string, 1)
		r.goes(func() {
			got, ended, err := r.m.AwaitTask(r.t.Context(), sid, mid.ID, time.Hour)
			ends <- fmt.Sprintf("%s %v %v", got.Status, ended, err)
		})
		var cancelled bool
		if err := r.m.CancelTask(r.t.Context(), nil, sid, mid.ID, func(ok bool) { cancelled = ok }); err != nil || !cancelled {
			t.Errorf("cancelled %v, %v", cancelled, err)
		}
		if got := <-ends; got != "cancelled true <nil>" {
			t.Errorf("the wait ended with %s, want cancelled", got)
		}
		r.wait()
		for _, s := range []frames.SessionID{kids[0], r.children(kids[0])[0]} {
			if end := last[frames.TurnEnd](r, s); end.Reason != frames.TurnCancelled {
				t.Errorf("%s ended %s, want cancelled", s, end.Reason)
			}
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the parent ended %s, want completed", end.Reason)
		}
		if err := r.m.CancelTask(r.t.Context(), nil, sid, mid.ID, func(ok bool) { cancelled = ok }); err != nil || cancelled {
			t.Errorf("once more: cancelled %v, %v; want nothing to cancel", cancelled, err)
		}
	})
}

// A child that is cancelled while it is being made runs nothing.
func TestCancelTaskReachesAChildBeingMade(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("kid"))
		r.agent.on("kid", hang)
		sid := r.create(session.CreateArgs{})
		r.disk.set(func(d *disk) {
			d.before = func(evs []store.Event) {
				if evs[0].Type == string(frames.SessionCreatedEvent) {
					k := r.tasks(session.TaskFilter{})[0]
					if err := r.m.CancelTask(r.t.Context(), nil, sid, k.ID, func(ok bool) {
						if !ok {
							t.Error("nothing was cancelled")
						}
					}); err != nil {
						t.Error(err)
					}
				}
			}
		})
		r.prompt(sid, "go")
		r.wait()
		if c := last[frames.AgentCompleted](r, sid); c.Status != "cancelled" {
			t.Errorf("the child ended %s, want cancelled", c.Status)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the parent ended %s, want completed", end.Reason)
		}
		if ps := r.agent.prompts(); len(ps) != 1 {
			t.Errorf("%d turns reached the agent, want the parent's only", len(ps))
		}
	})
}
