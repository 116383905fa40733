package host

import (
	"context"
	"errors"

	"github.com/muxhost/muxhost/rpc"
)

// TasksList is to be built.
func (c *caller) TasksList(context.Context, rpc.TasksListParams) (rpc.TasksResult, error) {
	return rpc.TasksResult{}, errors.New("host: tasks.list is not built")
}

// TasksGet is to be built.
func (c *caller) TasksGet(context.Context, rpc.TaskParams) (rpc.TaskResult, error) {
	return rpc.TaskResult{}, errors.New("host: tasks.get is not built")
}

// TasksWait is to be built.
func (c *caller) TasksWait(context.Context, rpc.TaskWaitParams) (rpc.TaskWaitResult, error) {
	return rpc.TaskWaitResult{}, errors.New("host: tasks.wait is not built")
}

// TasksCancel is to be built.
func (c *caller) TasksCancel(context.Context, rpc.TaskParams, rpc.Reply[rpc.CancelResult]) error {
	return errors.New("host: tasks.cancel is not built")
}
