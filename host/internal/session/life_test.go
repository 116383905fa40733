package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// An idle session goes cold after its time and its agent is closed; a prompt
// wakes it, and its log says so.
func TestIdleSessionGoesColdAndWakes(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "one")
		time.Sleep(4 * time.Minute)
		r.prompt(sid, "two")
		time.Sleep(4 * time.Minute)
		if _, closed := r.agent.count(); closed != 0 {
			t.Error("the agent was closed while the session was in use")
		}
		time.Sleep(2 * time.Minute)
		r.wait()
		if _, closed := r.agent.count(); closed != 1 {
			t.Errorf("%d agents closed, want one", closed)
		}
		r.prompt(sid, "three")
		r.wait()
		if n := len(every[frames.SessionResumed](r, sid)); n != 1 {
			t.Errorf("%d session/resumed, want one", n)
		}
		var live []string
		for _, s := range r.pub.script() {
			if strings.HasPrefix(s, "live ") {
				live = append(live, s)
			}
		}
		if want := []string{"live " + string(sid) + " false", "live " + string(sid) + " true"}; !slices.Equal(live, want) {
			t.Errorf("liveness %v, want %v", live, want)
		}
	})
}

// A session with background work does not go cold; closing it ends the work.
func TestTasksKeepASessionLive(t *testing.T) {
	bubble(t, func(r *rig) {
		var tasks []agent.Task
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 2 {
				k, err := t.Task(ctx, "build", "make")
				if err != nil {
					return agent.Result{}, err
				}
				tasks = append(tasks, k)
			}
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		time.Sleep(time.Hour)
		r.wait()
		if err := tasks[0].Done(r.t.Context(), "completed", "ok"); err != nil {
			t.Error(err)
		}
		if _, closed := r.agent.count(); closed != 0 {
			t.Error("the agent was closed while a task ran")
		}
		r.close(sid)
		if tasks[1].Context().Err() == nil {
			t.Error("the task's context lives on")
		}
		ts := every[frames.TaskCompleted](r, sid)
		if len(ts) != 2 || ts[0].Status != "completed" || ts[1].Status != "cancelled" {
			t.Errorf("tasks ended %+v, want completed and cancelled", ts)
		}
		if err := tasks[1].Done(r.t.Context(), "completed", ""); err != nil {
			t.Errorf("a second end: %v", err)
		}
	})
}

func (r *rig) close(sid frames.SessionID) {
	r.t.Helper()
	started, placed := 0, 0
	err := r.m.Close(r.t.Context(), nil, sid, func() { started++ }, func() { placed++; r.pub.placed(sid) })
	if err != nil || started != 1 || placed != 1 {
		r.t.Errorf("close: %v, started %d, placed %d; want once each", err, started, placed)
	}
}

// Closing cancels the turn, drops the queue, closes the agent, and only then
// answers. The log stays, and a prompt wakes the session again.
func TestCloseEndsEverything(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.prompt(sid, "queued")
		r.wait()
		r.close(sid)
		r.wait()
		r.wantTypes(sid, "turn/start", "user/message", "prompt/queued", "turn/end", "prompt/dequeued", "session/closed")
		if d := last[frames.PromptDequeued](r, sid); d.Reason != "closed" {
			t.Errorf("dequeued %q, want closed", d.Reason)
		}
		if opened, closed := r.agent.count(); opened != closed {
			t.Errorf("opened %d, closed %d agents", opened, closed)
		}
		script := r.pub.script()
		i := slices.Index(script, "prompt/dequeued "+string(sid))
		if script[i-1] != "placed "+string(sid) || script[len(script)-1] != "live "+string(sid)+" false" {
			t.Errorf("order %v, want the response, the end of the queue and of the session, and then cold", script[i-1:])
		}
		r.prompt(sid, "again")
		r.wait()
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
			t.Errorf("the next turn ended %+v", end)
		}
		r.close(sid)
		r.close(sid)
		if n := len(every[frames.SessionClosed](r, sid)); n != 2 {
			t.Errorf("%d session/closed, want 2: closing a closed session says nothing", n)
		}
	})
}

