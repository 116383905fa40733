package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/spec"
)

// caller does the methods for one connection: it checks what the client may see,
// and hands on. Scopes are checked before, by rpc.
type caller struct {
	host   *Host
	conn   *mux.Conn
	by     *frames.By
	scopes []rpc.Scope
	trees  []frames.SessionID // nil does not limit
	token  string             // its id
	until  time.Time          // when the token expires; zero is never
}

var _ rpc.API = (*caller)(nil)

func newCaller(h *Host, conn *mux.Conn, who auth.Principal, opt mux.AcceptOptions) *caller {
	return &caller{
		host: h, conn: conn, by: &frames.By{ClientID: opt.ID, Label: opt.Label},
		scopes: included(who.Scopes), trees: opt.Trees, token: who.TokenID, until: who.Expires,
	}
}

// included lists the scopes that those granted include, weakest first.
func included(granted []string) (out []rpc.Scope) {
	for _, s := range scopes {
		if slices.ContainsFunc(granted, func(g string) bool { return rpc.Scope(g).Includes(s) }) {
			out = append(out, s)
		}
	}
	return out
}

// client describes the caller to lists, with how it is ended.
func (c *caller) client(transport, remote string, end func(code int, reason string)) *client {
	return &client{end: end, ConnectedClient: rpc.ConnectedClient{
		ClientID: c.by.ClientID, Label: c.by.Label, TokenID: c.token, Scopes: c.scopes, Trees: c.trees,
		Transport: transport, Remote: remote, ConnectedAt: frames.At(time.Now()),
	}}
}

// see refuses sessions that do not exist and those that this client may not see,
// with the same error.
func (c *caller) see(sid frames.SessionID) error {
	if !c.exists(sid) || !c.within(sid) {
		return noSession(sid)
	}
	return nil
}

func (c *caller) exists(sid frames.SessionID) bool {
	_, ok := c.host.sessions.Get(sid)
	return ok
}

// within reports whether sid is in a tree that this client may see.
func (c *caller) within(sid frames.SessionID) bool {
	if c.trees == nil || slices.Contains(c.trees, sid) {
		return true
	}
	return slices.ContainsFunc(c.host.sessions.Ancestors(sid), func(a frames.SessionID) bool { return slices.Contains(c.trees, a) })
}

func noSession(sid frames.SessionID) *rpc.Error {
	return rpc.Errorf(rpc.KindSessionNotFound, "there is no session %.64q that this client may see; sessions.list names those there are", string(sid))
}

// HostDescribe tells who the host is and what it can do.
func (c *caller) HostDescribe(context.Context, rpc.Empty) (rpc.DescribeResult, error) {
	d := c.host.describe()
	d.You = rpc.You{ClientID: c.by.ClientID, Label: c.by.Label, Scopes: c.scopes}
	return d, nil
}

// RPCDiscover returns the OpenRPC document.
func (c *caller) RPCDiscover(context.Context, rpc.Empty) (rpc.DiscoverResult, error) {
	return rpc.DiscoverResult{Document: spec.OpenRPC}, nil
}

// Subscribe attaches sessions, trees and the inbox to this connection. The hub
// knows the client's trees and answers for invisible sessions as for unknown ones.
func (c *caller) Subscribe(ctx context.Context, p rpc.SubscribeParams, respond func(rpc.SubscribeResult) []byte) error {
	req := mux.SubscribeRequest{Host: p.Host}
	for _, s := range p.Sessions {
		c.host.publisher.await(ctx, s.SessionID, c.exists)
		req.Sessions = append(req.Sessions, mux.SubscribeEntry{SessionID: s.SessionID, Since: s.Since, Epoch: s.Epoch, Tree: s.Tree || p.Tree})
	}
	if d := p.Delivery; d != nil {
		req.Delivery = &mux.Delivery{Text: d.Text, Reasoning: d.Reasoning, Tools: d.Tools}
	}
	err := c.conn.Subscribe(ctx, req, func(rs []mux.SubscribeResult) []byte {
		out := make(rpc.SubscribeResult, len(rs))
		for i, r := range rs {
			out[i] = rpc.Subscribed{SessionID: r.SessionID, Head: r.Head, Epoch: r.Epoch}
			if r.Err != nil {
				out[i].Error = rpc.WireErrorOf(c.subscribeError(r.SessionID, r.Err))
			}
		}
		return respond(out)
	})
	if err != nil && len(p.Sessions) > 0 {
		return c.subscribeError(p.Sessions[0].SessionID, err)
	}
	return c.wireError(err)
}

// subscribeError names the session of an entry that failed.
func (c *caller) subscribeError(sid frames.SessionID, err error) error {
	if errors.Is(err, mux.ErrNoSession) {
		return noSession(sid)
	}
	return c.wireError(err)
}

// Unsubscribe ends subscriptions of this connection.
func (c *caller) Unsubscribe(ctx context.Context, p rpc.UnsubscribeParams, respond func(rpc.Empty) []byte) error {
	return c.wireError(c.conn.Unsubscribe(ctx, p.Sessions, p.Host, func() []byte { return respond(rpc.Empty{}) }))
}

// BlobRead returns a page of a blob. A blob's id is the digest of its content and
// found only in events, so who names one has seen it.
func (c *caller) BlobRead(ctx context.Context, p rpc.BlobReadParams) (rpc.BlobReadResult, error) {
	limit := p.Limit
	if limit == 0 {
		limit = 64 << 10
	}
	page, err := c.host.blobs.Read(ctx, p.Blob, p.Offset, limit)
	if err != nil {
		return rpc.BlobReadResult{}, c.wireError(err)
	}
	return rpc.BlobReadResult{Data: page.Data, Bytes: page.Bytes, More: p.Offset+int64(len(page.Data)) < page.Bytes}, nil
}

// wireError says err in the words of the wire; what it does not know stays as it
// is, and the client is told no more than "internal error". What clients are told
// without its cause is logged.
func (c *caller) wireError(err error) error {
	if err == nil {
		return nil
	}
	out, secret := translate(err)
	if secret {
		c.host.cfg.Logger.Warn("a call failed", slog.String("client", string(c.by.ClientID)), slog.Any("err", err))
	}
	if out == nil {
		return fmt.Errorf("host: %w", err)
	}
	return out
}
