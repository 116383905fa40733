package session_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// Whoever has the response of a close may prompt or delete at once.
func TestClosedSessionIsUsableFromTheResponseOn(t *testing.T) {
	for name, next := range map[string]func(r *rig, sid frames.SessionID) error{
		"prompt": func(r *rig, sid frames.SessionID) error { _, err := r.tryPrompt(sid, "again"); return err },
		"delete": func(r *rig, sid frames.SessionID) error { return r.m.Delete(r.t.Context(), nil, sid, true, nil, nil) },
		"close":  func(r *rig, sid frames.SessionID) error { return r.m.Close(r.t.Context(), nil, sid, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				sid := r.create(session.CreateArgs{})
				r.prompt(sid, "hello")
				r.wait()
				done := make(chan error, 1)
				err := r.m.Close(r.t.Context(), nil, sid, nil, func() {
					r.goes(func() { done <- next(r, sid) })
					time.Sleep(second) // the response is on its way to the client
				})
				if err != nil {
					t.Errorf("close: %v", err)
				}
				if err := <-done; err != nil {
					t.Errorf("%s: %v, want nil", name, err)
				}
			})
		})
	}
}

// A delete, or a second close, that comes while a session is being closed waits
// for that and then does its own; prompts are refused meanwhile.
func TestDeleteWaitsForAClose(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			<-ctx.Done()
			time.Sleep(second) // it takes its time to stop
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		var order []string
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.m.Close(r.t.Context(), nil, sid, nil, func() { order = append(order, "closed") }); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		r.wait()
		started := false
		wg.Go(func() {
			if err := r.m.Delete(r.t.Context(), nil, sid, false, func() { started = true }, func() { order = append(order, "deleted") }); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
		r.wait()
		if !started {
			t.Error("the delete holds up later calls while it waits")
		}
		if _, err := r.tryPrompt(sid, "x"); err != session.ErrClosing {
			t.Errorf("prompt: %v, want ErrClosing", err)
		}
		wg.Wait()
		if !slices.Equal(order, []string{"closed", "deleted"}) {
			t.Errorf("order %v, want closed, deleted", order)
		}
	})
}

// Deletes and closes of overlapping trees at the same time all end, and nothing
// is left.
func TestOverlappingDeletesAllEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		var all []frames.SessionID
		parent := frames.SessionID("")
		for range 5 {
			parent = r.create(session.CreateArgs{Parent: parent})
			all = append(all, parent, r.create(session.CreateArgs{Parent: parent}))
		}
		for _, sid := range all {
			r.prompt(sid, "go")
			r.prompt(sid, "go")
		}
		r.wait()
		var wg sync.WaitGroup
		for i, sid := range all {
			wg.Go(func() {
				err := r.m.Delete(r.t.Context(), nil, sid, true, nil, nil)
				if err != nil && err != session.ErrNoSession {
					t.Errorf("delete of %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if ss, _, _ := r.m.List(session.Filter{}); len(ss) != 0 {
			t.Errorf("left %+v, want none", ss)
		}
	})
}

// A child that is being made while its tree is deleted is deleted too, or refused.
func TestNoChildOutlivesTheDeleteOfItsTree(t *testing.T) {
	bubble(t, func(r *rig) {
		root := r.create(session.CreateArgs{})
		mid := r.create(session.CreateArgs{Parent: root})
		r.disk.set(func(d *disk) { d.before = func([]store.Event) { time.Sleep(second) } })
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir, Parent: mid}, nil) })
		r.wait()
		if err := r.m.Delete(r.t.Context(), nil, root, true, nil, nil); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if ss, _, _ := r.m.List(session.Filter{}); len(ss) != 0 {
			t.Errorf("left %+v, want none", ss)
		}
	})
}

// A close that gives up leaves the session in use: what is queued runs.
func TestQueueGoesOnAfterACloseThatFailed(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			<-ctx.Done()
			time.Sleep(5 * second)
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.prompt(sid, "queued")
		r.wait()
		ctx, cancel := context.WithTimeout(r.t.Context(), second)
		defer cancel()
		if err := r.m.Close(ctx, nil, sid, nil, nil); err == nil {
			t.Error("closed, want the end of its context")
		}
		time.Sleep(time.Minute)
		r.wait()
		if got := said(r, sid); !slices.Equal(got, []string{"go", "queued"}) {
			t.Errorf("turns for %v, want go and queued", got)
		}
	})
}
