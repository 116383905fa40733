package pending

import (
	"context"
	"fmt"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Ask asks for r and blocks until it is settled.
//
// It enters r, runs opened (which appends the audit event and publishes the
// frame), and waits for the first of: an answer, the cancellation of the turn or
// session, the end of ctx (the agent withdrew: cancelled/abort), the deadline
// (rejected/timeout; a question is cancelled), shutdown. An allow is returned
// only after rec has stored it; everything else at once.
//
// If the turn is marked, ctx is over or the table is draining, r is settled
// without opened and rec being called: to audit it is the caller's business.
// opened and rec get ctx without its cancellation, bounded by RecordTimeout, so
// that a withdrawal leaves nothing half written. If opened fails, r ends
// unavailable/abort and nothing is recorded, unless a client knows of it
// already.
//
// The error is not nil only if r could not be asked or stored; the settlement
// never allows then. Errors: *InvalidRequestError, [ErrFull], *StorageError,
// that of opened.
func (t *Table) Ask(ctx context.Context, r Request, rec Recorder, opened func(context.Context) error) (Settlement, error) {
	if err := r.check(); err != nil {
		return unavailable(r.Kind, t.cfg.Now()), err
	}
	if ctx.Err() != nil {
		return cancelled(frames.CauseAbort, t.cfg.Now()), nil
	}
	e, s, err := t.insert(r, rec)
	if e == nil {
		return s, err
	}
	t.openUp(ctx, e, opened)
	t.await(ctx, e)
	return e.s, e.err
}

// openUp runs the opened callback. Whoever claimed e meanwhile waits for it with
// the recording.
func (t *Table) openUp(ctx context.Context, e *entry, opened func(context.Context) error) {
	octx, cancel := t.finishing(ctx)
	defer cancel()
	err := opened(octx)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(e.opened)
	if err == nil {
		return
	}
	e.openErr = fmt.Errorf("ask %s %s: %w", e.req.Kind, e.req.ID, err)
	if !e.claimed {
		t.settle(ctx, []*entry{e}, func(e *entry) Settlement { return unavailable(e.req.Kind, t.cfg.Now()) })
		e.err = e.openErr
	}
}

// await returns when e is final.
func (t *Table) await(ctx context.Context, e *entry) {
	var deadline <-chan time.Time
	if !e.req.ExpiresAt.IsZero() {
		timer := time.NewTimer(e.req.ExpiresAt.Sub(t.cfg.Now()))
		defer timer.Stop()
		deadline = timer.C
	}
	select {
	case <-e.final:
		return
	case <-deadline:
		t.atPoint()
		t.expire(ctx, e)
	case <-ctx.Done():
		t.atPoint()
		t.withdraw(ctx, e)
	}
	<-e.final
}

// expire settles e as its deadline does, unless somebody was first.
func (t *Table) expire(ctx context.Context, e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(ctx, []*entry{e}, t.timedOut)
}

// timedOut is how the deadline settles.
func (t *Table) timedOut(e *entry) Settlement {
	return denied(e.req.Kind, frames.CauseTimeout, t.cfg.Now())
}

// withdraw settles e because its agent no longer waits, unless somebody was
// first.
func (t *Table) withdraw(ctx context.Context, e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(ctx, []*entry{e}, func(*entry) Settlement { return cancelled(frames.CauseAbort, t.cfg.Now()) })
}

// settle claims every entry that nobody has won with a settlement that does not
// allow, and has them recorded, oldest first, by a goroutine of the table. mu is
// held.
func (t *Table) settle(ctx context.Context, es []*entry, as func(*entry) Settlement) {
	byAge(es)
	var won []*entry
	for _, e := range es {
		if t.claim(e, as(e)) {
			won = append(won, e)
		}
	}
	if len(won) == 0 {
		return
	}
	t.wg.Go(func() {
		for _, e := range won {
			_ = t.record(ctx, e, e.s, func() {}) // it stands in any case, and the recorder logs
			t.decided(e)
		}
	})
}

// record has s recorded once e is open. A request that failed to open and that
// nobody knows of leaves no record.
func (t *Table) record(ctx context.Context, e *entry, s Settlement, placed func()) error {
	<-e.opened
	t.mu.Lock()
	unknown := e.openErr != nil && !e.seen
	t.mu.Unlock()
	if unknown {
		return e.openErr
	}
	if e.openErr != nil && s.Outcome.Allows() {
		return e.openErr
	}
	rctx, cancel := t.finishing(ctx)
	defer cancel()
	return e.rec.Decided(rctx, e.req, s, placed)
}

// finishing returns a context for work that must be finished though ctx ends:
// it ends after RecordTimeout, or when Shutdown gives up.
func (t *Table) finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cfg.RecordTimeout)
	unhook := context.AfterFunc(t.base, cancel)
	return ctx, func() { unhook(); cancel() }
}
