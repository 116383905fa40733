package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// Subscribe subscribes sessions, trees or the host inbox, and remembers them:
// after a reconnect each is resumed from its cursor, with its delivery, a tree with
// all its descendants. When the connection breaks meanwhile the call is made
// again. An entry that failed carries its Error and is not remembered.
func (c *Client) Subscribe(ctx context.Context, p rpc.SubscribeParams) (rpc.SubscribeResult, error) {
	var results rpc.SubscribeResult
	err := c.alone(ctx, "mux.subscribe", p, func(raw []byte) {
		results = nil
		if json.Unmarshal(raw, &results) == nil {
			c.book.accept(p, results)
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Unsubscribe ends subscriptions. Of a tree's root it ends the tree, of one
// descendant it leaves that one out.
func (c *Client) Unsubscribe(ctx context.Context, p rpc.UnsubscribeParams) error {
	return c.alone(ctx, "mux.unsubscribe", p, func([]byte) { c.book.forget(p) })
}

// alone makes a call that changes subscriptions, one at a time, until its response
// came.
func (c *Client) alone(ctx context.Context, method string, params any, first func([]byte)) error {
	select {
	case c.gate <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.gate }()
	c.queue.waiting(1)
	defer c.queue.waiting(-1)
	for {
		l, err := c.resumedLink(ctx)
		if err != nil {
			return err
		}
		_, err = l.call(ctx, method, params, first)
		if !c.repeats(err, true) {
			return err
		}
		if err := l.left(ctx); err != nil {
			return err
		}
	}
}

// resumedLink waits for a connection whose resume is done, so that the host knows
// the cursors that a call without since keeps.
func (c *Client) resumedLink(ctx context.Context) (*link, error) {
	for {
		l, err := c.current(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case <-l.ready:
			return l, nil
		case <-l.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// resume subscribes everything again on a new connection.
func (c *Client) resume(l *link) error {
	calls, left := c.book.params()
	for _, p := range calls {
		if err := c.resumeCall(l, p); err != nil {
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}
	_, err := l.call(l.ctx, "mux.unsubscribe", rpc.UnsubscribeParams{Sessions: left}, nil)
	return err
}

// resumeCall makes one call of the resume. Entries that fail start anew or are
// dropped, with a notice to the consumer; if all fail, the host names only the
// first, and the others are tried without it.
func (c *Client) resumeCall(l *link, p rpc.SubscribeParams) error {
	raw, err := l.call(l.ctx, "mux.subscribe", p, nil)
	if _, ok := errors.AsType[*rpc.Error](err); ok && len(p.Sessions) > 0 {
		if err := c.resumeFailed(l, p.Sessions[0].SessionID, err); err != nil {
			return err
		}
		p.Sessions = p.Sessions[1:]
		if len(p.Sessions) == 0 && !p.Host {
			return nil
		}
		return c.resumeCall(l, p)
	}
	if err != nil {
		return err
	}
	var results rpc.SubscribeResult
	if err := json.Unmarshal(raw, &results); err != nil {
		return fmt.Errorf("result of mux.subscribe: %w", err)
	}
	for _, r := range results {
		if r.Error == nil {
			continue
		}
		if err := c.resumeFailed(l, r.SessionID, errorOf(r.Error)); err != nil {
			return err
		}
	}
	return nil
}

// resumeFailed deals with a session that could not be resumed from its cursor.
func (c *Client) resumeFailed(l *link, sid frames.SessionID, err error) error {
	e, _ := errors.AsType[*rpc.Error](err)
	switch kindOf(e) {
	case rpc.KindCursorExpired, rpc.KindCursorAhead:
		return c.restart(l, sid)
	case rpc.KindSessionNotFound:
		return c.gone(sid, "deleted")
	case rpc.KindForbidden:
		return c.gone(sid, "forbidden")
	}
	return fmt.Errorf("session %s: %w", sid, err)
}

func kindOf(e *rpc.Error) rpc.Kind {
	if e == nil {
		return ""
	}
	return e.Kind
}

// restart subscribes a session from its first event, after a [Reset].
func (c *Client) restart(l *link, sid frames.SessionID) error {
	if err := c.notice(&Reset{sid}); err != nil {
		return err
	}
	c.book.restart(sid)
	p, ok := c.book.again(sid)
	if !ok {
		return nil
	}
	_, err := l.call(l.ctx, "mux.subscribe", p, nil)
	if e, ok := errors.AsType[*rpc.Error](err); ok && e.Kind == rpc.KindSessionNotFound {
		return c.gone(sid, "deleted")
	}
	return err
}

// gone drops a session and tells the consumer.
func (c *Client) gone(sid frames.SessionID, reason string) error {
	if err := c.notice(&frames.SessionUnsubscribed{SessionID: sid, Reason: reason}); err != nil {
		return err
	}
	c.book.remove(sid)
	return nil
}