// Deleting with tree removes the descendants too; without, they stay and keep
// their lineage.
func TestDeleteRemovesSessions(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		a := r.create(session.CreateArgs{})
		b := r.create(session.CreateArgs{Parent: a})
		c := r.create(session.CreateArgs{Parent: b})
		for _, s := range []frames.SessionID{a, b, c} {
			r.prompt(s, "go")
		}
		r.wait()
		ctx := r.t.Context()
		if err := r.m.Delete(ctx, nil, a, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		if s, ok := r.m.Get(b); !ok || s.ParentSessionID != a {
			t.Errorf("the child is %+v, %v; want it kept with its lineage", s, ok)
		}
		placed := 0
		if err := r.m.Delete(ctx, nil, b, true, nil, func() { placed++ }); err != nil || placed != 1 {
			t.Fatalf("delete: %v, placed %d times", err, placed)
		}
		if ss, _, _ := r.m.List(session.Filter{}); len(ss) != 0 {
			t.Errorf("left %+v, want none", ss)
		}
		r.wait()
		if opened, closed := r.agent.count(); opened != 3 || closed != 3 {
			t.Errorf("opened %d, closed %d agents, want 3 each", opened, closed)
		}
		for _, s := range []frames.SessionID{a, b, c} {
			if _, err := r.tryPrompt(s, "x"); !errors.Is(err, session.ErrNoSession) {
				t.Errorf("prompt of a deleted session: %v", err)
			}
		}
		r.restart()
		if ss, _, _ := r.m.List(session.Filter{}); len(ss) != 0 {
			t.Errorf("after a restart left %+v, want none", ss)
		}
	})
}

// Draining refuses new work but lets what is open be answered; then turns end
// interrupted, and what is still open is settled by the shutdown.
func TestShutdownSettlesEverything(t *testing.T) {
	bubble(t, func(r *rig) {
		got := make(chan agent.Decision, 2)
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			try := func(call frames.CallID) {
				d, _ := t.Ask(ctx, ask(call, `{}`))
				got <- d
				if start := time.Now(); !d.Allowed() {
					return
				} else if late, _ := t.Ask(ctx, ask(call, `{}`)); late.Cause != frames.CauseShutdown || time.Since(start) != 0 {
					r.t.Errorf("an ask while draining got %+v after %v, want shutdown at once", late, time.Since(start))
				}
			}
			r.goes(func() { try("a") })
			try("b")
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.prompt(sid, "queued")
		r.wait()
		r.m.Drain()
		if _, err := r.tryPrompt(sid, "more"); !errors.Is(err, session.ErrDraining) {
			t.Errorf("prompt: %v, want ErrDraining", err)
		}
		if err := r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir}, nil); !errors.Is(err, session.ErrDraining) {
			t.Errorf("create: %v, want ErrDraining", err)
		}
		if err := r.answer(sid, r.approvals(sid)[0].ID, frames.AllowedOnce); err != nil {
			t.Errorf("answer while draining: %v", err)
		}
		if d := <-got; !d.Allowed() {
			t.Errorf("decision %+v, want allowed", d)
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*second)
		defer cancel()
		start := time.Now()
		if err := r.m.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 5*second {
			t.Errorf("shutdown took %v, want the 5 s of its context", d)
		}
		if d := <-got; d.Outcome != frames.Cancelled || d.Cause != frames.CauseShutdown {
			t.Errorf("decision %+v, want cancelled/shutdown", d)
		}
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnInterrupted {
			t.Errorf("end %+v, want interrupted", end)
		}
		ts := r.types(sid)
		if ts[len(ts)-1] != "turn/end" || len(said(r, sid)) != 1 {
			t.Errorf("log %v, want turn/end last and one turn", ts)
		}
		if opened, closed := r.agent.count(); opened != 1 || closed != 1 {
			t.Errorf("opened %d, closed %d agents", opened, closed)
		}
	})
}

