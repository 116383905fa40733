package session

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// start is what begin needs beside the prompt.
type start struct {
	hash    string // of a prompt that was not queued
	dequeue bool   // it was queued
	link    *child
	placed  func(PromptAnswer)
}

// begin starts the turn of a prompt: everything that says so is one append.
func (a *actor) begin(q queued, s *start) error {
	t := a.newTurn(q.Turn, s.link)
	c := &commit{turn: t.id, by: q.By, next: a.rec.clone(), status: true}
	trigger := "prompt"
	if q.Mode == frames.ModeSteer {
		trigger = "steer"
	}
	if s.link != nil {
		trigger = "spawn"
	}
	if a.resumed {
		c.add(frames.SessionResumed{Reason: "prompt"})
		c.events[0].TurnID = ""
	}
	content := a.contents[q.ID]
	if s.dequeue {
		c.add(frames.PromptDequeued{PromptID: q.ID, Reason: "started"})
		c.next.dequeue(q.ID)
		a.handOver(c, q.ID)
	} else {
		c.row(promptRow{Hash: s.hash, Mode: q.Mode, Turn: q.Turn}.row(a.id, q.ID))
	}
	c.add(frames.TurnStart{Trigger: trigger, PromptID: q.ID})
	c.add(frames.UserMessage{PromptID: q.ID, Content: content})
	c.next.Turn = &openTurn{ID: t.id, After: a.head.Seq}
	c.next.Closed = false
	c.next.Turns++
	prompt := agent.Prompt{ID: q.ID, Content: content}
	for _, id := range a.rec.Contexts {
		prompt.Context = append(prompt.Context, a.contents[id]...)
	}
	t.contexts = len(a.rec.Contexts)
	c.then = func() {
		a.resumed, a.turn = false, t
		delete(a.contents, q.ID)
		a.register(t)
		a.m.wg.Go(func() { a.m.conduct(a, t, prompt) })
	}
	if s.placed != nil {
		c.placed = func() { s.placed(PromptAnswer{ID: q.ID, Turn: t.id, Queued: s.dequeue}) }
	}
	err := a.commit(c)
	if a.unknown(c) { // the turn may begin yet
		c.lost = func() { t.cancel(err) }
	} else if err != nil {
		t.cancel(err)
	}
	return err
}

// handOver drops the content from the row of a prompt that no longer waits; its
// answer stays as it was given.
func (a *actor) handOver(c *commit, id frames.PromptID) {
	r, err := a.m.prompted(a.m.io, a.id, id)
	if err != nil || r == nil {
		c.err = errors.Join(c.err, err)
		return
	}
	r.Content = nil
	c.row(r.row(a.id, id))
}

// register makes t the running turn. What was cancelled above it meanwhile
// cancels it too.
func (a *actor) register(t *turn) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.began(a.e, t)
	if t.link == nil {
		return
	}
	t.link.turn = t
	d := t.link.parent.down
	if d == nil {
		d = t.link.down
	}
	if d != nil {
		t.mark, t.down, t.sealed = d, d.below(), true
	}
}

// startNext starts the turn of the oldest waiting prompt, unless one is running.
func (a *actor) startNext() {
	if !a.loaded || a.stopped || a.turn != nil || len(a.rec.Queue) == 0 || a.m.isDraining() || a.m.isClosing(a.e) {
		return
	}
	q := a.rec.Queue[0]
	if q.Turn == "" {
		q.Turn = frames.TurnID(a.m.cfg.NewID())
	}
	if err := a.m.covers(a.e, true); err != nil {
		a.block(q, err)
		return
	}
	if err := a.begin(q, &start{dequeue: true}); err != nil {
		a.stalled = true
		a.broke(err)
	}
}

