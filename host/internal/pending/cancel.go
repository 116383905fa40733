package pending

import (
	"context"

	"github.com/muxhost/muxhost/frames"
)

// CancelTurn marks a turn and settles everything pending in it as
// cancelled/cause (abort, or cascade where an ancestor was cancelled). Until
// [Table.ForgetTurn], whatever the turn asks is settled so at once, unasked.
//
// It returns when the requests are settled for their agents; they are recorded
// afterwards, oldest first: see [Table.Recorded].
func (t *Table) CancelTurn(ctx context.Context, session frames.SessionID, turn frames.TurnID, cause frames.Cause) {
	t.atPoint()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marks[turnKey{session, turn}] = cause
	var es []*entry
	for e := range t.open[session] {
		if e.req.Turn == turn {
			es = append(es, e)
		}
	}
	t.settle(ctx, es, func(*entry) Settlement { return cancelled(cause, t.cfg.Now()) })
}

// ForgetTurn drops the mark of a turn that has ended.
func (t *Table) ForgetTurn(session frames.SessionID, turn frames.TurnID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.marks, turnKey{session, turn})
}

// CancelOutside settles what is pending in a session and belongs to no turn as
// cancelled/cause. It marks nothing, and returns as CancelTurn.
func (t *Table) CancelOutside(ctx context.Context, session frames.SessionID, cause frames.Cause) {
	t.atPoint()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(ctx, t.outside(session), func(*entry) Settlement { return cancelled(cause, t.cfg.Now()) })
}

// Outside returns how many requests are pending in a session that belong to no turn.
func (t *Table) Outside(session frames.SessionID) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.outside(session))
}

// outside returns the open entries of a session that belong to no turn. mu is held.
func (t *Table) outside(session frames.SessionID) []*entry {
	var es []*entry
	for e := range t.open[session] {
		if e.req.Turn == "" {
			es = append(es, e)
		}
	}
	return es
}

// CancelSession settles everything pending in a session as cancelled/cause. It
// marks nothing: what is asked afterwards is asked. It returns as CancelTurn.
func (t *Table) CancelSession(ctx context.Context, session frames.SessionID, cause frames.Cause) {
	t.atPoint()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(ctx, t.openOf(session), func(*entry) Settlement { return cancelled(cause, t.cfg.Now()) })
}

// ModeDeny settles what is pending in a session whose policy turned to deny:
// approvals are rejected, questions cancelled, both mode-change. It returns as
// CancelTurn.
func (t *Table) ModeDeny(ctx context.Context, session frames.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(ctx, t.openOf(session), func(e *entry) Settlement {
		return denied(e.req.Kind, frames.CauseModeChange, t.cfg.Now())
	})
}

// Recorded blocks until the decisions made so far in a session are recorded, or
// ctx ends. A session calls it before it ends a turn, so that the decisions come
// first in its log; not from where its Recorder has to run.
func (t *Table) Recorded(ctx context.Context, session frames.SessionID) error {
	return t.awaitRecorded(ctx, func(e *entry) bool { return e.req.Session == session })
}

// Drain lets open requests wait on, and settles whatever is asked from now on as
// cancelled/shutdown, unasked.
func (t *Table) Drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
}

// Shutdown settles everything that is or will be asked as cancelled/shutdown and
// waits for the recorders; then it saves what of the grants is not saved. When
// ctx ends it cuts the recorders short and returns ctx's error. It may be called
// twice.
func (t *Table) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.draining = true
	bySession := make([][]*entry, 0, len(t.open))
	for s := range t.open {
		bySession = append(bySession, t.openOf(s))
	}
	for _, es := range bySession {
		t.settle(ctx, es, func(*entry) Settlement { return cancelled(frames.CauseShutdown, t.cfg.Now()) })
	}
	t.mu.Unlock()
	err := t.awaitRecorded(ctx, func(*entry) bool { return true })
	t.stop()
	t.wg.Wait()
	if err != nil {
		return err
	}
	return t.grants.Flush(ctx)
}

// awaitRecorded waits for the entries that are being recorded now.
func (t *Table) awaitRecorded(ctx context.Context, which func(*entry) bool) error {
	t.mu.Lock()
	var es []*entry
	for e := range t.recording {
		if which(e) {
			es = append(es, e)
		}
	}
	t.mu.Unlock()
	for _, e := range es {
		select {
		case <-e.recorded:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