// A shutdown with nothing running takes no time.
func TestShutdownOfIdleSessionsIsQuick(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "one")
		r.wait()
		start := time.Now()
		if err := r.m.Shutdown(r.t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("shutdown: %v after %v", err, time.Since(start))
		}
	})
}

// A request id makes one session, however often and at the same time it is sent,
// and over a restart.
func TestRequestIDMakesOneSession(t *testing.T) {
	bubble(t, func(r *rig) {
		ids := make(chan frames.SessionID, 4)
		for range cap(ids) {
			r.goes(func() { ids <- r.create(session.CreateArgs{RequestID: "r1"}) })
		}
		first := <-ids
		for range cap(ids) - 1 {
			if id := <-ids; id != first {
				t.Errorf("made %s and %s", first, id)
			}
		}
		r.restart()
		if id := r.create(session.CreateArgs{RequestID: "r1"}); id != first {
			t.Errorf("after a restart made %s, want %s", id, first)
		}
	})
}

// The cwd is stored without symlinks; what is no directory is refused with what
// to do.
func TestCwdIsCanonical(t *testing.T) {
	bubble(t, func(r *rig) {
		real := filepath.Join(r.dir, "real")
		link := filepath.Join(r.dir, "link")
		file := filepath.Join(r.dir, "file")
		if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, link), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		sid := r.create(session.CreateArgs{Cwd: link})
		want, _ := filepath.EvalSymlinks(real)
		if s, _ := r.m.Get(sid); s.Cwd != want {
			t.Errorf("cwd %q, want %q", s.Cwd, want)
		}
		for _, bad := range []string{"relative", filepath.Join(r.dir, "missing"), file} {
			err := r.m.Create(r.t.Context(), session.CreateArgs{Cwd: bad}, nil)
			if e, ok := errors.AsType[*session.ParamError](err); !ok || e.Field != "cwd" {
				t.Errorf("cwd %q: %v, want a ParamError of cwd", bad, err)
			}
		}
	})
}

// A turn whose start is being stored while the host goes down ends interrupted, and
// the host is down at once.
func TestTurnThatBeginsAtShutdownIsInterrupted(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		r.agent.on("go", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		})
		down := make(chan error, 1)
		r.disk.before = func([]store.Event) {
			r.disk.set(func(d *disk) { d.before = nil })
			go func() {
				ctx, cancel := context.WithCancel(r.t.Context())
				cancel()
				down <- r.m.Shutdown(ctx)
			}()
			time.Sleep(second)
		}
		began := time.Now()
		r.prompt(sid, "go")
		if err := <-down; err != nil || time.Since(began) > 2*second {
			t.Errorf("shutdown: %v after %v, want at once", err, time.Since(began))
		}
		r.wantTypes(sid, "turn/start", "user/message", "turn/end")
		if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnInterrupted {
			t.Errorf("the turn ended %+v", end)
		}
		r.start()
	})
}

// What session.configure changes is durable and published.
func TestConfigureIsDurable(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Title: "old"})
		r.configure(session.ConfigureArgs{Session: sid, Title: new("new"), Labels: map[string]string{"a": "b"}, Options: []byte(`{"model":"m1","x":1}`)})
		r.configure(session.ConfigureArgs{Session: sid, Options: []byte(`{"model":"m2"}`)})
		r.wantTypes(sid, "session/renamed", "session/configured", "session/configured")
		r.restart()
		s, _ := r.m.Get(sid)
		if s.Title != "new" || s.Labels["a"] != "b" {
			t.Errorf("summary %+v", s)
		}
		r.prompt(sid, "go")
		r.wait()
		if got := string(r.agent.last.Options); got != `{"model":"m2","x":1}` {
			t.Errorf("the agent got options %s, want them merged", got)
		}
		err := r.m.Configure(r.t.Context(), session.ConfigureArgs{Session: sid, Policy: &frames.Policy{Mode: "maybe"}}, nil)
		if _, ok := errors.AsType[*session.ParamError](err); !ok {
			t.Errorf("bad policy: %v, want a ParamError", err)
		}
	})
}
