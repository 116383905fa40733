package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// outcome is how an agent's turn ended.
type outcome struct {
	res agent.Result
	err error
	// broken says that the agent cannot be used again: it crashed, or did not
	// return after it was cancelled.
	broken bool
}

// errAbandoned is the outcome of an agent that did not stop.
var errAbandoned = fmt.Errorf("the agent did not stop within %v after it was cancelled and was given up", agent.CloseTimeout)

// within waits for done, at most for d.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// conduct is the goroutine of one turn: it lets the agent run, then sees to it
// that whatever the turn left open is closed and that the turn's end comes after
// the end of everything it has to wait for.
func (m *Manager) conduct(a *actor, t *turn, p agent.Prompt) {
	if mk := m.markOf(t); mk != nil { // cancelled before it began
		<-mk.placed
		m.table.CancelTurn(m.io, a.id, t.id, mk.cause)
		t.cancel(mk.err())
	}
	out := m.supervise(a, t, p)
	t.cancel(agent.ErrTurnOver)
	t.finishSides()
	mk := m.markOf(t)
	if out.err != nil && mk == nil {
		m.cancelBelow(t)
	}
	cause := frames.CauseAbort
	if mk != nil {
		cause = mk.cause
	}
	m.table.CancelTurn(m.io, a.id, t.id, cause)
	m.awaitBelow(t)
	_ = m.table.Recorded(m.io, a.id)
	_ = a.do(m.io, func() error { return a.finish(t, out) })
	<-t.ended
	m.table.ForgetTurn(a.id, t.id)
	if t.link != nil {
		m.report(t)
	}
}

// supervise runs the agent and waits until it returns, or until it has not
// returned for [agent.CloseTimeout] after the turn was cancelled.
func (m *Manager) supervise(a *actor, t *turn, p agent.Prompt) outcome {
	got := make(chan outcome, 1)
	m.wg.Go(func() { got <- a.talk(t, p) })
	select {
	case out := <-got:
		return out
	case <-t.ctx.Done():
	}
	timer := time.NewTimer(agent.CloseTimeout)
	defer timer.Stop()
	select {
	case out := <-got:
		return out
	case <-timer.C:
		return outcome{err: errAbandoned, broken: true}
	}
}

// talk opens the agent if need be and has it run the turn. A panic is the
// agent's crash, nobody else's.
func (a *actor) talk(t *turn, p agent.Prompt) (out outcome) {
	defer func() {
		if r := recover(); r != nil {
			a.log.Error("an agent crashed", "turn", string(t.id), "stack", string(debug.Stack()))
			out = outcome{err: fmt.Errorf("the agent crashed: %v", r), broken: true}
		}
	}()
	ag, err := a.open(t)
	if err != nil {
		return outcome{err: err}
	}
	t.reached.Store(true)
	res, err := ag.Prompt(t.ctx, t, p)
	return outcome{res: res, err: err}
}

// open returns the session's agent, and opens it if there is none.
func (a *actor) open(t *turn) (agent.Agent, error) {
	if t.ctx.Err() != nil {
		return nil, context.Cause(t.ctx)
	}
	var ag agent.Agent
	var s agent.Session
	var name string
	var closed chan struct{}
	if err := a.do(t.ctx, func() error {
		ag, s, name, closed = a.ag, a.introduce(), a.rec.Agent, a.agClosed
		return nil
	}); err != nil || ag != nil {
		return ag, err
	}
	if closed != nil {
		if err := await(t.ctx, closed); err != nil {
			return nil, err
		}
	}
	var err error
	if s.State, err = a.m.state(t.ctx, a.id); err != nil {
		return nil, err
	}
	d := a.m.cfg.Drivers[name]
	if d == nil {
		return nil, &UnavailableError{name, errors.New("this host has no such agent any more")}
	}
	ag, err = d.Open(t.ctx, s)
	if err != nil {
		return nil, fmt.Errorf("agent %q could not start: %w", name, err)
	}
	if err := a.do(a.m.io, func() error { return a.employ(t, ag) }); err != nil {
		a.m.closeAgent(a, ag)
		return nil, err
	}
	a.catchUp(t, ag, s.Options)
	return ag, nil
}

// catchUp gives an agent the options that were configured while it was opened with
// had.
func (a *actor) catchUp(t *turn, ag agent.Agent, had json.RawMessage) {
	to, ok := ag.(agent.Configurable)
	for ok {
		var now json.RawMessage
		if err := a.do(t.ctx, func() error { now = a.rec.Options; return nil }); err != nil || bytes.Equal(now, had) {
			return
		}
		had = now
		if err := a.m.offerOptions(t.ctx, to, now); err != nil {
			_ = a.do(a.m.io, func() error { a.complain("the agent refused its options: " + said(err)); return nil })
		}
	}
}

// employ takes the agent that was opened for t, unless t is over.
func (a *actor) employ(t *turn, ag agent.Agent) error {
	if a.turn != t || t.outcome != nil {
		return agent.ErrTurnOver
	}
	a.ag = ag
	a.offer()
	return nil
}

