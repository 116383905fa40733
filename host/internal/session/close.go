package session

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
)

// Close cancels what runs in the session and below it, closes its agent and
// makes it cold; the log stays. started is called once later calls come after
// it, placed when everything is closed; from then on the session can be used.
func (m *Manager) Close(ctx context.Context, by *frames.By, sid frames.SessionID, started, placed func()) error {
	reopen, err := m.halt(ctx, by, sid, started)
	if err != nil {
		return err
	}
	err = m.in(ctx, sid, func(a *actor) error {
		return a.shut(by, func() {
			reopen()
			if placed != nil {
				placed()
			}
		})
	})
	reopen()
	if err != nil {
		m.resume(sid)
	}
	return err
}

// Delete closes the session, and with tree its descendants, and removes them for
// good. Without tree its children stay, and keep their lineage.
func (m *Manager) Delete(ctx context.Context, by *frames.By, sid frames.SessionID, tree bool, started, placed func()) (err error) {
	all := []frames.SessionID{sid}
	for i := 0; i < len(all); i++ { // parents first, so that no child is born unseen
		reopen, herr := m.halt(ctx, by, all[i], started)
		if i > 0 && errors.Is(herr, ErrNoSession) {
			continue // somebody else has deleted it
		}
		if herr != nil {
			return herr
		}
		defer func() {
			reopen()
			if err != nil {
				m.resume(all[i])
			}
		}()
		started = nil
		if tree {
			all = append(all, m.childrenOf(all[i])...)
		}
	}
	for i, d := range slices.Backward(all) {
		hear := func() {}
		if i == 0 && placed != nil {
			hear = placed
		}
		err := m.bequeath(d)
		if err == nil {
			err = m.erase(ctx, d, hear)
		}
		if err != nil && (i == 0 || !errors.Is(err, ErrNoSession)) {
			return err
		}
	}
	return nil
}

// childrenOf returns the sessions right below sid.
func (m *Manager) childrenOf(sid frames.SessionID) []frames.SessionID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e := m.dir.byID[sid]; e != nil {
		return ids(e.children)
	}
	return nil
}

// erase removes one session that was halted.
func (m *Manager) erase(ctx context.Context, sid frames.SessionID, placed func()) error {
	return m.inActor(ctx, sid, func(a *actor) error {
		head, err := m.cfg.Store.Head(m.io, sid)
		if err == nil {
			err = m.cfg.Store.Delete(m.io, sid, head)
		}
		if err != nil {
			return &StorageError{err}
		}
		m.mu.Lock()
		m.dir.remove(a.e)
		m.mu.Unlock()
		a.stopped = true
		a.stopTasks()
		placed()
		m.cfg.Publisher.Remove(sid, "deleted")
		return nil
	})
}

// halt lets nothing new begin in the session, cancels what runs there and below,
// and waits until that has ended and the agent is closed. Others who close it
// wait until reopen is called, which may be done twice.
func (m *Manager) halt(ctx context.Context, by *frames.By, sid frames.SessionID, started func()) (reopen func(), err error) {
	e, reopen, err := m.shutDoor(ctx, sid, started)
	if err != nil {
		return nil, err
	}
	s := newMark(by, true)
	err = m.inActor(ctx, sid, func(a *actor) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.markSession(m, a.e)
		s.order()
		return nil
	})
	if err == nil {
		m.settle(s)
		e.births.Wait()
		err = m.awaitHalt(ctx, sid)
	}
	if err != nil {
		reopen()
		m.resume(sid)
		return nil, err
	}
	return reopen, nil
}

// shutDoor says that the session is being closed, and waits until nobody else
// closes it.
func (m *Manager) shutDoor(ctx context.Context, sid frames.SessionID, started func()) (*entry, func(), error) {
	m.mu.Lock()
	e := m.dir.byID[sid]
	if e == nil {
		m.mu.Unlock()
		return nil, nil, ErrNoSession
	}
	if e.door == nil {
		e.door = make(chan struct{}, 1)
	}
	e.closing++
	m.mu.Unlock()
	if started != nil {
		started()
	}
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		e.closing--
	}
	select {
	case e.door <- struct{}{}:
	case <-ctx.Done():
		leave()
		m.resume(sid)
		return nil, nil, context.Cause(ctx)
	}
	return e, sync.OnceFunc(func() { leave(); <-e.door }), nil
}

// resume starts what waits in a session that was not closed after all.
func (m *Manager) resume(sid frames.SessionID) {
	m.mu.RLock()
	e := m.dir.byID[sid]
	live := e != nil && e.actor != nil
	m.mu.RUnlock()
	if live {
		_ = m.bare(sid, func(a *actor) error { a.startNext(); return nil })
	}
}

// awaitHalt waits for the session's turn, its children and its agent, and until what
// was asked is recorded.
func (m *Manager) awaitHalt(ctx context.Context, sid frames.SessionID) error {
	m.mu.RLock()
	var waits []<-chan struct{}
	if e := m.dir.byID[sid]; e != nil {
		if e.turn != nil {
			waits = append(waits, e.turn.ended)
		}
		for k := range e.kids {
			waits = append(waits, k.done)
		}
	}
	m.mu.RUnlock()
	for _, w := range waits {
		if err := await(ctx, w); err != nil {
			return err
		}
	}
	var closed chan struct{}
	if err := m.inActor(ctx, sid, func(a *actor) error {
		a.dismiss()
		closed = a.agClosed
		return nil
	}); err != nil {
		return err
	}
	if closed != nil {
		if err := await(ctx, closed); err != nil {
			return err
		}
	}
	return m.table.Recorded(ctx, sid)
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shut is the last step of a session that is closed: what waits is dropped.
func (a *actor) shut(by *frames.By, placed func()) error {
	if a.rec.Closed && len(a.rec.Queue) == 0 && len(a.rec.Tasks) == 0 {
		placed()
		a.stopped = true
		return nil
	}
	if len(a.rec.Queue)+len(a.rec.Tasks) >= maxEnds { // more than fit one append
		c := &commit{by: by, next: a.rec.clone()}
		a.endTasks(c, "cancelled", "")
		if err := a.commit(c); err != nil {
			return err
		}
	}
	c := &commit{by: by, next: a.rec.clone(), placed: placed, status: true}
	for _, q := range a.rec.Queue {
		c.add(frames.PromptDequeued{PromptID: q.ID, Reason: "closed"})
		a.handOver(c, q.ID)
	}
	a.endTasks(c, "cancelled", "")
	c.add(frames.SessionClosed{})
	c.next.Queue, c.next.Closed = nil, true
	if err := a.commitAll(c); err != nil {
		return err
	}
	a.stopped = true
	return nil
}

// sleep makes an idle session cold, after its agent is closed.
func (a *actor) sleep() error {
	if !a.isIdle() || a.ahead != nil || len(a.box) > 0 {
		return nil
	}
	if a.ag == nil {
		a.stopped = true
		return nil
	}
	a.dismiss()
	closed := a.agClosed
	a.m.wg.Go(func() {
		<-closed
		_ = a.do(a.m.io, a.sleep)
	})
	return nil
}
