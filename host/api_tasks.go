package host

import (
	"context"
	"errors"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/rpc"
)

// defaultTaskWait is how long tasks.wait waits when the call does not say.
const defaultTaskWait = 30 * time.Second

// TasksList returns the tasks of a session from its log, or those of live
// sessions, oldest first.
func (c *caller) TasksList(ctx context.Context, p rpc.TasksListParams) (rpc.TasksResult, error) {
	if p.SessionID != "" && p.Tree != "" {
		return rpc.TasksResult{}, rpc.Paramsf(`params: "sessionId" and "tree" exclude each other; send one`)
	}
	for _, sid := range []frames.SessionID{p.SessionID, p.Tree} {
		if sid == "" {
			continue
		}
		if err := c.see(sid); err != nil {
			return rpc.TasksResult{}, err
		}
	}
	tasks, err := c.host.sessions.Tasks(ctx, session.TaskFilter{Session: p.SessionID, Tree: p.Tree, Running: p.Running, Within: c.trees})
	if err != nil {
		return rpc.TasksResult{}, c.taskError(p.SessionID, "", err)
	}
	res := rpc.TasksResult{Tasks: make([]rpc.Task, 0, len(tasks))}
	for _, t := range tasks {
		res.Tasks = append(res.Tasks, taskOf(t))
	}
	return res, nil
}

// TasksGet returns one task with the end of its output.
func (c *caller) TasksGet(ctx context.Context, p rpc.TaskParams) (rpc.TaskResult, error) {
	if err := c.see(p.SessionID); err != nil {
		return rpc.TaskResult{}, err
	}
	t, err := c.host.sessions.Task(ctx, p.SessionID, p.TaskID)
	if err != nil {
		return rpc.TaskResult{}, c.taskError(p.SessionID, p.TaskID, err)
	}
	return rpc.TaskResult{Task: taskOf(t)}, nil
}

// TasksWait waits until a task has ended or the time ran out. Later calls go on
// meanwhile.
func (c *caller) TasksWait(ctx context.Context, p rpc.TaskWaitParams) (rpc.TaskWaitResult, error) {
	if err := c.see(p.SessionID); err != nil {
		return rpc.TaskWaitResult{}, err
	}
	rpc.Started(ctx)
	wait := defaultTaskWait
	if p.TimeoutMs != nil {
		wait = time.Duration(*p.TimeoutMs) * time.Millisecond
	}
	t, done, err := c.host.sessions.AwaitTask(ctx, p.SessionID, p.TaskID, wait)
	if err != nil {
		return rpc.TaskWaitResult{}, c.taskError(p.SessionID, p.TaskID, err)
	}
	return rpc.TaskWaitResult{Task: taskOf(t), Done: done}, nil
}

// TasksCancel tells a task to stop.
func (c *caller) TasksCancel(ctx context.Context, p rpc.TaskParams, r rpc.Reply[rpc.CancelResult]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	err := c.host.sessions.CancelTask(ctx, c.by, p.SessionID, p.TaskID, func(cancelled bool) { r(rpc.CancelResult{Cancelled: cancelled}) })
	return c.taskError(p.SessionID, p.TaskID, err)
}

// taskError says an error of a call on a task in the words of the wire.
func (c *caller) taskError(sid frames.SessionID, id frames.TaskID, err error) error {
	if errors.Is(err, session.ErrNoTask) {
		return rpc.Errorf(rpc.KindTaskNotFound, "session %.64q has no task %.64q; tasks.list names those it has", string(sid), string(id))
	}
	return c.sessionError(sid, err)
}

func taskOf(t session.Task) rpc.Task {
	return rpc.Task{
		TaskID: t.ID, SessionID: t.Session, TurnID: t.Turn, ChildSessionID: t.Child, Kind: t.Kind, Label: t.Label,
		Status: t.Status, Detail: t.Detail, StartedAt: t.Started, FinishedAt: t.Ended, Output: t.Output, OutputBytes: t.OutputBytes,
	}
}
