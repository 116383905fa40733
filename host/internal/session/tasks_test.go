package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// begins is a turn that begins a task for each label and leaves them in the rig.
func (r *rig) begins(labels ...string) (turnFunc, chan agent.Task) {
	tasks := make(chan agent.Task, len(labels))
	return func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		for _, label := range labels {
			k, err := t.Task(ctx, "command", label)
			if err != nil {
				return agent.Result{}, err
			}
			tasks <- k
		}
		return agent.Result{}, nil
	}, tasks
}

// background makes a session with one task, whose turn is over.
func (r *rig) background() (frames.SessionID, agent.Task) {
	r.t.Helper()
	f, tasks := r.begins("make")
	r.agent.on("go", f)
	sid := r.create(session.CreateArgs{})
	r.prompt(sid, "go")
	r.wait()
	return sid, <-tasks
}

// tasks lists tasks.
func (r *rig) tasks(f session.TaskFilter) []session.Task {
	r.t.Helper()
	out, err := r.m.Tasks(r.t.Context(), f)
	if err != nil {
		r.t.Fatalf("tasks %+v: %v", f, err)
	}
	return out
}

// states says the tasks of a list in short.
func states(ts []session.Task) []string {
	out := []string{}
	for _, t := range ts {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", t.Label, t.Status, t.Detail), ": "))
	}
	return out
}

// The tasks of a session are those of its log, live or cold; what ran when the
// host stopped is interrupted.
func TestTasksComeFromTheLog(t *testing.T) {
	bubble(t, func(r *rig) {
		f, tasks := r.begins("one", "two", "three")
		r.agent.on("go", f)
		sid := r.create(session.CreateArgs{})
		turn := r.prompt(sid, "go").Turn
		_ = pause(r.t.Context(), second)
		if err := (<-tasks).Done(r.t.Context(), "failed", "exit 4"); err != nil {
			t.Fatal(err)
		}
		_ = pause(r.t.Context(), second)
		if err := (<-tasks).Done(r.t.Context(), "completed", ""); err != nil {
			t.Fatal(err)
		}
		live := r.tasks(session.TaskFilter{Session: sid})
		if got, want := states(live), []string{"one failed: exit 4", "two completed", "three running"}; !slices.Equal(got, want) {
			t.Errorf("live: %v, want %v", got, want)
		}
		if k := live[0]; k.Kind != "command" || k.Session != sid || k.Turn != turn || k.Ended.Sub(k.Started.Time) != second {
			t.Errorf("task = %+v, want its kind, session, turn and times", k)
		}
		if got := states(r.tasks(session.TaskFilter{Session: sid, Running: true})); !slices.Equal(got, []string{"three running"}) {
			t.Errorf("running: %v", got)
		}
		r.crash()
		cold := r.tasks(session.TaskFilter{Session: sid})
		if got, want := states(cold), []string{"one failed: exit 4", "two completed", "three interrupted"}; !slices.Equal(got, want) {
			t.Errorf("after a crash: %v, want %v", got, want)
		}
		if !slices.Equal(live[:2], cold[:2]) {
			t.Errorf("live %+v\ncold %+v; want the same", live[:2], cold[:2])
		}
		if got := r.tasks(session.TaskFilter{}); len(got) != 0 {
			t.Errorf("of live sessions: %v, want none: all are cold", states(got))
		}
		if _, err := r.m.Task(r.t.Context(), sid, "none"); !errors.Is(err, session.ErrNoTask) {
			t.Errorf("an unknown task: %v", err)
		}
		if _, err := r.m.Tasks(r.t.Context(), session.TaskFilter{Session: "none"}); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("an unknown session: %v", err)
		}
	})
}

