package session

import (
	"context"
	"errors"

	"github.com/muxhost/muxhost/frames"
)

// mark says that a turn is cancelled. It never changes.
type mark struct {
	reason frames.TurnEndReason
	cause  frames.Cause
	by     *frames.By
	tree   bool          // what the turn caused is cancelled too
	placed chan struct{} // closed once whoever cancelled has its response
	why    error         // the budget that is used up, if it is that
}

// below is the mark of what a marked turn caused.
func (k *mark) below() *mark {
	b := *k
	if b.cause == frames.CauseAbort {
		b.cause = frames.CauseCascade
	}
	return &b
}

// The causes of a cancelled turn's context.
var (
	errCancelled   = errors.New("the turn was cancelled")
	errInterrupted = errors.New("the host is going down")
)

func (k *mark) err() error {
	if k.why != nil {
		return k.why
	}
	if k.reason == frames.TurnInterrupted {
		return errInterrupted
	}
	return errCancelled
}

// marked is a set of turns to be cancelled together.
type marked struct {
	turns []*turn // marked by this call
	found bool    // there was a turn, marked now or before, or a request outside of turns
	mk    *mark
	// hushed are the sessions whose requests outside of turns are called off.
	hushed []hushed
}

// hushed is a session, and what becomes of its requests outside of turns.
type hushed struct {
	session frames.SessionID
	cause   frames.Cause
}

// mark marks one turn. mu is held.
func (s *marked) mark(t *turn, mk *mark) {
	s.found = true
	if mk.tree && t.down == nil {
		t.down = mk.below()
	}
	t.sealed = true
	if t.mark == nil {
		t.mark = mk
		s.turns = append(s.turns, t)
	}
}

// markBelow marks what t caused, by its children's first turns. mu is held.
func (s *marked) markBelow(t *turn) {
	for k := range t.a.e.kids {
		if k.parent == t && k.turn != nil && k.turn.a.e.turn == k.turn {
			s.mark(k.turn, s.mk.below())
			s.markBelow(k.turn)
		}
	}
}

// markSession marks the running turns of e and, with tree, of its descendants, and
// calls off what they ask outside of turns. mu is held.
func (s *marked) markSession(m *Manager, e *entry) {
	s.markEntry(m, e, s.mk)
	if !s.mk.tree {
		return
	}
	below := s.mk.below()
	for _, d := range e.below() {
		s.markEntry(m, d, below)
	}
}

func (s *marked) markEntry(m *Manager, e *entry, mk *mark) {
	if e.turn != nil {
		s.mark(e.turn, mk)
	}
	e.hush = mk
	s.hushed = append(s.hushed, hushed{e.id, mk.cause})
	s.found = s.found || m.table.Outside(e.id) > 0
}

// order has every marked turn wait for those below it. mu is held.
func (s *marked) order() {
	if !s.mk.tree {
		return
	}
	for _, t := range s.turns {
		for _, up := range t.a.e.ancestors() {
			if up.turn != nil && up.turn.mark != nil {
				up.turn.waits = append(up.turn.waits, t)
			}
		}
	}
}

// settle lets the marked turns know, after the response was placed: first
// whatever they ask, then their contexts.
func (m *Manager) settle(s *marked) {
	close(s.mk.placed)
	for _, t := range s.turns {
		m.table.CancelTurn(m.io, t.a.id, t.id, t.mark.cause)
		t.cancel(t.mark.err())
	}
	for _, h := range s.hushed {
		m.table.CancelOutside(m.io, h.session, h.cause)
	}
}

func newMark(by *frames.By, tree bool) *marked {
	return &marked{mk: &mark{
		reason: frames.TurnCancelled, cause: frames.CauseAbort, by: by, tree: tree, placed: make(chan struct{}),
	}}
}

// Cancel marks running turns, or takes a prompt out of the queue. placed hears
// whether there was something to cancel; the turns end later.
func (m *Manager) Cancel(ctx context.Context, c CancelArgs, placed func(cancelled bool)) error {
	if placed == nil {
		placed = func(bool) {}
	}
	for {
		s, err := m.markFor(c)
		if err != nil {
			return err
		}
		if s.found || c.Turn == "" {
			placed(s.found)
			m.settle(s)
			return nil
		}
		started := false
		err = m.in(ctx, c.Session, func(a *actor) error {
			started = a.turn != nil && a.turn.id == c.Turn
			if started {
				return nil
			}
			return a.cancelQueued(c, placed)
		})
		if err != nil || !started {
			return err
		}
	}
}

// markFor marks what c names among the running turns.
func (m *Manager) markFor(c CancelArgs) (*marked, error) {
	s := newMark(c.By, c.Tree)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.dir.byID[c.Session]
	switch {
	case e == nil:
		return nil, ErrNoSession
	case c.Turn == "":
		s.markSession(m, e)
	case e.turn != nil && e.turn.id == c.Turn:
		s.mark(e.turn, s.mk)
		if c.Tree {
			s.markBelow(e.turn)
		}
	}
	s.order()
	return s, nil
}

// cancelQueued takes the prompt with this turn id out of the queue.
func (a *actor) cancelQueued(c CancelArgs, placed func(bool)) error {
	for _, q := range a.rec.Queue {
		if q.Turn != c.Turn {
			continue
		}
		s := &commit{by: c.By, next: a.rec.clone()}
		s.add(frames.PromptDequeued{PromptID: q.ID, Reason: "cancelled"})
		s.next.dequeue(q.ID)
		a.handOver(s, q.ID)
		s.then = func() { delete(a.contents, q.ID) }
		s.placed = func() { placed(true) }
		return a.commit(s)
	}
	placed(false)
	return nil
}

// cancelBelow cancels what a failed turn caused.
func (m *Manager) cancelBelow(t *turn) {
	s := newMark(nil, true)
	m.mu.Lock()
	t.sealed, t.down = true, s.mk.below()
	s.markBelow(t)
	s.order()
	m.mu.Unlock()
	m.settle(s)
}

// awaitBelow waits for the ends that a turn's own end has to follow.
func (m *Manager) awaitBelow(t *turn) {
	m.mu.Lock()
	t.sealed = true
	var kids []*child
	if t.down != nil {
		for k := range t.a.e.kids {
			if k.parent == t {
				kids = append(kids, k)
			}
		}
	}
	waits := t.waits
	m.mu.Unlock()
	for _, k := range kids {
		<-k.done
	}
	for _, w := range waits {
		<-w.ended
	}
}

// markOf returns why t is cancelled, nil if it is not.
func (m *Manager) markOf(t *turn) *mark {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return t.mark
}

func (m *Manager) isDraining() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.draining
}

func (m *Manager) isStopping() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.stopping
}

func (m *Manager) isClosing(e *entry) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return e.closing > 0
}
