package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// Call makes one call and decodes its result into result, which may be nil. It
// waits for a connection if there is none. Errors of the host are *[rpc.Error]
// (Details is a json.RawMessage) and *[RPCError]; a connection that breaks
// meanwhile gives a *[LostError], unless the method only reads: then the call is
// made again. Subscriptions made through Call are not remembered with their tree
// and delivery; use [Client.Subscribe].
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	raw, err := c.call(ctx, method, params, reads[method])
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("client: result of %s: %w", method, err)
	}
	return nil
}

// reads has the methods that only read, so that they can be repeated.
var reads = func() map[string]bool {
	m := make(map[string]bool)
	for _, info := range rpc.Methods() {
		m[info.Name] = !info.Changes && !slices.Contains([]string{"mux.subscribe", "mux.unsubscribe"}, info.Name)
	}
	return m
}()

// call makes a call over whatever connection there is; with again also over the
// next one when the first breaks.
func (c *Client) call(ctx context.Context, method string, params any, again bool) (json.RawMessage, error) {
	c.queue.waiting(1)
	defer c.queue.waiting(-1)
	for {
		l, err := c.current(ctx)
		if err != nil {
			return nil, err
		}
		raw, err := l.call(ctx, method, params, nil)
		if !c.repeats(err, again) {
			return raw, err
		}
		if err := l.left(ctx); err != nil {
			return nil, err
		}
	}
}

// repeats reports whether a call that failed with err goes to the next
// connection. A consumer that does not take frames would break that one too.
func (c *Client) repeats(err error, again bool) bool {
	if errors.Is(err, errNotSent) {
		return true
	}
	_, lost := errors.AsType[*LostError](err)
	return lost && again && c.ended() == nil && !errors.Is(err, errOverrun)
}

// do is Call with a typed result.
func do[R any](ctx context.Context, c *Client, method string, params any) (R, error) {
	var r R
	err := c.Call(ctx, method, params, &r)
	return r, err
}

// Describe asks who the host is and who this client is.
func (c *Client) Describe(ctx context.Context) (rpc.DescribeResult, error) {
	return do[rpc.DescribeResult](ctx, c, "host.describe", rpc.Empty{})
}

// Create creates a session.
func (c *Client) Create(ctx context.Context, p rpc.CreateParams) (frames.Session, error) {
	r, err := do[rpc.SessionResult](ctx, c, "session.create", p)
	return r.Session, err
}

// Prompt sends a prompt.
func (c *Client) Prompt(ctx context.Context, p rpc.PromptParams) (rpc.PromptResult, error) {
	return do[rpc.PromptResult](ctx, c, "session.prompt", p)
}

// Cancel marks turns as cancelled and reports whether any was.
func (c *Client) Cancel(ctx context.Context, p rpc.CancelParams) (bool, error) {
	r, err := do[rpc.CancelResult](ctx, c, "session.cancel", p)
	return r.Cancelled, err
}

// Configure changes a session; absent fields stay.
func (c *Client) Configure(ctx context.Context, p rpc.ConfigureParams) (frames.Session, error) {
	r, err := do[rpc.SessionResult](ctx, c, "session.configure", p)
	return r.Session, err
}

// CloseSession makes a session cold.
func (c *Client) CloseSession(ctx context.Context, sid frames.SessionID) error {
	return c.Call(ctx, "session.close", rpc.CloseParams{SessionID: sid}, nil)
}

// Delete removes a session, with tree its descendants too.
func (c *Client) Delete(ctx context.Context, sid frames.SessionID, tree bool) error {
	return c.Call(ctx, "session.delete", rpc.DeleteParams{SessionID: sid, Tree: tree}, nil)
}

// Respond answers an approval. nil means that this answer won.
func (c *Client) Respond(ctx context.Context, p rpc.ApprovalParams) error {
	return c.Call(ctx, "approval.respond", p, nil)
}

// Answer answers or cancels a question. nil means that this answer won.
func (c *Client) Answer(ctx context.Context, p rpc.QuestionParams) error {
	return c.Call(ctx, "question.respond", p, nil)
}

// List returns one page of summaries.
func (c *Client) List(ctx context.Context, p rpc.ListParams) (rpc.ListResult, error) {
	return do[rpc.ListResult](ctx, c, "sessions.list", p)
}

// ListAll yields the summaries of all pages. An error is the last pair.
func (c *Client) ListAll(ctx context.Context, p rpc.ListParams) iter.Seq2[frames.Session, error] {
	return func(yield func(frames.Session, error) bool) {
		for {
			page, err := c.List(ctx, p)
			if err != nil {
				yield(frames.Session{}, err)
				return
			}
			for _, s := range page.Sessions {
				if !yield(s, nil) {
					return
				}
			}
			if p.Cursor = page.Next; p.Cursor == "" {
				return
			}
		}
	}
}

// Get returns a summary and, on request, the fold.
func (c *Client) Get(ctx context.Context, p rpc.GetParams) (rpc.GetResult, error) {
	return do[rpc.GetResult](ctx, c, "session.get", p)
}

// History returns one page of durable events.
func (c *Client) History(ctx context.Context, p rpc.HistoryParams) (rpc.HistoryResult, error) {
	return do[rpc.HistoryResult](ctx, c, "session.history", p)
}

// Pending returns what waits for a person, oldest first; tree limits it to one
// tree when not empty.
func (c *Client) Pending(ctx context.Context, tree frames.SessionID) ([]rpc.Pending, error) {
	r, err := do[rpc.PendingResult](ctx, c, "pending.list", rpc.PendingParams{Tree: tree})
	return r.Pending, err
}

// Grants returns the stored "always" answers.
func (c *Client) Grants(ctx context.Context) ([]rpc.Grant, error) {
	r, err := do[rpc.GrantsResult](ctx, c, "grants.list", rpc.Empty{})
	return r.Grants, err
}

// Revoke removes a stored "always".
func (c *Client) Revoke(ctx context.Context, id frames.GrantID) error {
	return c.Call(ctx, "grants.revoke", rpc.RevokeParams{ID: id}, nil)
}

// Fork creates a session that goes on from the end of a turn of another.
func (c *Client) Fork(ctx context.Context, p rpc.ForkParams) (frames.Session, error) {
	r, err := do[rpc.SessionResult](ctx, c, "session.fork", p)
	return r.Session, err
}

// Export writes the log of a session into a blob, which [Client.ReadBlob] reads.
func (c *Client) Export(ctx context.Context, p rpc.ExportParams) (rpc.ExportResult, error) {
	return do[rpc.ExportResult](ctx, c, "session.export", p)
}