// Without a session the tasks of live sessions are listed from memory: no log is
// read, and trees limit the list.
func TestLiveTasksReadNoLog(t *testing.T) {
	bubble(t, func(r *rig) {
		a, _ := r.background()
		b, _ := r.background()
		kid := r.create(session.CreateArgs{Parent: a})
		r.prompt(kid, "go")
		r.wait()
		r.disk.set(func(d *disk) { d.reads = 0 })
		for _, c := range []struct {
			f    session.TaskFilter
			want []frames.SessionID
		}{
			{session.TaskFilter{}, []frames.SessionID{a, b, kid}},
			{session.TaskFilter{Tree: a}, []frames.SessionID{a, kid}},
			{session.TaskFilter{Within: []frames.SessionID{b}}, []frames.SessionID{b}},
			{session.TaskFilter{Tree: a, Within: []frames.SessionID{kid}}, []frames.SessionID{kid}},
			{session.TaskFilter{Within: []frames.SessionID{}}, nil},
		} {
			var got []frames.SessionID
			for _, k := range r.tasks(c.f) {
				got = append(got, k.Session)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%+v: tasks of %v, want of %v", c.f, got, c.want)
			}
		}
		r.disk.set(func(d *disk) {
			if d.reads != 0 {
				t.Errorf("%d reads of logs, want none", d.reads)
			}
		})
	})
}

// A wait ends with its task, or exactly when its time is over, and says which; a
// task that has ended is not waited for.
func TestWaitEndsWithTheTaskOrTheTime(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, k := r.background()
		began := time.Now()
		got, ended, err := r.m.AwaitTask(r.t.Context(), sid, k.ID(), 10*second)
		if d := time.Since(began); err != nil || ended || got.Status != "running" || d != 10*second {
			t.Errorf("after %v: %+v, ended %v, %v; want it running after 10s", d, got, ended, err)
		}
		r.goes(func() {
			_ = pause(r.t.Context(), 3*second)
			_ = k.Output(r.t.Context(), "bye")
			_ = k.Done(r.t.Context(), "completed", "fine")
		})
		began = time.Now()
		got, ended, err = r.m.AwaitTask(r.t.Context(), sid, k.ID(), time.Hour)
		if d := time.Since(began); err != nil || !ended || got.Status != "completed" || got.Detail != "fine" || got.Output != "bye" || d != 3*second {
			t.Errorf("after %v: %+v, ended %v, %v; want it completed after 3s", d, got, ended, err)
		}
		for range 2 { // live, then cold
			began = time.Now()
			if got, ended, err = r.m.AwaitTask(r.t.Context(), sid, k.ID(), time.Hour); err != nil || !ended || got.Status != "completed" || time.Since(began) != 0 {
				t.Errorf("an ended task: %+v, ended %v, %v after %v; want it at once", got, ended, err, time.Since(began))
			}
			r.restart()
		}
	})
}

// A wait is told of an end that comes at any moment, also between its look at the
// task and its wait.
func TestWaitMissesNoEnd(t *testing.T) {
	for range 200 {
		bubble(t, func(r *rig) {
			sid, k := r.background()
			r.goes(func() { _ = k.Done(r.t.Context(), "completed", "") })
			if _, ended, err := r.m.AwaitTask(r.t.Context(), sid, k.ID(), time.Minute); !ended || err != nil {
				t.Errorf("ended %v, %v", ended, err)
			}
		})
	}
}

// A wait holds nothing up: the session is prompted, goes cold and is closed as if
// nobody waited, and the wait is told.
func TestWaitKeepsNothingFromEnding(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, k := r.background()
		ends := make(chan string, 2)
		r.goes(func() {
			got, ended, err := r.m.AwaitTask(r.t.Context(), sid, k.ID(), time.Hour)
			ends <- fmt.Sprintf("%s %v %v", got.Status, ended, err)
		})
		r.wait()
		r.prompt(sid, "hello")
		_ = pause(r.t.Context(), 10*time.Minute)
		if s, _ := r.m.Get(sid); s.State != frames.StateIdle || k.Context().Err() != nil {
			t.Errorf("the session is %s, its task's context %v; want it idle with a task", s.State, k.Context().Err())
		}
		if n := len(r.tasks(session.TaskFilter{})); n != 1 {
			t.Errorf("%d tasks of live sessions, want that one: it keeps its session live", n)
		}
		if err := r.m.Close(r.t.Context(), nil, sid, nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := <-ends; got != "cancelled true <nil>" {
			t.Errorf("the wait ended with %s, want cancelled", got)
		}
		if c := last[frames.TaskCompleted](r, sid); c.Status != "cancelled" || k.Context().Err() == nil {
			t.Errorf("the log says %+v, the context %v", c, k.Context().Err())
		}
	})
}

