package agenttest

import (
	"context"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Task is background work of a fake session; it may outlive its turn.
type Task struct {
	Kind, Label string

	s      *Session
	id     frames.TaskID
	ctx    context.Context //nolint:containedctx // the lifetime of the task
	cancel context.CancelFunc
	done   chan struct{} // closed by the first Done
	once   sync.Once

	mu             sync.Mutex // guards what follows; taken alone
	output         string
	status, detail string
}

var _ agent.Task = (*Task)(nil)

// Task implements [agent.Turn].
func (t *turn) Task(ctx context.Context, kind, label string) (agent.Task, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	k := &Task{Kind: kind, Label: label, s: t.s, id: frames.TaskID(t.s.host.id("task")), done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(t.s.host.ctx)
	if err := t.s.emit(t.id, []frames.Payload{frames.TaskStarted{TaskID: k.id, Kind: kind, Label: label}}); err != nil {
		k.cancel()
		return nil, err
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.tasks = append(t.s.tasks, k)
	return k, nil
}

// Tasks returns the tasks of the session in the order in which they began.
func (s *Session) Tasks() []*Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tasks)
}

// ID returns the task's id.
func (k *Task) ID() frames.TaskID { return k.id }

// Context is cancelled by [Task.Cancel], at the end, and with the host.
func (k *Task) Context() context.Context { return k.ctx }

// Output implements [agent.Task].
func (k *Task) Output(ctx context.Context, text string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	k.output += text
	k.mu.Unlock()
	if f := k.s.host.script.Output; f != nil {
		f(k.s, k, text)
	}
	return nil
}

// Done implements [agent.Task].
func (k *Task) Done(_ context.Context, status, detail string) (err error) {
	k.once.Do(func() {
		k.mu.Lock()
		k.status, k.detail = status, detail
		k.mu.Unlock()
		err = k.s.emit("", []frames.Payload{frames.TaskCompleted{TaskID: k.id, Status: status, Detail: detail}})
		k.cancel()
		close(k.done)
	})
	return err
}

// Cancel tells whoever works on the task to stop.
func (k *Task) Cancel() { k.cancel() }

// Wait blocks until the task has ended, and says how.
func (k *Task) Wait() (status, detail string) {
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status, k.detail
}

// Printed returns all output so far.
func (k *Task) Printed() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.output
}
