package session

import (
	"context"
	"errors"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// Requests outside of turns. They are judged, shown and recorded as those of turns.
// What a turn's mark and its row in the record are to those, to these are the
// entry's hush, which is replaced by whatever calls them off, and the record's Asks.

// errHushed means that a request was called off before it was asked.
var errHushed = errors.New("session: what asks was cancelled")

// Ask implements [agent.Background].
func (s speaker) Ask(ctx context.Context, ap agent.Approval) (agent.Decision, error) {
	since := s.m.hushOf(s.sid)
	a, leave, err := s.rise(ctx)
	if err != nil {
		o, c, err := notAsked(err)
		return agent.Decision{Outcome: o, Cause: c, Feedback: said(err)}, err
	}
	defer leave()
	k, v := s.m.freeze(ctx, a, nil, ap)
	k.since = since
	if err := s.m.covers(a.e, false); err != nil {
		v = notCovered(err)
	}
	return k.approve(ctx, v), nil
}

// Question implements [agent.Background].
func (s speaker) Question(ctx context.Context, qs ...frames.Question) (agent.Answers, error) {
	since := s.m.hushOf(s.sid)
	a, leave, err := s.rise(ctx)
	if err != nil {
		_, c, err := notAsked(err)
		return agent.Answers{Outcome: frames.Cancelled, Cause: c}, err
	}
	defer leave()
	k := s.m.newAsk(a, nil, "", pending.KindQuestion)
	k.since = since
	return k.question(ctx, qs)
}

// hushOf returns what last called off requests outside of turns, nil for none.
func (m *Manager) hushOf(sid frames.SessionID) *mark {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e := m.dir.byID[sid]; e != nil {
		return e.hush
	}
	return nil
}

// notAsked says how a request ends whose session could not be woken.
func notAsked(err error) (frames.Outcome, frames.Cause, error) {
	if _, ok := errors.AsType[*StorageError](err); ok {
		return frames.Unavailable, frames.CauseAbort, err
	}
	if errors.Is(err, ErrDraining) {
		return frames.Cancelled, frames.CauseShutdown, err
	}
	return frames.Cancelled, frames.CauseAbort, err
}

// rise wakes the session, which stays awake, and the host up, until leave is called.
func (s speaker) rise(ctx context.Context) (awake *actor, leave func(), err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if err := s.m.in(ctx, s.sid, func(a *actor) error {
		a.outside++
		awake = a
		return nil
	}); err != nil {
		return nil, nil, err
	}
	s.m.mu.Lock()
	s.m.running++
	s.m.mu.Unlock()
	return awake, func() {
		s.m.mu.Lock()
		s.m.rests()
		s.m.mu.Unlock()
		_ = awake.do(s.m.io, func() error { awake.outside--; return nil })
	}, nil
}

// hush calls off what is asked outside of turns, since the agent is gone.
func (a *actor) hush() {
	mk := newMark(nil, false).mk
	close(mk.placed)
	a.m.mu.Lock()
	a.e.hush = mk
	a.m.mu.Unlock()
	a.m.table.CancelOutside(a.m.io, a.id, mk.cause)
}

// mayOpen refuses what comes too late to be asked. It runs in the actor.
func (k *ask) mayOpen() error {
	switch {
	case k.t == nil && k.mark() != nil:
		return errHushed
	case k.t != nil && (k.a.turn != k.t || k.t.outcome != nil):
		return agent.ErrTurnOver
	}
	return nil
}

// gaveUp follows on c, which could not open the request: its turn ends. Outside of
// turns the agent's answer tells; only what is unknown has to be found out.
func (k *ask) gaveUp(c *commit, err error) {
	switch {
	case k.t != nil:
		k.a.fail(k.t, err)
	case k.a.unknown(c):
		k.a.retryLater()
	}
}

// openAsk is what the record says of the request while it is open.
func (k *ask) openAsk() openAsk {
	if k.req.Kind == pending.KindQuestion {
		return openAsk{ID: k.req.ID, Question: true}
	}
	return openAsk{ID: k.req.ID, Hash: k.req.Approval.Hash}
}

// owe has the decision in c stored later. Outside of turns it also takes the request
// from the record.
func (k *ask) owe(c *commit) {
	a := k.a
	if k.t != nil {
		a.owe(c.events...)
		return
	}
	landed := false
	a.later = append(a.later, func() error {
		if landed { // though the last try did not know
			return nil
		}
		d := &commit{events: c.events, next: a.rec.clone(), status: true, then: func() { landed = true }}
		d.next.answered(k.req.ID)
		return a.commit(d)
	})
	a.retryLater()
}

// oweRecord has a request that nobody was asked for, and that c could not store,
// stored later. What was to be allowed was not.
func (k *ask) oweRecord(c *commit, s pending.Settlement, err error) {
	if _, ok := errors.AsType[*StorageError](err); !ok {
		return
	}
	events := c.events
	if s.Outcome.Allows() {
		end := &commit{}
		end.add(k.asked)
		end.add(k.decidedEvent(pending.Settlement{Outcome: frames.Unavailable, Cause: frames.CauseAbort}))
		events = end.events
	}
	if k.a.unknown(c) {
		c.lost = func() { k.a.owe(events...) }
	} else {
		k.a.owe(events...)
	}
}

// repairAsks closes the requests outside of turns that the host left open when it
// stopped.
func (a *actor) repairAsks() error {
	for len(a.rec.Asks) > 0 {
		c := &commit{next: a.rec.clone(), status: true}
		some := c.next.Asks[:min(len(c.next.Asks), maxEnds)]
		c.next.Asks = c.next.Asks[len(some):]
		for _, k := range some {
			if k.Question {
				c.add(frames.QuestionDecided{ID: k.ID, Outcome: frames.Cancelled, Origin: frames.CauseShutdown})
			} else {
				c.add(frames.ApprovalDecided{ID: k.ID, Outcome: frames.Cancelled, Origin: frames.CauseShutdown, InputHash: k.Hash})
			}
		}
		if err := a.commit(c); err != nil {
			return err
		}
		for _, k := range some {
			a.restored(k.ID)
		}
	}
	return nil
}

// restored lets late answers know how a request ended that was repaired.
func (a *actor) restored(id frames.RequestID) {
	a.m.table.Restore(a.id, id, pending.Settlement{Outcome: frames.Cancelled, Cause: frames.CauseShutdown, At: now().Time})
}
