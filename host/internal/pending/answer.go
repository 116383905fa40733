package pending

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Answer is a client's answer to one request.
type Answer struct {
	Session frames.SessionID
	ID      frames.RequestID
	Kind    Kind
	// Outcome answers an approval: AllowedOnce, AllowedAlways or Rejected.
	Outcome frames.Outcome
	// InputHash, when not empty, must be the hash of the request's input.
	InputHash string
	Feedback  string
	By        *frames.By
	// Grant says what AllowedAlways is to cover; nil means the session for the
	// default time.
	Grant *GrantRequest
	// Answers or Cancel answer a question.
	Answers []frames.Answer
	Cancel  bool
}

// Answer settles a pending request with a client's answer. It blocks until the
// answer is recorded, or, if somebody was first, until the winner's decision is
// final. Once the answer has won, the end of ctx does not undo it.
//
// placed, which may be nil, is called once the answer is durable and before
// anything of it is published, and only then: it puts the response in place.
//
// Errors: *NotPendingError, *HashMismatchError and *InvalidAnswerError change
// nothing. *StorageError means that the answer could not be stored: an allow
// took no effect and the outcome is unavailable; a rejection or an answer to a
// question took effect at once and stands, which the error says.
func (t *Table) Answer(ctx context.Context, a Answer, placed func()) error {
	t.atPoint()
	e, won, err := t.win(ctx, a)
	if err != nil {
		return err
	}
	t.atPoint()
	if !won {
		return late(ctx, e, a)
	}
	var once sync.Once
	place := func() {
		if placed != nil {
			once.Do(placed)
		}
	}
	if a.Kind == KindApproval && a.Outcome.Allows() {
		err = t.carryAllow(ctx, e, a, place)
	} else {
		err = t.carryRefusal(ctx, e, place)
	}
	if err == nil {
		place()
	}
	t.decided(e)
	return err
}

// win claims the request for a. It returns false and the entry if somebody was
// first, and an error if a does not fit.
func (t *Table) win(ctx context.Context, a Answer) (*entry, bool, error) {
	now := t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[a.ID]
	if e == nil || e.req.Session != a.Session || e.req.Kind != a.Kind {
		return nil, false, &NotPendingError{ID: a.ID, Kind: a.Kind, Settled: t.past.settled(a)}
	}
	if e.claimed {
		return e, false, nil
	}
	if expired(e.req.ExpiresAt, now) {
		t.settle(ctx, []*entry{e}, t.timedOut)
		return e, false, nil
	}
	if err := t.admit(&e.req, a); err != nil {
		return nil, false, err
	}
	e.seen = true
	if a.Kind == KindApproval && a.Outcome.Allows() {
		return e, t.claim(e, allow(a, "", now)), nil
	}
	return e, t.claim(e, refuse(a, now)), nil
}

// expired reports whether a deadline has come; the zero deadline never does.
func expired(deadline, now time.Time) bool {
	return !deadline.IsZero() && !now.Before(deadline)
}

// late waits for the winner's decision and reports it.
func late(ctx context.Context, e *entry, a Answer) error {
	select {
	case <-e.final:
		return &NotPendingError{ID: a.ID, Kind: a.Kind, Settled: new(brief(e.s))}
	case <-ctx.Done():
		return fmt.Errorf("answer to %s %s: somebody else was first, and it is not yet recorded: %w", a.Kind, a.ID, context.Cause(ctx))
	}
}

// carryRefusal stores an answer that stands already.
func (t *Table) carryRefusal(ctx context.Context, e *entry, place func()) error {
	if err := t.record(ctx, e, e.s, place); err != nil {
		return &StorageError{ID: e.req.ID, Stands: true, Err: err}
	}
	return nil
}

// carryAllow stores an allowing answer that has won and makes it effective, or
// settles the request as unavailable.
func (t *Table) carryAllow(ctx context.Context, e *entry, a Answer, place func()) error {
	at := t.cfg.Now()
	var g Grant
	var err error
	if a.Outcome == frames.AllowedAlways {
		g = t.grants.draft(&e.req, a, at)
		err = t.grants.store(ctx, g)
	}
	s := allow(a, g.ID, at)
	if err == nil {
		err = t.record(ctx, e, s, place)
	}
	t.atPoint()
	if err == nil {
		if g.ID != "" {
			t.grants.activate(g)
		}
		t.mu.Lock()
		t.finish(e, s, nil)
		t.mu.Unlock()
		return nil
	}
	failed := &StorageError{ID: a.ID, Err: err}
	s = unavailable(e.req.Kind, at)
	t.mu.Lock()
	t.finish(e, s, failed)
	t.mu.Unlock()
	if g.ID != "" {
		t.grants.void(ctx, g, at)
	}
	_ = t.record(ctx, e, s, func() {}) // it stands in any case, and the recorder logs
	return failed
}
