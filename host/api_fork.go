package host

import (
	"context"
	"errors"

	"github.com/muxhost/muxhost/rpc"
)

// SessionFork is to be built.
func (c *caller) SessionFork(context.Context, rpc.ForkParams, rpc.Reply[rpc.SessionResult]) error {
	return errors.New("host: session.fork is not built")
}

// SessionExport is to be built.
func (c *caller) SessionExport(context.Context, rpc.ExportParams) (rpc.ExportResult, error) {
	return rpc.ExportResult{}, errors.New("host: session.export is not built")
}
