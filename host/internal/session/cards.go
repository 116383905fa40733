package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

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

// lookBack bounds how many events are searched for how a request ended.
const lookBack = 512

// Answer settles a request with a client's answer; see [pending.Table.Answer].
// How a request ended that the table does not know, since it was settled before
// the host started, is looked up near the end of the log: a client whose
// acknowledgement was lost asks soon.
func (m *Manager) Answer(ctx context.Context, a pending.Answer, placed func()) error {
	err := m.table.Answer(ctx, a, placed)
	if e, ok := errors.AsType[*pending.NotPendingError](err); ok && e.Settled == nil {
		e.Settled = m.ended(ctx, a)
	}
	return err
}

// ended looks for the end of a request in the log; nil if it is not there.
func (m *Manager) ended(ctx context.Context, a pending.Answer) *pending.Settlement {
	page, err := m.History(ctx, a.Session, nil, nil, lookBack, maxPageBytes)
	if err != nil {
		return nil // what is not known stays so
	}
	for _, enc := range slices.Backward(page.Events) {
		if enc.Type != frames.ApprovalDecidedEvent && enc.Type != frames.QuestionDecidedEvent {
			continue
		}
		e, err := frames.DecodeEvent(enc.Data)
		if err != nil {
			continue
		}
		p, _ := e.Payload()
		switch p := p.(type) {
		case *frames.ApprovalDecided:
			if p.ID == a.ID && a.Kind == pending.KindApproval {
				return &pending.Settlement{Outcome: p.Outcome, Cause: p.Origin, By: p.By, Grant: p.Grant, At: e.Time.Time}
			}
		case *frames.QuestionDecided:
			if p.ID == a.ID && a.Kind == pending.KindQuestion {
				return &pending.Settlement{Outcome: p.Outcome, Cause: p.Origin, By: p.By, At: e.Time.Time}
			}
		}
	}
	return nil
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
			if !v.Holds(time.Now()) { // its time is over; nobody asks for it any more
				_ = g.forget(ctx, v.ID) // on a full disk, say: the next start tries again
				continue
			}
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

// forget removes the rows of a grant.
func (g grantRows) forget(ctx context.Context, id frames.GrantID) error {
	return g.store.Put(ctx, store.Row{Table: store.TableGrant, Key: string(id)}, store.Row{Table: store.TableHost, Key: givenKey(id)})
}

// Save implements [pending.GrantStore].
func (g grantRows) Save(ctx context.Context, v pending.Grant) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return g.store.Put(ctx, store.Row{Table: store.TableGrant, Key: string(v.ID), Value: b})
}