// A cancelled task is told by its context, ends when its agent says so, and the
// log names who cancelled it.
func TestCancelTellsTheTask(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, k := r.background()
		by := &frames.By{ClientID: "c1", Label: "phone"}
		cancel := func() (cancelled bool) {
			if err := r.m.CancelTask(r.t.Context(), by, sid, k.ID(), func(ok bool) { cancelled = ok; r.pub.placed(sid) }); err != nil {
				t.Fatal(err)
			}
			return cancelled
		}
		if !cancel() || k.Context().Err() == nil {
			t.Errorf("cancelled, and its context is %v", k.Context().Err())
		}
		if got, _ := r.m.Task(r.t.Context(), sid, k.ID()); got.Status != "running" {
			t.Errorf("status %s, want running until the agent has ended it", got.Status)
		}
		if err := k.Done(r.t.Context(), "cancelled", ""); err != nil {
			t.Fatal(err)
		}
		if cancel() {
			t.Error("a task that has ended was cancelled")
		}
		log := r.log(sid)
		if e := log[len(log)-1]; e.Type != frames.TaskCompletedEvent || e.By == nil || e.By.Label != "phone" || e.TurnID != "" {
			t.Errorf("the last event is %+v, want the end of the task by phone", e)
		}
		if err := r.m.CancelTask(r.t.Context(), by, sid, "none", nil); !errors.Is(err, session.ErrNoTask) {
			t.Errorf("an unknown task: %v", err)
		}
		r.restart()
		if cancel() {
			t.Error("a task of a cold session was cancelled")
		}
	})
}

// What tasks print is kept to its last 64 KiB, whole characters, and counted in
// all. It is kept for a while after the end, and in memory only.
func TestTaskOutputIsATail(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, k := r.background()
		for range 1000 {
			if err := k.Output(r.t.Context(), strings.Repeat("ä", 100)+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string) {
			got, err := r.m.Task(r.t.Context(), sid, k.ID())
			if err != nil || got.OutputBytes != 201_000 || len(got.Output) > 64<<10 || len(got.Output) < 64<<10-4 ||
				strings.Trim(got.Output, "ä\n") != "" || !strings.HasSuffix(got.Output, "ä\n") {
				t.Errorf("%s: %d of %d bytes, %.20q…, %v; want the last 64 KiB", when, len(got.Output), got.OutputBytes, got.Output, err)
			}
		}
		check("while it runs")
		if err := k.Done(r.t.Context(), "completed", ""); err != nil {
			t.Fatal(err)
		}
		check("after its end")
		if ts := r.tasks(session.TaskFilter{Session: sid}); ts[0].Output != "" || ts[0].OutputBytes != 201_000 {
			t.Errorf("a list has %d bytes of output, counts %d; want none of 201000", len(ts[0].Output), ts[0].OutputBytes)
		}
		r.agent.on("more", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 16 {
				k, err := t.Task(ctx, "command", "x")
				if err != nil {
					return agent.Result{}, err
				}
				_ = k.Done(ctx, "completed", "")
			}
			return agent.Result{}, nil
		})
		r.prompt(sid, "more")
		r.wait()
		if got, err := r.m.Task(r.t.Context(), sid, k.ID()); err != nil || got.Output != "" || got.Status != "completed" {
			t.Errorf("after 16 more: %+v, %v; want it without its output", got, err)
		}
	})
}

