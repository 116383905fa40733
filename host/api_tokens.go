package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// Bounds of a token that is made.
const (
	maxTokenTrees = 256
	maxTokenMs    = 100 * 365 * 24 * 3600 * 1000 // a hundred years
)

// reaches reports whether the client may know of a token: its own and those made
// with it, and every one if it is not limited to trees.
func (c *caller) reaches(token string) bool {
	return c.trees == nil || c.host.gate.Tokens().Reaches(c.token, token)
}

// ClientsList lists the connections, of tokens that the client may know of.
func (c *caller) ClientsList(context.Context, rpc.Empty) (rpc.ClientsResult, error) {
	var out rpc.ClientsResult
	for _, x := range c.host.seats.list() {
		if c.reaches(x.TokenID) {
			out.Clients = append(out.Clients, x)
		}
	}
	return out, nil
}

// TokensList lists the tokens that the client may know of.
func (c *caller) TokensList(context.Context, rpc.Empty) (rpc.TokensResult, error) {
	clients := map[string]int{}
	for _, x := range c.host.seats.list() {
		clients[x.TokenID]++
	}
	var out rpc.TokensResult
	for _, t := range c.host.gate.Tokens().List() {
		if c.reaches(t.TokenID) {
			info := tokenInfo(t)
			info.Clients = clients[t.TokenID]
			out.Tokens = append(out.Tokens, info)
		}
	}
	return out, nil
}

func tokenInfo(t auth.Info) rpc.TokenInfo {
	info := rpc.TokenInfo{ID: t.TokenID, Label: t.Label, Scopes: included(t.Scopes), MadeBy: t.MadeBy}
	if t.Trees != nil {
		info.Trees = []frames.SessionID{}
	}
	for _, sid := range t.Trees {
		info.Trees = append(info.Trees, frames.SessionID(sid))
	}
	if !t.CreatedAt.IsZero() {
		info.CreatedAt = frames.At(t.CreatedAt)
	}
	if !t.Expires.IsZero() {
		info.ExpiresAt = frames.At(t.Expires)
	}
	return info
}

