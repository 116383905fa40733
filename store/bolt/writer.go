package bolt

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Bounds of one group.
const (
	queueLen   = 1024    // requests waiting; callers block when it is full
	groupBytes = 4 << 20 // a group takes no further request beyond
)

// op is one write. plan checks it against the group's view of the store and
// stages it; an error refuses this op alone and has staged nothing.
type op interface {
	session() frames.SessionID // "" if it concerns rows only
	size() int
	plan(g *batch) (store.Head, error)
}

// request is an op on its way through the writer.
type request struct {
	op    op
	taken atomic.Bool // by the writer, or by a caller who gave up
	done  chan outcome
}

type outcome struct {
	head store.Head
	err  error
}

// write hands an op to the writer and waits for its outcome. It gives up with
// ctx only as long as the writer has not taken it.
func (s *Store) write(ctx context.Context, o op) (store.Head, error) {
	if err := store.Cancelled(ctx); err != nil {
		return store.Head{}, err
	}
	r := &request{op: o, done: make(chan outcome, 1)}
	select {
	case <-s.stop:
		return store.Head{}, store.ErrClosed
	default:
	}
	select {
	case s.queue <- r:
	case <-s.stop:
		return store.Head{}, store.ErrClosed
	case <-ctx.Done():
		return store.Head{}, store.Cancelled(ctx)
	}
	var early error
	select {
	case out := <-r.done:
		return out.head, out.err
	case <-ctx.Done():
		early = store.Cancelled(ctx)
	case <-s.stopped:
		early = store.ErrClosed
	}
	if r.taken.CompareAndSwap(false, true) {
		return store.Head{}, early
	}
	out := <-r.done
	return out.head, out.err
}

// writer is the only goroutine that changes the database. It takes everything
// that waits, without any delay, commits it as one transaction, and answers.
func (s *Store) writer() {
	defer close(s.stopped)
	debug.SetPanicOnFault(true)
	var held []*request // taken, but to be planned after the next commit
	for {
		group := held
		held = nil
		if len(group) == 0 {
			select {
			case r := <-s.queue:
				group = s.take(group, r)
			case <-s.stop:
				return
			}
		}
		group = s.fill(group)
		if len(group) > 0 {
			held = s.commitGroup(group)
		}
	}
}

// take adds r unless its caller gave up.
func (s *Store) take(group []*request, r *request) []*request {
	if r.taken.CompareAndSwap(false, true) {
		group = append(group, r)
	}
	return group
}

// fill adds what waits, up to the bounds of a group.
func (s *Store) fill(group []*request) []*request {
	size := 0
	for _, r := range group {
		size += r.op.size()
	}
	for len(group) < queueLen && size < groupBytes {
		select {
		case r := <-s.queue:
			group = s.take(group, r)
			size += r.op.size()
		default:
			return group
		}
	}
	return group
}

// commitGroup commits a group and answers it. It returns the requests that have
// to wait for the commit's outcome before they can be judged.
func (s *Store) commitGroup(group []*request) (held []*request) {
	if err := s.failed(); err != nil {
		answerAll(group, err)
		return nil
	}
	outs, held, err := s.tryCommit(group)
	if err != nil {
		answerAll(group, err)
		return nil
	}
	for i, r := range group {
		if outs[i] != nil {
			r.done <- *outs[i]
		}
	}
	return held
}

func answerAll(group []*request, err error) {
	for _, r := range group {
		r.done <- outcome{err: err}
	}
}

// tryCommit plans, commits and applies a group in one transaction. An error is
// everybody's; nothing of the group is in memory then.
func (s *Store) tryCommit(group []*request) (outs []*outcome, held []*request, err error) {
	var g *batch
	defer func() {
		if p := recover(); p != nil {
			err = corrupt("writing the database panicked: %v", p)
			s.fail(err)
			s.abandon(g)
			if g != nil {
				s.mark(g.sessions(), err)
			}
			err = fmt.Errorf("%w: %w", store.ErrUnknown, err)
		}
	}()
	tx, err := s.db.Begin(true)
	if err != nil {
		return nil, nil, fmt.Errorf("bolt: begin: %w", err)
	}
	g = newBatch(s, tx)
	outs, held = g.planAll(group)
	if err := g.flush(); err != nil {
		s.fail(err)
		if rerr := tx.Rollback(); rerr != nil {
			err = errors.Join(err, rerr)
		}
		return nil, nil, err
	}
	if !g.dirty {
		return outs, held, tx.Rollback()
	}
	if err := s.hooks.commit(tx); err != nil {
		return nil, nil, s.commitFailed(g, err)
	}
	s.crowded = false
	g.apply()
	return outs, held, nil
}

// abandon gives up a transaction that panicked. If even that panics, bbolt's
// locks stay held and the database can no longer be closed.
func (s *Store) abandon(g *batch) {
	if g == nil {
		return
	}
	defer func() {
		if recover() != nil {
			s.wedged.Store(true)
		}
	}()
	if err := g.tx.Rollback(); err != nil && !errors.Is(err, berrors.ErrTxClosed) {
		s.wedged.Store(true)
	}
}

// commitFailed judges a failed commit. Memory still mirrors the state before it.
// If the database does too, the handle writes on: either there was no space,
// which is a clear refusal, or the data could not be written. If the commit is
// visible all the same, its last sync failed and nobody knows whether it will
// survive a loss of power; building on it could lose what is acknowledged later,
// so the store becomes read-only and its sessions are in doubt until reopened.
func (s *Store) commitFailed(g *batch, cause error) error {
	visible := 0
	err := s.db.View(func(tx *bbolt.Tx) error { visible = tx.ID(); return nil })
	switch {
	case err != nil || visible != g.id-1:
		unknown := fmt.Errorf("%w: the commit failed at its end: %w", store.ErrUnknown, cause)
		s.mark(g.sessions(), unknown)
		s.fail(fmt.Errorf("bolt: read-only since a commit failed at its end; check the disk and start again: %w", cause))
		return unknown
	case isFull(cause):
		s.crowded = true
		return fmt.Errorf("%w: nothing was stored: %w", store.ErrFull, cause)
	}
	return fmt.Errorf("%w: the commit failed: %w", store.ErrUnknown, cause)
}

// isFull reports whether a commit failed for want of space. bbolt hides some
// errors behind their text.
func isFull(err error) bool {
	for _, target := range []error{berrors.ErrMaxSizeReached, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, target) || strings.Contains(err.Error(), target.Error()) {
			return true
		}
	}
	return false
}