// introduce tells an agent of its session.
func (a *actor) introduce() agent.Session {
	back := speaker{a.m, a.id}
	return agent.Session{
		ID: a.id, Parent: a.rec.Parent, Depth: a.rec.Depth, Cwd: a.rec.Cwd, Config: a.rec.Config, Options: a.rec.Options,
		Env: a.m.cfg.Env, Background: back, Base: back.base, ReadBlob: back.readBlob,
		History: func(ctx context.Context, after frames.Seq, limit int) ([]frames.Event, error) {
			return a.m.past(ctx, a.id, after, limit)
		},
	}
}

// dismiss closes the agent beside the actor; the next one opens after it.
func (a *actor) dismiss() {
	if a.ag == nil {
		return
	}
	ag, done := a.ag, make(chan struct{})
	a.ag, a.agClosed = nil, done
	a.m.wg.Go(func() { a.m.closeAgent(a, ag); close(done) })
}

// closeAgent closes an agent and waits for it, at most twice
// [agent.CloseTimeout].
func (m *Manager) closeAgent(a *actor, ag agent.Agent) {
	done := make(chan struct{})
	m.wg.Go(func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				a.log.Error("an agent crashed while it was closed", "stack", string(debug.Stack()))
			}
		}()
		ctx, cancel := context.WithTimeout(m.io, agent.CloseTimeout)
		defer cancel()
		if err := ag.Close(ctx); err != nil {
			a.log.Warn("an agent could not be closed", "error", err)
		}
	})
	if !within(done, 2*agent.CloseTimeout) {
		a.log.Error("an agent does not close and is left behind")
	}
}

// finish is the step after the agent's last word.
func (a *actor) finish(t *turn, out outcome) error {
	t.outcome = &out
	if out.broken {
		a.dismiss()
		a.hush()
	}
	if out.err != nil && (a.m.markOf(t) == nil || out.broken) && t.failed == nil {
		a.complain(said(out.err))
	}
	if err := a.endTurn(t); err != nil {
		a.giveUp(t, err)
		return err
	}
	a.startNext()
	return nil
}

// giveUp keeps a turn whose end cannot be stored for later; when the host stops
// first, the log is repaired at the next start.
func (a *actor) giveUp(t *turn, err error) {
	a.broke(err)
	if !a.m.isStopping() {
		return
	}
	a.log.Error("a turn's end could not be stored; the log is repaired at the next start", "error", err)
	a.dropTurn(t)
}

// endTurn stores the end of a turn, after what closes everything it left open.
func (a *actor) endTurn(t *turn) error {
	end := a.ending(t)
	c := &commit{turn: t.id, next: a.rec.clone(), status: true}
	a.addPartials(c, t)
	for _, id := range t.open.Tools() {
		r := frames.ToolResult{CallID: id, IsError: true, ErrorCode: "cancelled", Content: []frames.ContentBlock{frames.Text("the turn was cancelled before this finished")}}
		if end.Reason != frames.TurnCancelled {
			r.ErrorCode, r.Content[0].Text = "error", "the turn ended before this finished"
		}
		c.add(r)
	}
	if end.Reason == frames.TurnCancelled {
		a.cancelSteers(c)
	}
	a.giveUpSteers(c.next)
	if t.reached.Load() {
		for _, id := range c.next.Contexts[:t.contexts] {
			a.handOver(c, id)
		}
		c.next.Contexts = c.next.Contexts[t.contexts:]
	}
	sum := t.tally
	sum.result = usedOf(end.Usage)
	c.next.spend(&sum)
	if t.outcome.broken { // nobody works on them any more
		a.endTasks(c, "failed", "the agent stopped working")
	}
	if mk := a.m.markOf(t); mk != nil {
		c.by = mk.by
	}
	c.add(end)
	t.reason, t.message = end.Reason, end.Message
	c.next.Turn = nil
	c.then = func() { a.dropTurn(t) }
	err := a.commitAll(c)
	if err == nil {
		a.m.keeper.turnEnded(a.id)
	}
	return err
}

// dropTurn forgets the turn, once; what waits for its end goes on.
func (a *actor) dropTurn(t *turn) {
	if a.turn != t {
		return
	}
	a.turn, a.steered = nil, ""
	for id := range a.contents {
		if !a.rec.waits(id) {
			delete(a.contents, id)
		}
	}
	a.m.mu.Lock()
	a.m.finished(a.e)
	a.m.mu.Unlock()
	close(t.ended)
}

// ending says how the turn ended.
func (a *actor) ending(t *turn) frames.TurnEnd {
	out := t.outcome
	end := frames.TurnEnd{Reason: out.res.Reason, Usage: out.res.Usage, Message: clip(out.res.Message)}
	mk := a.m.markOf(t)
	switch {
	case mk != nil:
		end = frames.TurnEnd{Reason: mk.reason, Usage: out.res.Usage}
		if mk.why != nil {
			end.Message = said(mk.why)
		}
	case t.failed != nil:
		end = frames.TurnEnd{Reason: frames.TurnError, Message: said(t.failed)}
	case out.err != nil:
		end = frames.TurnEnd{Reason: frames.TurnError, Message: said(out.err)}
	case end.Reason == "":
		end.Reason = frames.TurnCompleted
	}
	return end
}

// cancelSteers drops the steers that the cancelled turn did not take.
func (a *actor) cancelSteers(c *commit) {
	for _, q := range a.rec.Queue {
		if q.Steer {
			c.add(frames.PromptDequeued{PromptID: q.ID, Reason: "cancelled"})
			c.next.dequeue(q.ID)
			a.handOver(c, q.ID)
		}
	}
}
