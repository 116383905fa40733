package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// TaskFilter selects tasks for a list; zero fields match all.
type TaskFilter struct {
	// Session reads the log of that session; without it, only live sessions
	// are asked, and no log is read.
	Session frames.SessionID
	Tree    frames.SessionID
	Running bool
	// Within limits the list to these trees; nil does not.
	Within []frames.SessionID
}

// maxTaskList bounds a list of tasks over sessions; it keeps the newest.
const maxTaskList = 1000

// Tasks returns the tasks that f selects, oldest first, without their output: at
// most 256 of one session, those that run or the newest.
func (m *Manager) Tasks(ctx context.Context, f TaskFilter) ([]Task, error) {
	var out []Task
	if f.Session != "" {
		all, err := m.tasksOf(ctx, f.Session, "")
		if err != nil {
			return nil, err
		}
		out = all
	} else {
		out = m.liveTasks(&f)
	}
	out = slices.DeleteFunc(out, func(t Task) bool { return f.Running && t.Status != taskRunning })
	slices.SortStableFunc(out, func(a, b Task) int { return a.Started.Compare(b.Started.Time) })
	return out[max(0, len(out)-maxTaskList):], nil
}

// liveTasks returns the tasks that live sessions know of.
func (m *Manager) liveTasks(f *TaskFilter) []Task {
	out := []Task{}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, e := range m.dir.order {
		if e.works == nil || f.Tree != "" && !e.in(f.Tree) || f.Within != nil && !slices.ContainsFunc(f.Within, e.in) {
			continue
		}
		for _, k := range e.works.list {
			out = append(out, k.count())
		}
	}
	return out
}

// count returns the task without its output. mu is held.
func (k *work) count() Task {
	t := k.Task
	if k.bg != nil {
		t.OutputBytes = k.bg.out.size()
	}
	return t
}

// Task returns one task, with the end of its output while that is in memory:
// while the session is live.
func (m *Manager) Task(ctx context.Context, sid frames.SessionID, id frames.TaskID) (Task, error) {
	t, _, err := m.task(ctx, sid, id)
	return t, err
}

// AwaitTask returns the task once it has ended, or as it is when wait is over.
// It keeps nothing else from going on.
func (m *Manager) AwaitTask(ctx context.Context, sid frames.SessionID, id frames.TaskID, wait time.Duration) (t Task, ended bool, err error) {
	t, done, err := m.task(ctx, sid, id)
	if err != nil || t.Status != taskRunning {
		return t, err == nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		return Task{}, false, context.Cause(ctx)
	}
	t, _, err = m.task(ctx, sid, id)
	return t, err == nil && t.Status != taskRunning, err
}

// task returns a task, and what is closed when it ends.
func (m *Manager) task(ctx context.Context, sid frames.SessionID, id frames.TaskID) (Task, <-chan struct{}, error) {
	m.mu.RLock()
	var t Task
	var k *work
	var bg *background
	if e := m.dir.byID[sid]; e != nil {
		if k = e.works.get(id); k != nil {
			t, bg = k.Task, k.bg
		}
	}
	m.mu.RUnlock()
	if k != nil {
		if bg != nil {
			t.Output, t.OutputBytes = bg.out.read()
		}
		return t, k.done, nil
	}
	all, err := m.tasksOf(ctx, sid, id)
	switch {
	case err != nil:
		return Task{}, nil, err
	case len(all) == 0:
		return Task{}, nil, ErrNoTask
	}
	return all[0], nil, nil
}

// tasksOf returns the tasks of a session as its log has them up to the head, with
// what is known in memory at that head. Nobody works on what runs by the log
// alone: the host stopped meanwhile.
func (m *Manager) tasksOf(ctx context.Context, sid frames.SessionID, id frames.TaskID) ([]Task, error) {
	m.mu.RLock()
	e := m.dir.byID[sid]
	if e == nil {
		m.mu.RUnlock()
		return nil, ErrNoSession
	}
	head, live := e.sum.Head, map[frames.TaskID]Task{}
	if e.works != nil {
		for _, k := range e.works.list {
			live[k.ID] = k.count()
		}
	}
	m.mu.RUnlock()
	w, err := m.foldTasks(ctx, sid, id, head)
	if errors.Is(err, store.ErrTrimmed) { // it was trimmed while it was read
		w, err = m.foldTasks(ctx, sid, id, head)
	}
	if err != nil {
		return nil, readError(err)
	}
	out := make([]Task, 0, len(w.list))
	for _, k := range w.list {
		t, known := live[k.ID]
		if !known {
			if t = k.Task; t.Status == taskRunning {
				t.Status = "interrupted"
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// foldTasks folds the log up to head, from its base.
func (m *Manager) foldTasks(ctx context.Context, sid frames.SessionID, id frames.TaskID, head frames.Seq) (*works, error) {
	v, _, err := m.base(ctx, sid)
	if err != nil {
		return nil, err
	}
	w, after := &works{sid: sid, id: id}, v.Seq
	w.base(v)
	for after < head {
		evs, err := m.cfg.Store.Read(ctx, sid, after, 0, 0)
		if err != nil {
			return nil, err
		}
		if len(evs) == 0 {
			break
		}
		for _, s := range evs {
			if after = s.Seq; s.Seq <= head {
				w.takeStored(s)
			}
		}
	}
	return w, nil
}

// takeStored decodes and applies a stored event, where it is one of a task.
func (w *works) takeStored(s store.Event) {
	switch frames.EventType(s.Type) {
	case frames.TaskStartedEvent, frames.TaskCompletedEvent, frames.AgentSpawnedEvent, frames.AgentCompletedEvent:
		if e, err := frames.DecodeEvent(s.Data); err == nil {
			w.take(e, nil)
		}
	}
}

// CancelTask tells a task to stop; it ends as cancelled when whoever works on it
// says so. Of a child session the turn ends, with its tree. placed hears whether
// it ran.
func (m *Manager) CancelTask(ctx context.Context, by *frames.By, sid frames.SessionID, id frames.TaskID, placed func(cancelled bool)) error {
	if placed == nil {
		placed = func(bool) {}
	}
	t, _, err := m.task(ctx, sid, id)
	if err != nil {
		return err
	}
	if t.Child != "" {
		m.cancelChild(by, sid, t.Child, placed)
		return nil
	}
	m.mu.RLock()
	var b *background
	if e := m.dir.byID[sid]; e != nil {
		if k := e.works.get(id); k != nil && k.Status == taskRunning {
			b = k.bg
		}
	}
	m.mu.RUnlock()
	if b == nil || b.ctx.Err() != nil {
		placed(b != nil)
		return nil
	}
	b.by.Store(by)
	placed(true)
	b.cancel()
	return nil
}

// cancelChild cancels the first turn of a child, which may not have begun yet.
func (m *Manager) cancelChild(by *frames.By, sid, child frames.SessionID, placed func(bool)) {
	s := newMark(by, true)
	m.mu.Lock()
	if e := m.dir.byID[sid]; e != nil {
		for k := range e.kids {
			if k.id == child {
				s.markChild(k)
			}
		}
	}
	s.order()
	m.mu.Unlock()
	placed(s.found)
	m.settle(s)
}

// markChild marks the first turn of a child, or what it will be when it begins.
// mu is held.
func (s *marked) markChild(k *child) {
	switch {
	case k.turn == nil:
		s.found = true
		if k.down == nil {
			k.down = s.mk
		}
	case k.turn.a.e.turn == k.turn:
		s.mark(k.turn, s.mk)
		s.markBelow(k.turn)
	}
}
