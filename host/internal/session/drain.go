package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Drain refuses new work: prompts, creates and spawns get [ErrDraining], and
// what is asked from now on is settled cancelled/shutdown. What is open stays
// answerable, and running turns go on.
func (m *Manager) Drain() {
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	m.table.Drain()
}

// Shutdown drains and waits until nothing runs or is asked, or ctx is done. Then it settles
// what is open, ends turns as interrupted, appends all of it, closes the agents
// and waits for every goroutine. That takes at most a few times
// [agent.CloseTimeout] more; an agent that does not stop even then is an error.
func (m *Manager) Shutdown(ctx context.Context) error {
	m.Drain()
	m.keeper.end()
	m.births.Wait()
	m.awaitQuiet(ctx)
	m.interrupt()
	m.stopAll()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { m.wg.Wait(); close(done) })
	if !within(done, 3*agent.CloseTimeout) {
		return fmt.Errorf("session: agents still run %v after they were told to stop", 3*agent.CloseTimeout)
	}
	wg.Wait()
	return nil
}

// awaitQuiet waits until no turn runs and nothing is asked outside of one.
func (m *Manager) awaitQuiet(ctx context.Context) {
	m.mu.Lock()
	var quiet chan struct{}
	if m.running > 0 {
		if m.quiet == nil {
			m.quiet = make(chan struct{})
		}
		quiet = m.quiet
	}
	m.mu.Unlock()
	if quiet == nil {
		return
	}
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// interrupt settles what is open and ends every turn.
func (m *Manager) interrupt() {
	s := newMark(nil, true)
	s.mk.reason, s.mk.cause = frames.TurnInterrupted, frames.CauseShutdown
	var all []*turn
	m.mu.Lock()
	m.stopping = true
	for _, e := range m.dir.order {
		e.hush = s.mk
		if e.turn != nil {
			s.mark(e.turn, s.mk)
			all = append(all, e.turn)
		}
	}
	s.order()
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(m.io, agent.CloseTimeout)
	defer cancel()
	if err := m.table.Shutdown(ctx); err != nil {
		m.log.Error("some decisions could not be recorded", "error", err)
	}
	m.settle(s)
	deadline := time.Now().Add(3 * agent.CloseTimeout)
	for _, t := range all {
		_ = t.a.do(m.io, func() error { return t.a.lastTry(t) })
		if !within(t.ended, max(time.Until(deadline), 0)) {
			m.log.Error("a turn did not end", "session", string(t.a.id), "turn", string(t.id))
		}
	}
}

// lastTry ends a turn whose end could not be stored before.
func (a *actor) lastTry(t *turn) error {
	if a.turn != t || t.outcome == nil {
		return nil
	}
	err := a.endTurn(t)
	if err != nil {
		a.giveUp(t, err)
	}
	return err
}

// stopAll stops every actor, after its agent is closed.
func (m *Manager) stopAll() {
	m.mu.Lock()
	m.stopped = true
	var live []*actor
	for _, e := range m.dir.order {
		if e.actor != nil {
			live = append(live, e.actor)
		}
	}
	m.mu.Unlock()
	var wg sync.WaitGroup
	for _, a := range live {
		wg.Go(a.stop)
	}
	wg.Wait()
}

// stop ends one actor, after a turn that began while the host went down.
func (a *actor) stop() {
	for {
		var closed chan struct{}
		_ = a.do(a.m.io, func() error {
			a.dismiss()
			closed = a.agClosed
			return nil
		})
		if closed != nil {
			<-closed
		}
		var late *turn
		_ = a.do(a.m.io, func() (err error) {
			late, err = a.lastStep()
			return err
		})
		if late == nil {
			return
		}
		a.m.interruptLate(late)
	}
}

// lastStep stores what is left and stops the actor, unless a turn runs.
func (a *actor) lastStep() (running *turn, err error) {
	if a.loaded {
		err = a.heal()
	}
	if a.turn != nil && a.turn.outcome == nil {
		return a.turn, nil
	}
	a.stopped = true
	if err == nil && a.loaded && len(a.rec.Tasks) > 0 {
		c := &commit{next: a.rec.clone()}
		a.endTasks(c, "interrupted", "")
		err = a.commitAll(c)
	}
	return nil, err
}

// interruptLate ends a turn whose start was being stored when the others were
// interrupted.
func (m *Manager) interruptLate(t *turn) {
	s := newMark(nil, true)
	s.mk.reason, s.mk.cause = frames.TurnInterrupted, frames.CauseShutdown
	m.mu.Lock()
	if t.a.e.turn == t {
		s.mark(t, s.mk)
	}
	s.order()
	m.mu.Unlock()
	m.settle(s)
	if !within(t.ended, 3*agent.CloseTimeout) {
		m.log.Error("a turn did not end", "session", string(t.a.id), "turn", string(t.id))
	}
}
