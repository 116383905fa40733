package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// MaxTasks bounds the tasks of one session that run at once.
const MaxTasks = 64

// background is a task of an agent; to it, the [agent.Task].
type background struct {
	m      *Manager
	sid    frames.SessionID
	id     frames.TaskID
	ctx    context.Context //nolint:containedctx // the lifetime of the task
	cancel context.CancelFunc
	out    tail
	by     atomic.Pointer[frames.By] // who cancelled it
}

// Task implements [agent.Turn].
func (t *turn) Task(ctx context.Context, kind, label string) (agent.Task, error) {
	if t.over.Load() {
		return nil, agent.ErrTurnOver
	}
	m := t.a.m
	if err := t.step(); err != nil {
		return nil, err
	}
	b := &background{m: m, sid: t.a.id, id: frames.TaskID(m.cfg.NewID())}
	b.ctx, b.cancel = context.WithCancel(m.io)
	err := t.a.do(ctx, func() error { return t.a.taskStarted(t, b, clip(kind), clip(label)) })
	if err != nil {
		b.cancel()
		return nil, turnOver(err)
	}
	return b, nil
}

func (a *actor) taskStarted(t *turn, b *background, kind, label string) error {
	if a.turn != t || t.outcome != nil {
		return agent.ErrTurnOver
	}
	if len(a.rec.Tasks) >= MaxTasks {
		return fmt.Errorf("task: %d run in this session already, which is the most: end some", MaxTasks)
	}
	c := &commit{turn: t.id, next: a.rec.clone()}
	c.add(frames.TaskStarted{TaskID: b.id, Kind: kind, Label: label})
	c.next.Tasks = append(c.next.Tasks, task{b.id, t.id})
	c.then = func() { a.tasks[b.id] = b }
	err := a.commit(c)
	if a.unknown(c) { // nobody works on it, whatever the log says
		c.then = func() {
			a.later = append(a.later, func() error { return a.taskDone(b, "failed", "") })
		}
	}
	if err != nil {
		a.fail(t, err)
	}
	return err
}

// ID returns the task's id.
func (b *background) ID() frames.TaskID { return b.id }

// Context implements [agent.Task].
func (b *background) Context() context.Context { return b.ctx }

// Output implements [agent.Task].
func (b *background) Output(ctx context.Context, text string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	b.out.add(text)
	return nil
}

// Done implements [agent.Task].
func (b *background) Done(ctx context.Context, status, detail string) error {
	if !slices.Contains([]string{"completed", "failed", "cancelled"}, status) {
		return fmt.Errorf("task %s: status is %q, want completed, failed or cancelled", b.id, status)
	}
	defer b.cancel()
	detail = clip(detail)
	// It has ended, whatever becomes of ctx.
	err := b.m.in(context.WithoutCancel(ctx), b.sid, func(a *actor) error { return a.taskDone(b, status, detail) })
	if _, ok := errors.AsType[*StorageError](err); ok {
		return errors.Join(err, b.m.bare(b.sid, func(a *actor) error {
			a.later = append(a.later, func() error { return a.taskDone(b, status, detail) })
			a.retryLater()
			return nil
		}))
	}
	return err
}

func (a *actor) taskDone(b *background, status, detail string) error {
	if status == "cancelled" && a.m.isStopping() {
		status = "interrupted"
	}
	c := &commit{next: a.rec.clone(), by: b.by.Load()}
	c.next.Tasks = slices.DeleteFunc(c.next.Tasks, func(t task) bool { return t.ID == b.id })
	if len(c.next.Tasks) == len(a.rec.Tasks) {
		return nil
	}
	c.add(frames.TaskCompleted{TaskID: b.id, Status: status, Detail: detail})
	c.then = func() { delete(a.tasks, b.id) }
	return a.commit(c)
}

// endTasks ends all tasks of a session that stops, or whose agent is gone.
func (a *actor) endTasks(c *commit, status, detail string) {
	for _, t := range a.rec.Tasks {
		c.add(frames.TaskCompleted{TaskID: t.ID, Status: status, Detail: detail})
	}
	c.next.Tasks = nil
	a.stopTasks()
}

// stopTasks tells whoever works on tasks to stop.
func (a *actor) stopTasks() {
	for _, b := range a.tasks {
		b.cancel()
	}
	a.tasks = map[frames.TaskID]*background{}
}
