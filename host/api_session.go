package host

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/rpc"
)

// Defaults of pages.
const (
	listLimit    = 100
	historyLimit = 256
	historyBytes = 128 << 10
)

// SessionsList lists summaries, newest first, of what the client may see.
func (c *caller) SessionsList(_ context.Context, p rpc.ListParams) (rpc.ListResult, error) {
	list, next, err := c.host.sessions.List(session.Filter{
		Roots: p.Roots, Parent: p.Parent, Tree: p.Tree, State: p.State, Cwd: p.Cwd, Text: p.Text,
		Limit: cmp.Or(p.Limit, listLimit), Cursor: p.Cursor, Within: c.trees,
	})
	if err != nil {
		return rpc.ListResult{}, c.wireError(err)
	}
	return rpc.ListResult{Sessions: list, Next: next}, nil
}

// SessionCreate creates a session. A client that is limited to trees can create
// only inside them.
func (c *caller) SessionCreate(ctx context.Context, p rpc.CreateParams, r rpc.Reply[rpc.SessionResult]) error {
	switch {
	case p.ParentSessionID != "":
		if err := c.see(p.ParentSessionID); err != nil {
			return err
		}
	case c.trees != nil:
		return rpc.Errorf(rpc.KindForbidden, "this client is limited to some session trees; give parentSessionId of one of them")
	}
	if c.trees != nil && p.RequestID != "" {
		// Its own names: another's would answer with a session it may not see.
		p.RequestID = "token/" + c.token + "/" + p.RequestID
	}
	return c.wireError(c.host.sessions.Create(ctx, session.CreateArgs{
		By: c.by, Agent: p.Agent, Cwd: p.Cwd, Title: p.Title, Parent: p.ParentSessionID, Config: p.Config,
		Policy: p.Policy, Budget: p.Budget, Labels: p.Labels, RequestID: p.RequestID,
	}, func(s frames.Session) { r(rpc.SessionResult{Session: s}) }))
}

// SessionGet returns one summary, and with view the fold as it stands.
func (c *caller) SessionGet(ctx context.Context, p rpc.GetParams) (rpc.GetResult, error) {
	if err := c.see(p.SessionID); err != nil {
		return rpc.GetResult{}, err
	}
	var out rpc.GetResult
	if p.View {
		var err error
		if out.View, out.Seq, err = c.host.sessions.View(ctx, p.SessionID); err != nil {
			return rpc.GetResult{}, c.sessionError(p.SessionID, err)
		}
	}
	s, ok := c.host.sessions.Get(p.SessionID)
	if !ok {
		return rpc.GetResult{}, noSession(p.SessionID)
	}
	out.Session = s
	return out, nil
}

// SessionHistory returns a page of durable events.
func (c *caller) SessionHistory(ctx context.Context, p rpc.HistoryParams) (rpc.HistoryResult, error) {
	if err := c.see(p.SessionID); err != nil {
		return rpc.HistoryResult{}, err
	}
	page, err := c.host.sessions.History(ctx, p.SessionID, p.After, p.Before, cmp.Or(p.Limit, historyLimit), cmp.Or(p.MaxBytes, historyBytes))
	if err != nil {
		return rpc.HistoryResult{}, c.sessionError(p.SessionID, err)
	}
	out := rpc.HistoryResult{Events: make([]json.RawMessage, len(page.Events)), First: page.First, Head: page.Head, More: page.More}
	for i, e := range page.Events {
		out.Events[i] = e.Data
	}
	return out, nil
}

// SessionPrompt hands a prompt to a session.
func (c *caller) SessionPrompt(ctx context.Context, p rpc.PromptParams, r rpc.Reply[rpc.PromptResult]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	if err := c.haveBlobs(ctx, p.Content); err != nil {
		return err
	}
	err := c.host.sessions.Prompt(ctx, session.PromptArgs{
		By: c.by, Session: p.SessionID, Content: p.Content, Mode: cmp.Or(p.Mode, frames.ModeQueue), ID: p.PromptID,
	}, func(a session.PromptAnswer) {
		r(rpc.PromptResult{Accepted: true, PromptID: a.ID, TurnID: a.Turn, Queued: a.Queued})
	})
	return c.sessionError(p.SessionID, err)
}

// SessionCancel marks turns, or a queued prompt, as cancelled.
func (c *caller) SessionCancel(ctx context.Context, p rpc.CancelParams, r rpc.Reply[rpc.CancelResult]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	err := c.host.sessions.Cancel(ctx, session.CancelArgs{
		By: c.by, Session: p.SessionID, Turn: p.TurnID, Tree: p.Tree == nil || *p.Tree,
	}, func(cancelled bool) { r(rpc.CancelResult{Cancelled: cancelled}) })
	return c.sessionError(p.SessionID, err)
}

// SessionConfigure changes a session; absent fields stay.
func (c *caller) SessionConfigure(ctx context.Context, p rpc.ConfigureParams, r rpc.Reply[rpc.SessionResult]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	err := c.host.sessions.Configure(ctx, session.ConfigureArgs{
		By: c.by, Session: p.SessionID, Title: p.Title, Policy: p.Policy, Budget: p.Budget, Labels: p.Labels, Options: p.Options,
	}, func(s frames.Session) { r(rpc.SessionResult{Session: s}) })
	return c.sessionError(p.SessionID, err)
}

// SessionClose makes a session cold.
func (c *caller) SessionClose(ctx context.Context, p rpc.CloseParams, r rpc.Reply[rpc.Empty]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	err := c.host.sessions.Close(ctx, c.by, p.SessionID, func() { rpc.Started(ctx) }, func() { r(rpc.Empty{}) })
	return c.sessionError(p.SessionID, err)
}

// SessionDelete removes a session and its log.
func (c *caller) SessionDelete(ctx context.Context, p rpc.DeleteParams, r rpc.Reply[rpc.Empty]) error {
	if err := c.see(p.SessionID); err != nil {
		return err
	}
	err := c.host.sessions.Delete(ctx, c.by, p.SessionID, p.Tree, func() { rpc.Started(ctx) }, func() { r(rpc.Empty{}) })
	return c.sessionError(p.SessionID, err)
}
