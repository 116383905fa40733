package session

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// child is a session that a turn started, until its first turn has ended and
// the parent's log says so.
type child struct {
	id     frames.SessionID
	parent *turn
	call   frames.CallID
	turn   *turn // its first turn; guarded by the manager's mutex
	down   *mark // the mark that turn begins with; guarded likewise

	// done is closed when the parent's log tells how it ended.
	done   chan struct{}
	result agent.ChildResult
	once   sync.Once // of telling it
}

// Spawn implements [agent.Turn].
func (t *turn) Spawn(ctx context.Context, s agent.Spawn) (agent.Child, error) {
	if t.over.Load() {
		return agent.Child{}, agent.ErrTurnOver
	}
	m := t.a.m
	if err := t.step(); err != nil {
		return agent.Child{}, err
	}
	p := &PromptArgs{Content: s.Prompt, Mode: frames.ModeQueue, ID: frames.PromptID(m.cfg.NewID())}
	hash, err := checkPrompt(p)
	if err != nil {
		return agent.Child{}, err
	}
	b, err := m.conceiveChild(t, s)
	if err != nil {
		return agent.Child{}, err
	}
	p.Session = b.id
	k := &child{id: b.id, parent: t, call: s.Call, done: make(chan struct{})}
	if err := t.a.do(ctx, func() error { return t.a.spawned(k, b) }); err != nil {
		m.miscarry(b)
		return agent.Child{}, turnOver(err)
	}
	b.first = func(c *actor) {
		if err := c.prompt(p, hash, k, func(PromptAnswer) {}); err != nil {
			c.m.wg.Go(func() { c.m.reportFailure(k) })
		}
	}
	if _, err := m.bear(b, func(frames.Session) {}); err != nil {
		m.reportFailure(k)
		return agent.Child{}, err
	}
	return agent.Child{ID: k.id, Wait: k.wait}, nil
}

func (k *child) wait(ctx context.Context) (agent.ChildResult, error) {
	select {
	case <-k.done:
		return k.result, nil
	case <-ctx.Done():
		return agent.ChildResult{}, context.Cause(ctx)
	}
}

// conceiveChild checks a spawn; what it leaves out is inherited.
func (m *Manager) conceiveChild(t *turn, s agent.Spawn) (*birth, error) {
	m.mu.RLock()
	up, own, policy := t.a.e.sum, t.a.e.own, t.a.e.policy
	m.mu.RUnlock()
	c := CreateArgs{
		Agent: cmp.Or(s.Agent, up.Agent), Cwd: cmp.Or(s.Cwd, up.Cwd), Title: s.Title,
		Parent: up.SessionID, Config: s.Config, Policy: m.bequest(own, policy),
	}
	if err := m.bind(&c, up.Cwd); err != nil {
		return nil, err
	}
	b, err := m.conceive(c)
	if err != nil {
		return nil, err
	}
	b.call, b.rec.Origin = s.Call, frames.OriginSubagent
	m.mu.Lock()
	defer m.mu.Unlock()
	return b, m.admit(b)
}

// miscarry gives back the place of a child that is not made.
func (m *Manager) miscarry(b *birth) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.withdraw(b)
}

// spawned is the parent's step of a spawn: it is refused where the turn is
// cancelled already.
func (a *actor) spawned(k *child, b *birth) error {
	t := k.parent
	if a.turn != t || t.outcome != nil || !a.m.enroll(k) {
		return agent.ErrTurnOver
	}
	c := &commit{turn: t.id, next: a.rec.clone()}
	c.add(frames.AgentSpawned{ChildSessionID: k.id, CallID: k.call, Agent: b.rec.Agent, Title: b.rec.Title})
	c.next.Spawned = append(c.next.Spawned, spawned{k.id, k.call, t.id})
	err := a.commit(c)
	if a.unknown(c) { // there will be no child, whatever the log says
		c.then = func() {
			a.later = append(a.later, func() error {
				return a.completed(k, frames.AgentCompleted{ChildSessionID: k.id, CallID: k.call, Status: string(frames.TurnError)})
			})
		}
	}
	if err != nil {
		a.fail(t, err)
		a.m.release(k)
	}
	return err
}

// enroll makes k a child of its turn unless that is cancelled or over.
func (m *Manager) enroll(k *child) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.parent.sealed {
		return false
	}
	e := k.parent.a.e
	if e.kids == nil {
		e.kids = map[*child]struct{}{}
	}
	e.kids[k] = struct{}{}
	return true
}

// release lets go whoever waits for k.
func (m *Manager) release(k *child) {
	m.mu.Lock()
	delete(k.parent.a.e.kids, k)
	m.mu.Unlock()
	close(k.done)
}

// report tells the parent how a child's first turn ended.
func (m *Manager) report(t *turn) {
	m.complete(t.link, agent.ChildResult{Reason: t.reason, Message: t.message, Result: t.last})
}

// reportFailure tells the parent that a child could not run at all.
func (m *Manager) reportFailure(k *child) {
	m.complete(k, agent.ChildResult{Reason: frames.TurnError})
}

// complete appends agent/completed to the parent's log, or leaves it to the next
// append there, and lets go whoever waits. Only the first end counts.
func (m *Manager) complete(k *child, r agent.ChildResult) {
	k.once.Do(func() {
		k.result = r
		m.tellParent(k)
		m.release(k)
	})
}

func (m *Manager) tellParent(k *child) {
	p, _, err := m.fit(m.io, frames.AgentCompleted{ChildSessionID: k.id, CallID: k.call, Status: string(k.result.Reason), Message: k.result.Message, Result: k.result.Result})
	if err != nil {
		p = frames.AgentCompleted{ChildSessionID: k.id, CallID: k.call, Status: string(k.result.Reason), Message: k.result.Message}
	}
	err = m.in(m.io, k.parent.a.id, func(a *actor) error { return a.completed(k, p) })
	if _, ok := errors.AsType[*StorageError](err); ok {
		err = m.bare(k.parent.a.id, func(a *actor) error {
			a.later = append(a.later, func() error { return a.completed(k, p) })
			a.retryLater()
			return nil
		})
	}
	if err != nil {
		m.log.Warn("a child's end could not be told to its parent", "session", string(k.id), "error", err)
	}
}

// completed is the parent's step at a child's end.
func (a *actor) completed(k *child, p frames.Payload) error {
	c := &commit{next: a.rec.clone()}
	if a.turn == k.parent {
		c.turn = a.turn.id
	}
	if !c.next.forget(k.id) {
		return nil
	}
	c.add(p)
	return a.commit(c)
}

// forget drops a child whose end is told; it is false if that was told before.
func (r *record) forget(id frames.SessionID) bool {
	for i, s := range r.Spawned {
		if s.Child == id {
			r.Spawned = append(r.Spawned[:i], r.Spawned[i+1:]...)
			return true
		}
	}
	return false
}