// Output that is no text is repaired and stays within its bound.
func TestRepairedTaskOutputIsBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, k := r.background()
		if err := k.Output(r.t.Context(), strings.Repeat("a\xff", session.MaxTaskOutput)); err != nil {
			t.Fatal(err)
		}
		got, err := r.m.Task(r.t.Context(), sid, k.ID())
		if err != nil || len(got.Output) > session.MaxTaskOutput || len(got.Output) < session.MaxTaskOutput-4 || strings.Trim(got.Output, "a\uFFFD") != "" {
			t.Errorf("%d bytes of output, %v; want 64 KiB of text", len(got.Output), err)
		}
	})
}

// However many tasks a session had, the newest 256 are listed, and any is found.
func TestOldTasksLeaveTheList(t *testing.T) {
	bubble(t, func(r *rig) {
		var first, running frames.TaskID
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for i := range 302 {
				k, err := t.Task(ctx, "command", fmt.Sprint(i))
				if err != nil {
					return agent.Result{}, err
				}
				switch i {
				case 0:
					running = k.ID()
					continue
				case 1:
					first = k.ID()
				}
				if err := k.Done(ctx, "completed", ""); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.wait()
		ts := r.tasks(session.TaskFilter{Session: sid})
		if len(ts) != 256 || ts[0].ID != running || ts[0].Status != "running" || ts[1].Label != "47" || ts[255].Label != "301" {
			t.Errorf("%d tasks from %+v to %s; want the one that runs and the newest 255", len(ts), ts[:2], ts[len(ts)-1].Label)
		}
		if got, err := r.m.Task(r.t.Context(), sid, first); err != nil || got.Label != "1" || got.Status != "completed" {
			t.Errorf("the first: %+v, %v", got, err)
		}
	})
}

// Whatever ends a session, or its agent, ends its tasks: their contexts are done
// and the log says how they ended.
func TestTasksEndWithTheirSession(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(r *rig, sid frames.SessionID)
		want string // "" after a deletion
	}{
		"close": {func(r *rig, sid frames.SessionID) { _ = r.m.Close(r.t.Context(), nil, sid, nil, nil) }, "cancelled"},
		"delete": {func(r *rig, sid frames.SessionID) {
			if err := r.m.Delete(r.t.Context(), nil, sid, true, nil, nil); err != nil {
				r.t.Error(err)
			}
		}, ""},
		"shutdown": {func(r *rig, _ frames.SessionID) { r.restart() }, "interrupted"},
		"crash":    {func(r *rig, _ frames.SessionID) { r.crash() }, "interrupted"},
		"the agent's crash": {func(r *rig, sid frames.SessionID) {
			r.agent.on("boom", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) { panic("boom") })
			r.prompt(sid, "boom")
		}, "failed: the agent stopped working"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				sid, k := r.background()
				c.end(r, sid)
				r.wait()
				if k.Context().Err() == nil {
					t.Error("the task's context is not done")
				}
				if c.want == "" {
					return
				}
				if got := states(r.tasks(session.TaskFilter{Session: sid})); !slices.Equal(got, []string{"make " + c.want}) {
					t.Errorf("tasks: %v, want make %s", got, c.want)
				}
				if err := k.Done(r.t.Context(), "completed", ""); err != nil && !errors.Is(err, session.ErrDraining) {
					t.Errorf("a late end: %v, want nothing", err)
				}
				if n := len(every[frames.TaskCompleted](r, sid)); n != 1 {
					t.Errorf("the log has %d ends, want 1", n)
				}
			})
		})
	}
}

// An agent that ends its task because the host goes down does not make it look
// cancelled by somebody.
func TestTaskEndedByShutdownIsInterrupted(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, k := r.background()
		r.goes(func() {
			<-k.Context().Done()
			_ = k.Done(context.WithoutCancel(r.t.Context()), "cancelled", "")
		})
		r.agent.closing = func() { _ = k.Done(context.WithoutCancel(r.t.Context()), "cancelled", "") }
		r.restart()
		if got := states(r.tasks(session.TaskFilter{Session: sid})); !slices.Equal(got, []string{"make interrupted"}) {
			t.Errorf("tasks: %v, want it interrupted", got)
		}
	})
}

