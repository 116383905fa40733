package session

import (
	"context"

	"github.com/muxhost/muxhost/frames"
)

// Close cancels what runs in the session and below it, closes its agent and
// makes it cold; the log stays. started is called once later calls come after
// it, placed when everything is closed.
func (m *Manager) Close(ctx context.Context, by *frames.By, sid frames.SessionID, started, placed func()) error {
	if err := m.halt(ctx, by, sid, started); err != nil {
		return err
	}
	defer m.reopen(sid)
	return m.in(ctx, sid, func(a *actor) error { return a.shut(by, placed) })
}

// Delete closes the session, and with tree its descendants, and removes them for
// good. Without tree its children stay, and keep their lineage.
func (m *Manager) Delete(ctx context.Context, by *frames.By, sid frames.SessionID, tree bool, started, placed func()) error {
	if _, ok := m.Get(sid); !ok {
		return ErrNoSession
	}
	if err := m.halt(ctx, by, sid, started); err != nil {
		return err
	}
	defer m.reopen(sid)
	all := []frames.SessionID{sid}
	if tree {
		all = m.treeOf(sid)
	}
	for i := len(all) - 1; i > 0; i-- {
		if err := m.halt(ctx, by, all[i], nil); err != nil {
			return err
		}
		defer m.reopen(all[i])
	}
	for i := len(all) - 1; i >= 0; i-- {
		hear := func() {}
		if i == 0 && placed != nil {
			hear = placed
		}
		if err := m.erase(ctx, all[i], hear); err != nil {
			return err
		}
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
		placed()
		m.cfg.Publisher.Remove(sid, "deleted")
		return nil
	})
}

// halt lets nothing new begin in the session, cancels what runs there and below,
// and waits until that has ended and the agent is closed.
func (m *Manager) halt(ctx context.Context, by *frames.By, sid frames.SessionID, started func()) error {
	var s *marked
	err := m.inActor(ctx, sid, func(a *actor) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if a.e.closing {
			return ErrClosing
		}
		a.e.closing = true
		s = newMark(by, true)
		s.markSession(a.e)
		s.order()
		return nil
	})
	if err != nil {
		return err
	}
	if started != nil {
		started()
	}
	m.settle(s)
	if err := m.awaitHalt(ctx, sid); err != nil {
		m.reopen(sid)
		return err
	}
	return nil
}

// awaitHalt waits for the session's turn, its children and its agent.
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
	}); err != nil || closed == nil {
		return err
	}
	return await(ctx, closed)
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reopen lets the session begin things again.
func (m *Manager) reopen(sid frames.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.dir.byID[sid]; e != nil {
		e.closing = false
	}
}

// shut is the last step of a session that is closed: what waits is dropped.
func (a *actor) shut(by *frames.By, placed func()) error {
	if placed == nil {
		placed = func() {}
	}
	if a.rec.Closed && len(a.rec.Queue) == 0 && len(a.rec.Tasks) == 0 {
		placed()
		a.stopped = true
		return nil
	}
	c := &commit{by: by, next: a.rec.clone(), placed: placed, status: true}
	for _, q := range a.rec.Queue {
		c.add(frames.PromptDequeued{PromptID: q.ID, Reason: "closed"})
		a.handOver(c, q.ID)
	}
	a.endTasks(c, "cancelled")
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
