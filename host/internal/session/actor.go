package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/store"
)

// mailbox bounds what waits for an actor. Who finds it full waits: agents are
// slowed down, calls wait as long as their context allows.
const mailbox = 64

// actor owns one live session. Its goroutine runs until the session is closed,
// deleted or idle; the manager waits for it. All fields below gone belong to
// that goroutine.
type actor struct {
	m    *Manager
	e    *entry
	id   frames.SessionID
	log  *slog.Logger
	box  chan msg
	poke chan struct{} // somebody below changed what is pending
	gone chan struct{} // closed at the end

	ahead   *msg   // taken from box while looking for more to merge
	first   func() // comes before the mailbox
	born    bool   // made by Create: announced already
	quiet   bool   // repairs before anything is announced
	resumed bool   // the next turn says session/resumed
	stopped bool

	loaded   bool
	head     store.Head
	rec      *record
	contents map[frames.PromptID][]frames.ContentBlock // of queue and contexts

	turn    *turn
	steered frames.PromptID // being offered to the agent now
	tasks   map[frames.TaskID]*background
	outside int // requests outside of turns that are on their way

	ag       agent.Agent
	agClosed chan struct{} // closed when the last agent is; nil: there was none

	owed    []frames.Event // go with the next append
	later   []func() error // steps that the store refused
	limbo   *attempt       // an append whose outcome is unknown
	stalled bool           // something that waits could not go on
	failing bool           // clients were told that storing fails
	backoff time.Duration
	retry   *time.Timer
	idle    *time.Timer
}

// msg is one thing in a mailbox: a step, or words of the agent, which are
// merged where several wait.
type msg struct {
	step  func() error
	emit  *emission
	delta *delta
	done  chan error // capacity 1; nil for a delta
}

func newActor(m *Manager, e *entry) *actor {
	a := &actor{
		m: m, e: e, id: e.id, log: m.log.With("session", string(e.id)),
		box: make(chan msg, mailbox), poke: make(chan struct{}, 1), gone: make(chan struct{}),
		contents: map[frames.PromptID][]frames.ContentBlock{},
		tasks:    map[frames.TaskID]*background{},
		retry:    time.NewTimer(time.Hour), idle: time.NewTimer(time.Hour),
	}
	a.retry.Stop()
	a.idle.Stop()
	return a
}

// send puts q into the mailbox, waiting for room.
func (a *actor) send(ctx context.Context, q msg) error {
	select {
	case a.box <- q:
		return nil
	case <-a.gone:
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// do has the actor run step and returns its error. Once step is in the mailbox
// the end of ctx does not take it back.
func (a *actor) do(ctx context.Context, step func() error) error {
	return a.call(ctx, msg{step: step})
}

func (a *actor) call(ctx context.Context, q msg) error {
	q.done = make(chan error, 1)
	if err := a.send(ctx, q); err != nil {
		return err
	}
	return a.result(q)
}

// result waits for what became of a message that was sent.
func (a *actor) result(q msg) error {
	select {
	case err := <-q.done:
		return err
	case <-a.gone:
	}
	select {
	case err := <-q.done:
		return err
	default:
		return errGone
	}
}

// run is the actor's goroutine.
func (a *actor) run() {
	a.e.cold.Wait()
	if a.first != nil {
		a.first()
	}
	if !a.born {
		a.resumed = true
		a.m.cfg.Publisher.SetLive(a.id, true)
		_ = a.showStatus()
	}
	for !a.stopped {
		a.rest()
		a.handle(a.next())
	}
	a.leave()
}

// next returns what comes next, waiting for it.
func (a *actor) next() msg {
	if q := a.ahead; q != nil {
		a.ahead = nil
		return *q
	}
	select {
	case q := <-a.box:
		return q
	case <-a.poke:
		return msg{step: a.showStatus}
	case <-a.retry.C:
		return msg{step: a.heal}
	case <-a.idle.C:
		return msg{step: a.sleep}
	}
}

// more returns the next message if there is one; whoever cannot use it puts it
// into ahead.
func (a *actor) more() (msg, bool) {
	select {
	case q := <-a.box:
		return q, true
	default:
		return msg{}, false
	}
}

func (a *actor) handle(q msg) {
	if a.limbo != nil && q.delta == nil {
		if err := a.settleLimbo(); err != nil {
			a.log.Debug("an append's outcome is still unknown", "error", err)
		}
	}
	switch {
	case q.emit != nil:
		a.emit(q)
	case q.delta != nil:
		a.stream(q.delta)
	default:
		if err := q.step(); q.done != nil {
			q.done <- err
		} else if err != nil {
			a.log.Debug("a step failed", "error", err)
		}
	}
}

// leave makes the session cold. A new actor may start at once; it waits until
// this one has said its last word.
func (a *actor) leave() {
	a.retry.Stop()
	a.idle.Stop()
	a.m.mu.Lock()
	a.e.actor = nil
	a.e.cold.Add(1)
	silent := a.m.stopped || a.m.dir.byID[a.id] != a.e
	if a.e.works != nil {
		a.e.works.abandon("interrupted")
		a.e.works = nil
	}
	a.m.mu.Unlock()
	if !silent {
		_ = a.showStatus()
		a.m.cfg.Publisher.SetLive(a.id, false)
	}
	a.e.cold.Done()
	close(a.gone)
}

// showStatus publishes the status as it is.
func (a *actor) showStatus() error {
	a.publish(Update{}, true, false)
	return nil
}

// publish shows u with the open turn, and the status and the summary as they
// are, where asked for.
func (a *actor) publish(u Update, status, summary bool) {
	if a.quiet {
		return
	}
	if a.turn != nil {
		u.Turn = a.turn.open.Snapshot()
	}
	if status || summary {
		a.m.mu.RLock()
		if status {
			u.Status = new(a.m.status(a.e))
		}
		if summary {
			u.Summary = new(a.m.summary(a.e))
		}
		a.m.mu.RUnlock()
	}
	a.m.cfg.Publisher.Publish(a.id, u)
}

// complain tells clients of a failure that has no place in a turn.
func (a *actor) complain(message string) {
	message, _ = frames.Preview(frames.ValidText(message), maxMessage)
	a.publish(Update{Notices: []Notice{{Frame: &frames.AgentError{SessionID: a.id, Message: message}}}}, false, false)
}

// rest starts or stops the clock that makes an idle session cold.
func (a *actor) rest() {
	if a.isIdle() {
		a.idle.Reset(a.m.cfg.IdleAfter)
		return
	}
	a.idle.Stop()
}

func (a *actor) isIdle() bool {
	if !a.loaded {
		return true
	}
	return a.turn == nil && a.outside == 0 && len(a.rec.Queue) == 0 && !a.rec.dirty() && len(a.owed)+len(a.later) == 0 && a.limbo == nil
}
