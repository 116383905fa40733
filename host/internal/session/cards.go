package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/store"
)

// deal keeps the card of an open request for [Manager.Pending].
func (m *Manager) deal(k *ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cards[k.req.ID] = k.card
}

// collect takes the card away.
func (m *Manager) collect(k *ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.cards, k.req.ID)
}

// Pending returns what waits for a person in the tree of sid, or everywhere,
// oldest first.
func (m *Manager) Pending(sid frames.SessionID) []frames.Frame {
	var reqs []pending.Request
	if sid == "" {
		reqs = m.table.OpenAll()
	} else {
		reqs = m.table.Open(m.treeOf(sid)...)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]frames.Frame, 0, len(reqs))
	for _, r := range reqs {
		if c := m.cards[r.ID]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

// treeOf returns sid and its descendants.
func (m *Manager) treeOf(sid frames.SessionID) []frames.SessionID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.dir.byID[sid]
	if e == nil {
		return nil
	}
	return append([]frames.SessionID{sid}, ids(e.below())...)
}

// Answer settles a request with a client's answer; see [pending.Table.Answer].
func (m *Manager) Answer(ctx context.Context, a pending.Answer, placed func()) error {
	return m.table.Answer(ctx, a, placed)
}

// Grants returns the stored "always" answers that hold.
func (m *Manager) Grants() []pending.Grant { return m.table.Grants().List() }

// RevokeGrant ends a grant; it returns when that is durable.
func (m *Manager) RevokeGrant(ctx context.Context, id frames.GrantID) error {
	err := m.table.Grants().Revoke(ctx, id)
	if _, unknown := errors.AsType[*pending.GrantNotFoundError](err); err != nil && !unknown {
		return &StorageError{err}
	}
	return err
}

// grantRows keeps grants in [store.TableGrant]. A grant is saved before the answer
// that gives it is decided; the decision's append adds the row of givenKey, and a
// grant without one was never given.
type grantRows struct{ store store.Store }

// givenKey is the key in [store.TableHost] which says that the decision that gave
// a grant is in the log.
func givenKey(id frames.GrantID) string { return "given/" + string(id) }

// given is the row that goes with a decision which gives a grant.
func given(id frames.GrantID) store.Row {
	return store.Row{Table: store.TableHost, Key: givenKey(id), Value: []byte(id)}
}

// Load implements [pending.GrantStore].
func (g grantRows) Load(ctx context.Context) ([]pending.Grant, error) {
	var out []pending.Grant
	after := ""
	for {
		rows, err := g.store.Scan(ctx, store.TableGrant, "", after, 0)
		if err != nil || len(rows) == 0 {
			return out, err
		}
		for _, r := range rows {
			var v pending.Grant
			if err := json.Unmarshal(r.Value, &v); err != nil {
				return nil, fmt.Errorf("grant %s: %w: %v", r.Key, store.ErrCorrupt, err)
			}
			after = r.Key
			sure, err := g.store.Get(ctx, store.TableHost, givenKey(v.ID))
			if err != nil {
				return nil, err
			}
			if sure != nil {
				out = append(out, v)
			}
		}
	}
}

// Save implements [pending.GrantStore].
func (g grantRows) Save(ctx context.Context, v pending.Grant) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return g.store.Put(ctx, store.Row{Table: store.TableGrant, Key: string(v.ID), Value: b})
}
