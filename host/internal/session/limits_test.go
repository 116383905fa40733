package session_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// tryCreate makes a child, or returns why not.
func (r *rig) tryCreate(parent frames.SessionID) error {
	return r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir, Parent: parent}, func(s frames.Session) { r.pub.placed(s.SessionID) })
}

// A tree takes a minute's children at once, then one whenever its time has come,
// to the instant, whether clients or agents make them; refused ones cost nothing,
// and other trees are not concerned.
func TestSpawnRateIsExact(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("hello")}})
			return agent.Result{}, err
		})
		sid, other := r.create(session.CreateArgs{}), r.create(session.CreateArgs{})
		refused := func(want time.Duration) {
			t.Helper()
			err := r.tryCreate(sid)
			if e, ok := errors.AsType[*session.RateError](err); !ok || e.Wait != want || e.PerMinute != 3 {
				t.Errorf("create: %v, want a RateError for %v", err, want)
			}
		}
		r.prompt(sid, "go")
		r.wait()
		kid := r.children(sid)[0]
		for _, parent := range []frames.SessionID{sid, kid} {
			if err := r.tryCreate(parent); err != nil {
				t.Error(err)
			}
		}
		refused(20 * second)
		_ = pause(r.t.Context(), 20*second-1)
		refused(1)
		if err := r.tryCreate(other); err != nil {
			t.Errorf("in another tree: %v", err)
		}
		_ = pause(r.t.Context(), 1)
		if err := r.tryCreate(kid); err != nil {
			t.Errorf("after 20s: %v", err)
		}
		refused(20 * second)
		r.prompt(sid, "go")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnError || len(every[frames.AgentSpawned](r, sid)) != 1 {
			t.Errorf("the agent's turn ended %+v, want its spawn refused and not in the log", end)
		}
		_ = pause(r.t.Context(), time.Hour)
		for range 3 { // no more than a minute's are saved up
			if err := r.tryCreate(sid); err != nil {
				t.Error(err)
			}
		}
		refused(20 * second)
	}, func(c *session.Config) { c.SpawnRate = 3 })
}

// A tree never has more sessions than allowed, also when they are made at the
// same time; one that could not be made, or is deleted, leaves its place.
func TestTreeSizeIsExact(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.disk.set(func(d *disk) { d.before = func([]store.Event) { time.Sleep(second) } })
		var wg sync.WaitGroup
		errs := make([]error, 10)
		for i := range errs {
			wg.Go(func() { errs[i] = r.tryCreate(sid) })
		}
		wg.Wait()
		made := 0
		for _, err := range errs {
			if _, refused := errors.AsType[*session.ParamError](err); err == nil {
				made++
			} else if !refused {
				t.Errorf("create: %v", err)
			}
		}
		if made != 3 || len(r.children(sid)) != 3 {
			t.Errorf("%d were made, %d exist; want 3", made, len(r.children(sid)))
		}
		kids := r.children(sid)
		del := func(s frames.SessionID) {
			if err := r.m.Delete(r.t.Context(), nil, s, false, nil, nil); err != nil {
				t.Error(err)
			}
		}
		del(kids[0])
		r.disk.fail(store.ErrFull)
		if err := r.tryCreate(sid); err == nil {
			t.Error("a session was made though it was not stored")
		}
		r.disk.fail(nil)
		if err := r.tryCreate(sid); err != nil {
			t.Errorf("in the place that is free: %v", err)
		}
		del(sid) // its children stay a tree
		for i := range 2 {
			if err := r.tryCreate(kids[1]); err != nil {
				t.Errorf("in the root's place: %v", err)
			}
			if err := r.tryCreate(kids[1]); err == nil {
				t.Error("a fifth session of a tree of four")
			}
			r.restart()
			if i == 0 {
				del(kids[2])
			}
		}
	}, func(c *session.Config) { c.MaxTree = 4; c.SpawnRate = 1000 })
}

// Trees are as deep as allowed and no deeper.
func TestDepthIsExact(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		for range 2 {
			sid = r.create(session.CreateArgs{Parent: sid})
		}
		if _, ok := errors.AsType[*session.ParamError](r.tryCreate(sid)); !ok {
			t.Error("a third level was made")
		}
	}, func(c *session.Config) { c.MaxDepth = 2 })
}

// A queue takes as many prompts as allowed and no more; a steer that waits is one
// of them, and so is, apart, a context that waits.
func TestQueueLengthIsExact(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		r.prompt(sid, "1")
		r.prompt(sid, "2", mode(frames.ModeSteer))
		for _, m := range []frames.PromptMode{frames.ModeQueue, frames.ModeSteer} {
			if _, err := r.tryPrompt(sid, "3", mode(m)); !errors.Is(err, session.ErrQueueFull) {
				t.Errorf("%s: %v, want ErrQueueFull", m, err)
			}
		}
		for range 2 {
			r.prompt(sid, "context", mode(frames.ModeInject))
		}
		if _, err := r.tryPrompt(sid, "context", mode(frames.ModeInject)); !errors.Is(err, session.ErrQueueFull) {
			t.Errorf("inject: %v, want ErrQueueFull", err)
		}
	}, func(c *session.Config) { c.MaxQueue = 2 })
}
