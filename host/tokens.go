package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// tokenRow is how a token that was made is stored.
func tokenRow(m auth.Minted) (store.Row, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return store.Row{}, fmt.Errorf("host: store a token: %w", err)
	}
	return store.Row{Table: store.TableToken, Key: m.ID, Value: b}, nil
}

// loadTokens lets the tokens hold that were made before. One whose maker is gone, or
// has another secret now, does not hold, and none grants more than its maker does
// now: the configuration may have changed. Those that have expired are removed.
func (h *Host) loadTokens(ctx context.Context) error {
	all, err := h.storedTokens(ctx)
	if err != nil {
		return fmt.Errorf("host: read the tokens: %w", err)
	}
	var over []string
	all = slices.DeleteFunc(all, func(m auth.Minted) bool {
		ended := !m.ExpiresAt.IsZero() && !time.Now().Before(m.ExpiresAt)
		if ended {
			over = append(over, m.ID)
		}
		return ended
	})
	// Makers are older than what they made, unless the clock was set back.
	slices.SortFunc(all, func(a, b auth.Minted) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for before := len(all) + 1; len(all) < before; {
		before = len(all)
		all = slices.DeleteFunc(all, h.loadToken)
	}
	for _, m := range all {
		h.cfg.Logger.Warn("a stored token does not hold: the token that made it does not, or has another secret now", slog.String("token", m.ID), slog.String("madeBy", m.MadeBy))
	}
	if len(over) == 0 {
		return nil
	}
	if err := h.cfg.Store.Put(ctx, dropRows(over)...); err != nil {
		return fmt.Errorf("host: remove expired tokens: %w", err)
	}
	return nil
}

// loadToken lets a stored token hold, and reports whether it does.
func (h *Host) loadToken(m auth.Minted) bool {
	t := h.gate.Tokens()
	maker, digest, ok := t.Of(m.MadeBy)
	if !ok || digest != m.MakerDigest {
		return false
	}
	h.confine(&m, maker)
	if err := t.Reserve(m); err != nil {
		h.cfg.Logger.Warn("a stored token cannot hold", slog.String("token", m.ID), slog.Any("err", err))
		return false
	}
	return t.Activate(m.ID)
}

// storedTokens reads all rows. One that cannot be read grants nothing.
func (h *Host) storedTokens(ctx context.Context) ([]auth.Minted, error) {
	var all []auth.Minted
	for after := ""; ; {
		rows, err := h.cfg.Store.Scan(ctx, store.TableToken, "", after, 0)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			var m auth.Minted
			if err := json.Unmarshal(row.Value, &m); err != nil || m.ID != row.Key {
				h.cfg.Logger.Warn("a stored token cannot be read, and does not hold", slog.String("token", row.Key), slog.Any("err", err))
				continue
			}
			all = append(all, m)
		}
		if len(rows) == 0 {
			return all, nil
		}
		after = rows[len(rows)-1].Key
	}
}

// confine takes from a token what its maker does not have.
func (h *Host) confine(m *auth.Minted, maker auth.Principal) {
	has := included(maker.Scopes)
	if slices.ContainsFunc(m.Scopes, func(s string) bool { return !slices.Contains(has, rpc.Scope(s)) }) {
		m.Scopes = maker.Scopes
	}
	if !maker.Expires.IsZero() && (m.ExpiresAt.IsZero() || m.ExpiresAt.After(maker.Expires)) {
		m.ExpiresAt = maker.Expires
	}
	if maker.Trees == nil {
		return
	}
	if m.Trees == nil {
		m.Trees = maker.Trees
		return
	}
	m.Trees = slices.DeleteFunc(m.Trees, func(sid string) bool {
		above := append(h.sessions.Ancestors(frames.SessionID(sid)), frames.SessionID(sid))
		return !slices.ContainsFunc(above, func(a frames.SessionID) bool { return slices.Contains(maker.Trees, string(a)) })
	})
}