// The end of a task that could not be stored is stored later, without its agent.
func TestTaskEndIsStoredLater(t *testing.T) {
	bubble(t, func(r *rig) {
		sid, k := r.background()
		r.disk.fail(store.ErrFull)
		if err := k.Done(r.t.Context(), "completed", "fine"); err == nil {
			t.Error("the end was acknowledged though it is not stored")
		}
		r.disk.fail(nil)
		_ = pause(r.t.Context(), time.Minute)
		if got := states(r.tasks(session.TaskFilter{Session: sid})); !slices.Equal(got, []string{"make completed: fine"}) {
			t.Errorf("tasks: %v, want its end", got)
		}
	})
}

// Tasks whose events were trimmed come from the log's base.
func TestTasksOutliveATrim(t *testing.T) {
	bubble(t, func(r *rig) {
		f, tasks := r.begins("one", "two")
		r.agent.on("go", f)
		r.agent.on("kids", spawns("kid"))
		sid := r.create(session.CreateArgs{})
		r.prompt(sid, "go")
		r.prompt(sid, "kids")
		r.wait()
		if err := (<-tasks).Done(r.t.Context(), "failed", "exit 4"); err != nil {
			t.Fatal(err)
		}
		if err := (<-tasks).Done(r.t.Context(), "completed", ""); err != nil {
			t.Fatal(err)
		}
		want := states(r.tasks(session.TaskFilter{Session: sid}))
		r.stop()
		log := r.log(sid)
		for cut := range log[1:] { // also within turns, which is harder
			r.cut(sid, log, frames.Seq(cut+2))
			r.start()
			ts := r.tasks(session.TaskFilter{Session: sid})
			if got := states(ts); !slices.Equal(got, want) || len(got) != 3 {
				t.Errorf("before %d was trimmed: %v, want %v", cut+2, got, want)
			}
			if k, err := r.m.Task(r.t.Context(), sid, ts[2].ID); err != nil || k.Child == "" || k.Started.IsZero() || k.Turn == "" {
				t.Errorf("before %d was trimmed: the child is %+v, %v", cut+2, k, err)
			}
			r.stop()
		}
		r.start()
	})
}

// cut drops the events before a seq and stores their fold, as retention does.
func (r *rig) cut(sid frames.SessionID, log []frames.Event, before frames.Seq) {
	r.t.Helper()
	v := frames.NewView()
	for _, e := range log[:before-1] {
		if err := v.ApplyEvent(e); err != nil {
			r.t.Fatal(err)
		}
	}
	b, err := v.MarshalJSON()
	if err == nil {
		err = r.store.Trim(r.t.Context(), sid, before, store.Row{Table: store.TableBase, Key: string(sid), Value: b})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// A task that runs by the log alone, which could not be repaired yet, is
// interrupted: nobody works on it.
func TestTaskOfAnUnrepairedLogIsInterrupted(t *testing.T) {
	broken := false
	bubble(t, func(r *rig) {
		sid, k := r.background()
		broken = true
		r.crash()
		if n := len(every[frames.TaskCompleted](r, sid)); n != 0 {
			t.Fatalf("%d ends in the log, want that it could not be repaired", n)
		}
		got, ended, err := r.m.AwaitTask(r.t.Context(), sid, k.ID(), time.Hour)
		if err != nil || !ended || got.Status != "interrupted" {
			t.Errorf("task = %+v, ended %v, %v; want it interrupted, at once", got, ended, err)
		}
		r.disk.fail(nil)
	}, func(c *session.Config) {
		if broken {
			c.Store.(*disk).fail(store.ErrFull)
		}
	})
}