// TokensCreate makes a token that grants no more than the client's own, and tells
// its secret this once.
func (c *caller) TokensCreate(ctx context.Context, p rpc.TokenCreateParams, r rpc.Reply[rpc.TokenCreateResult]) error {
	secret := auth.NewSecret()
	m := auth.Minted{
		ID: newID(), Digest: auth.Digest(secret), Label: auth.CleanLabel(p.Label), Scopes: []string{string(p.Scope)},
		MadeBy: c.token, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	if m.Label == "" {
		return rpc.Paramsf(`params.label: expected letters that a person recognises the client by, such as "my phone"`)
	}
	if !c.may(p.Scope) {
		return rpc.Errorf(rpc.KindForbidden, "a token cannot grant %s: that is more than this client has", p.Scope)
	}
	if err := c.mintTrees(&m, p.Trees); err != nil {
		return err
	}
	if err := c.mintTime(&m, p.ForMs); err != nil {
		return err
	}
	if err := c.host.mint(ctx, m); err != nil {
		return c.tokenError(m.ID, err)
	}
	info := tokenInfo(auth.Info{
		Principal: auth.Principal{TokenID: m.ID, Label: m.Label, Scopes: m.Scopes, Trees: m.Trees, Expires: m.ExpiresAt},
		MadeBy:    m.MadeBy, CreatedAt: m.CreatedAt,
	})
	c.host.cfg.Logger.Info("token made", slog.String("token", m.ID), slog.String("by", c.token))
	r(rpc.TokenCreateResult{Token: info, Secret: secret})
	return nil
}

// mintTrees limits a new token to trees, each of which the client sees.
func (c *caller) mintTrees(m *auth.Minted, trees []frames.SessionID) error {
	switch {
	case trees == nil && c.trees != nil:
		return rpc.Errorf(rpc.KindForbidden, "this client is limited to session trees; give trees, each of them or below one")
	case trees == nil:
		return nil
	case len(trees) == 0 || len(trees) > maxTokenTrees:
		return rpc.Paramsf("params.trees: expected 1 to %d sessions, got %d; leave it out for no limit", maxTokenTrees, len(trees))
	}
	for _, sid := range trees {
		if err := c.see(sid); err != nil {
			return err
		}
		m.Trees = append(m.Trees, string(sid))
	}
	return nil
}

// mintTime says when a new token ends: not after the client's own.
func (c *caller) mintTime(m *auth.Minted, forMs *int64) error {
	m.ExpiresAt = c.until
	if forMs == nil {
		return nil
	}
	if *forMs > maxTokenMs {
		return rpc.Paramsf("params.forMs: expected at most %d, got %d; leave it out for a token that does not expire", int64(maxTokenMs), *forMs)
	}
	end := m.CreatedAt.Add(time.Duration(*forMs) * time.Millisecond)
	if !c.until.IsZero() && end.After(c.until) {
		return rpc.Errorf(rpc.KindForbidden, "this client's own token ends at %s; give a forMs that ends before, or none", frames.At(c.until).UTC().Format(time.RFC3339))
	}
	m.ExpiresAt = end
	return nil
}

// tokenError says errors of the table of tokens in the words of the wire.
func (c *caller) tokenError(id string, err error) error {
	switch {
	case errors.Is(err, errMakerGone):
		return rpc.Errorf(rpc.KindForbidden, "this client's own token was revoked or has expired, so it makes no others")
	case errors.Is(err, auth.ErrTooManyTokens):
		return rpc.Errorf(rpc.KindRateLimited, "there are %d tokens, which is as many as there may be; revoke some", auth.MaxMinted)
	case errors.Is(err, auth.ErrConfigured):
		return rpc.Errorf(rpc.KindForbidden, "token %.64q is of the host's own configuration and cannot be revoked here; take it out there and start the host anew, which ends those it made too (for muxhost serve: stop it, remove the file token in its state directory, start it)", id)
	case errors.Is(err, auth.ErrUnknownToken):
		return rpc.Paramsf("params.id: expected the id of a token in tokens.list, got %.64q; it may have been revoked already", id)
	}
	return c.wireError(err)
}

// TokensRevoke ends a token and those it made. Who uses them is cut off first; the
// answer comes once that is stored.
func (c *caller) TokensRevoke(ctx context.Context, p rpc.TokenRevokeParams, r rpc.Reply[rpc.Empty]) error {
	if !c.reaches(p.ID) {
		return c.tokenError(p.ID, auth.ErrUnknownToken)
	}
	ids, err := c.host.revoke(ctx, p.ID, c.by.ClientID)
	own := c.conn != nil && !c.host.gate.Tokens().Holds(c.token)
	if own {
		defer c.conn.Finish(closeToken, "the token was revoked") // behind its own answer
	}
	if len(ids) > 0 && err != nil {
		_ = c.wireError(err) // for the log
		return rpc.Errorf(rpc.KindStorageFailed, "the token is shut out until the host starts anew, but that could not be stored; revoke it again, and see the host's log")
	}
	if err != nil {
		return c.tokenError(p.ID, err)
	}
	c.host.cfg.Logger.Info("tokens revoked", slog.Any("tokens", ids), slog.String("by", c.token))
	r(rpc.Empty{})
	return nil
}

// errMakerGone means that a token was revoked while it made another.
var errMakerGone = errors.New("host: the token that makes another holds no more")

// mint stores a new token and lets it hold.
func (h *Host) mint(ctx context.Context, m auth.Minted) error {
	t := h.gate.Tokens()
	_, m.MakerDigest, _ = t.Of(m.MadeBy) // if it holds no more, Reserve says so
	row, err := tokenRow(m)
	if err != nil {
		return err
	}
	if err := t.Reserve(m); errors.Is(err, auth.ErrUnknownToken) {
		return errMakerGone
	} else if err != nil {
		return err
	}
	rows := append(dropRows(t.Expire(time.Now())), row)
	if err := h.cfg.Store.Put(ctx, rows...); err != nil {
		t.Forget(m.ID)
		return fmt.Errorf("store a token: %w", err)
	}
	if t.Activate(m.ID) {
		return nil
	}
	// Who revoked its maker may have removed the row before it was there. If this
	// fails, the next start finds no maker and lets the token not hold either.
	err = h.cfg.Store.Put(ctx, dropRows([]string{m.ID})...)
	t.Forget(m.ID)
	return errors.Join(errMakerGone, err)
}

// revoke ends a token and those it made, cuts off who uses them, but for the client
// that asks, and stores it. Once it returns ids they hold no more, whatever err is.
func (h *Host) revoke(ctx context.Context, id string, asks frames.ClientID) ([]string, error) {
	ids, err := h.gate.Revoke(id)
	if err != nil {
		return nil, err
	}
	h.seats.evict(ids, "the token was revoked", func(c *client) bool { return c.ClientID == asks })
	if err := h.cfg.Store.Put(ctx, dropRows(ids)...); err != nil {
		return ids, fmt.Errorf("store that tokens are revoked: %w", err)
	}
	h.gate.Tokens().Forget(ids...)
	return ids, nil
}

func dropRows(ids []string) []store.Row {
	rows := make([]store.Row, len(ids))
	for i, id := range ids {
		rows[i] = store.Row{Table: store.TableToken, Key: id}
	}
	return rows
}