// block drops a waiting prompt that the budget no longer covers.
func (a *actor) block(q queued, why error) {
	c := &commit{by: q.By, next: a.rec.clone()}
	c.add(frames.PromptBlocked{PromptID: q.ID, Reason: why.Error()})
	c.add(frames.PromptDequeued{PromptID: q.ID, Reason: "cancelled"})
	c.next.dequeue(q.ID)
	a.handOver(c, q.ID)
	c.then = func() { delete(a.contents, q.ID) }
	if err := a.commit(c); err != nil {
		a.stalled = true
		a.broke(err)
		return
	}
	a.startNext()
}

// steerable reports whether a steer may go to the running turn: no earlier one
// waits for a turn of its own, and the turn is not being ended.
func (a *actor) steerable() bool {
	if a.turn == nil || a.turn.outcome != nil || a.turn.failed != nil || a.m.markOf(a.turn) != nil {
		return false
	}
	return len(a.rec.Queue) == 0 || a.rec.Queue[0].Mode != frames.ModeSteer || a.rec.Queue[0].Steer
}

// offer hands the first waiting steer to the agent, one at a time.
func (a *actor) offer() {
	if a.steered != "" || a.ag == nil || a.turn == nil || a.turn.deaf || len(a.rec.Queue) == 0 || !a.rec.Queue[0].Steer || !a.steerable() {
		return
	}
	t, ag, q := a.turn, a.ag, a.rec.Queue[0]
	p := agent.Prompt{ID: q.ID, Content: a.contents[q.ID]}
	if !t.aside(func() {
		err := a.steer(ag, t, p)
		_ = a.do(a.m.io, func() error { a.taken(t, q, err); return nil })
	}) {
		return
	}
	a.steered = q.ID
}

// steer hands p to the agent. A panic there is the agent's, nobody else's.
func (a *actor) steer(ag agent.Agent, t *turn, p agent.Prompt) (err error) {
	defer func() {
		if r := recover(); r != nil {
			a.log.Error("an agent crashed while it was steered", "turn", string(t.id), "stack", string(debug.Stack()))
			err = fmt.Errorf("the agent crashed: %v", r)
		}
	}()
	return ag.Steer(t.ctx, p)
}

// aside runs f beside Prompt; it is false once the turn is being ended.
func (t *turn) aside(f func()) bool {
	t.sideMu.Lock()
	defer t.sideMu.Unlock()
	if t.over.Load() {
		return false
	}
	t.side.Go(f)
	return true
}

// finishSides waits for what runs beside Prompt, but not for ever; nothing new
// begins.
func (t *turn) finishSides() {
	t.sideMu.Lock()
	t.over.Store(true)
	t.sideMu.Unlock()
	done := make(chan struct{})
	t.a.m.wg.Go(func() { t.side.Wait(); close(done) })
	within(done, agent.CloseTimeout)
}

// taken notes the agent's answer to a steer. After one that it did not take it is
// offered no other in this turn: none overtakes another.
func (a *actor) taken(t *turn, q queued, err error) {
	if a.turn != t {
		return
	}
	a.steered = ""
	if t.failed != nil {
		return
	}
	if err != nil {
		t.deaf = true
		if !errors.Is(err, agent.ErrNotTaken) && a.m.markOf(t) == nil {
			a.complain("steering failed: " + said(err))
		}
		return
	}
	c := &commit{turn: t.id, by: q.By, next: a.rec.clone()}
	c.add(frames.SteeringMessage{PromptID: q.ID, Content: a.contents[q.ID]})
	c.add(frames.PromptDequeued{PromptID: q.ID, Reason: "steered"})
	c.next.dequeue(q.ID)
	a.handOver(c, q.ID)
	c.then = func() { delete(a.contents, q.ID) }
	if err := a.commit(c); err != nil {
		a.fail(t, err)
		return
	}
	a.offer()
}

// giveUpSteers lets the steers that the turn did not take wait for turns of
// their own.
func (a *actor) giveUpSteers(r *record) {
	for i := range r.Queue {
		if q := &r.Queue[i]; q.Steer {
			q.Steer = false
			if q.Turn == "" {
				q.Turn = frames.TurnID(a.m.cfg.NewID())
			}
		}
	}
}
