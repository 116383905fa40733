package host

import (
	"context"
	"errors"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/rpc"
)

// SessionFork makes a session that goes on from the end of a turn of another. The
// fork is in the tree of its source, so a client that is limited to trees sees it.
func (c *caller) SessionFork(ctx context.Context, p rpc.ForkParams, r rpc.Reply[rpc.SessionResult]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	err := c.host.sessions.Fork(ctx, session.ForkArgs{
		By: c.by, Session: p.SessionID, At: p.At, Title: p.Title, RequestID: c.ownID(p.RequestID),
	}, func() { rpc.Started(ctx) }, func(s frames.Session) { r(rpc.SessionResult{Session: s}) })
	return c.sessionError(p.SessionID, forkError(err))
}

// ownID returns a request id that only this client's token can name, where it is
// limited to trees: another's would answer with a session that it may not see.
func (c *caller) ownID(id string) string {
	if c.trees == nil || id == "" {
		return id
	}
	return "token/" + c.token + "/" + id
}

// forkError says in the words of the wire where a session can be forked.
func forkError(err error) error {
	if e, ok := errors.AsType[*session.ForkPointError](err); ok {
		return rpc.Errorf(rpc.KindForkNotAtTurnEnd, "%s", e).With(struct {
			Before frames.Seq `json:"before,omitempty"`
			After  frames.Seq `json:"after,omitempty"`
		}{e.Before, e.After})
	}
	if e, ok := errors.AsType[*session.ForkExpiredError](err); ok {
		return rpc.Errorf(rpc.KindCursorExpired, "%s", e).With(cursorDetails{e.First, e.Head, e.Epoch})
	}
	return err
}

// SessionExport writes the log of a session into a blob.
func (c *caller) SessionExport(ctx context.Context, p rpc.ExportParams) (rpc.ExportResult, error) {
	if err := c.see(p.SessionID); err != nil {
		return rpc.ExportResult{}, err
	}
	x, err := c.host.sessions.Export(ctx, p.SessionID, p.Format)
	if err != nil {
		return rpc.ExportResult{}, c.sessionError(p.SessionID, err)
	}
	return rpc.ExportResult{Blob: x.Blob, Bytes: x.Bytes, MimeType: x.Mime, Head: x.Head}, nil
}
