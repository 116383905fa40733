package session

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/store"
)

// turn is one running turn; to its agent it is the [agent.Turn].
type turn struct {
	a  *actor
	id frames.TurnID
	// ctx is the agent's; its cause says why it ended.
	ctx    context.Context //nolint:containedctx // the lifetime of the turn's goroutines
	cancel context.CancelCauseFunc

	over    atomic.Bool  // Prompt has returned
	reached atomic.Bool  // Prompt was called
	block   atomic.Int32 // the next number
	ended   chan struct{}
	side    sync.WaitGroup // goroutines that steer; see sideLock
	sideMu  sync.Mutex     // orders side.Add before side.Wait

	link *child // set for a child's first turn

	// The manager's mutex guards these.
	mark   *mark   // why it is cancelled
	down   *mark   // what children get that start now
	sealed bool    // no children start any more
	waits  []*turn // their ends come before this one's

	// The actor's goroutine owns these.
	open     *frames.OpenTurn
	tally    tally // what it used so far
	streams  map[streamKey]*stream
	message  string                // of its turn/end
	last     []frames.ContentBlock // of the last whole assistant message
	failed   error                 // an append that the turn needed failed
	deaf     bool                  // it did not take a steer
	contexts int                   // how many of the record's contexts it took
	outcome  *outcome              // set once the agent has ended
	reason   frames.TurnEndReason  // how it ended; read after ended is closed
}

var _ agent.Turn = (*turn)(nil)

func (a *actor) newTurn(id frames.TurnID, link *child) *turn {
	ctx, cancel := context.WithCancelCause(a.m.io)
	return &turn{
		a: a, id: id, ctx: ctx, cancel: cancel, ended: make(chan struct{}), link: link,
		open: frames.NewOpenTurn(id), streams: map[streamKey]*stream{}, tally: tally{said: a.rec.Said},
	}
}

// ID returns the turn's id.
func (t *turn) ID() frames.TurnID { return t.id }

// NewBlock mints the number of the next text block.
func (t *turn) NewBlock() int { return int(t.block.Add(1)) - 1 }

// emission is a list of durable events that are stored together, and what they
// were made of.
type emission struct {
	turn     *turn // nil outside of turns
	payloads []frames.Payload
	events   []frames.Event
}

// Emit implements [agent.Turn].
func (t *turn) Emit(ctx context.Context, events ...frames.Payload) error {
	if t.over.Load() {
		return agent.ErrTurnOver
	}
	if slices.ContainsFunc(events, steps) {
		if err := t.step(); err != nil {
			return err
		}
	}
	return turnOver(t.a.say(ctx, t, events))
}

// say checks, encodes and appends what an agent emits.
func (a *actor) say(ctx context.Context, t *turn, payloads []frames.Payload) error {
	if len(payloads) == 0 {
		return nil
	}
	if len(payloads) > store.MaxBatch {
		return fmt.Errorf("emit: %d events at once, want at most %d", len(payloads), store.MaxBatch)
	}
	em := &emission{turn: t}
	for _, p := range payloads {
		p, e, err := a.m.word(ctx, p)
		if err != nil {
			return err
		}
		if t != nil {
			e.TurnID = t.id
		}
		em.payloads, em.events = append(em.payloads, p), append(em.events, e)
	}
	return a.call(ctx, msg{emit: em})
}

// turnOver hides from agents that an actor has stopped.
func turnOver(err error) error {
	if err == errGone {
		return agent.ErrTurnOver
	}
	return err
}

// hostOnly lists what only the host says: whole families, or single types.
// Children and tasks begin and end by [agent.Turn]'s methods.
var hostOnly = []string{
	"session/", "turn/", "prompt/", "approval/", "question/", "agent/", "task/",
	string(frames.UserMessageEvent), string(frames.SteeringMessageEvent),
}

// agentsToo is an exception: agents know when they forget.
const agentsToo = frames.SessionCompactedEvent

// word checks one payload of an agent and makes its event, cut to size.
func (m *Manager) word(ctx context.Context, p frames.Payload) (frames.Payload, frames.Event, error) {
	if p == nil {
		return nil, frames.Event{}, fmt.Errorf("emit: want a payload, got nil")
	}
	if err := m.checkType(p.EventType()); err != nil {
		return nil, frames.Event{}, err
	}
	p, e, err := m.fit(ctx, p)
	if err != nil {
		return nil, frames.Event{}, err
	}
	// What cannot be encoded fails here, alone, and not in the append that it
	// would share with others.
	try := e
	try.Seq, try.Time = 1, now()
	if _, err := frames.EncodeEvent(try); err != nil {
		return nil, frames.Event{}, fmt.Errorf("emit: want a JSON object as data: %w", err)
	}
	if p, err = contractual(p, e); err != nil {
		return nil, frames.Event{}, err
	}
	return p, e, nil
}

// contractual returns the typed payload of what an agent encoded itself, where
// the contract has the type; what does not fit it is refused.
func contractual(p frames.Payload, e frames.Event) (frames.Payload, error) {
	if _, raw := p.(agent.Raw); !raw {
		return p, nil
	}
	v, err := e.Payload()
	if err != nil {
		return nil, fmt.Errorf("emit %s: want what the contract says of this type: %w", e.Type, err)
	}
	if v == nil {
		return p, nil
	}
	typed, _ := reflect.ValueOf(v).Elem().Interface().(frames.Payload)
	return typed, nil
}

// checkType refuses types that an agent may not say.
func (m *Manager) checkType(t frames.EventType) error {
	for _, h := range hostOnly {
		if t == agentsToo {
			break
		}
		if string(t) == h || strings.HasSuffix(h, "/") && strings.HasPrefix(string(t), h) {
			return fmt.Errorf("emit %s: only the host says this", t)
		}
	}
	class, known := m.types[t]
	vendor, _, slash := strings.Cut(string(t), "/")
	switch {
	case known && !class.Durable():
		return fmt.Errorf("emit %s: it is never stored: stream it", t)
	case !known && (!slash || !strings.Contains(strings.Trim(vendor, "."), ".")):
		return fmt.Errorf("emit %q: the contract has no such type: name your own vendor.name/type", t)
	case !known && len(t) > store.MaxID:
		return fmt.Errorf("emit: a type of %d bytes, want at most %d", len(t), store.MaxID)
	}
	return nil
}

// emit appends an emission together with those that wait behind it.
func (a *actor) emit(q msg) {
	c := &commit{}
	var batch []msg
	for n := 0; ; {
		if em := q.emit; a.heard(em) {
			c.events = append(c.events, a.renumbered(em)...)
			batch = append(batch, q)
			n = len(c.events)
		} else {
			q.done <- agent.ErrTurnOver
		}
		next, ok := a.more()
		if !ok {
			break
		}
		if next.emit == nil || n+len(next.emit.events) > store.MaxBatch {
			a.ahead = &next
			break
		}
		q = next
	}
	if len(batch) == 0 {
		return
	}
	err := a.ready()
	if err == nil {
		a.account(c)
		err = a.commit(c)
	}
	for _, q := range batch {
		if _, ok := err.(*StorageError); ok && q.emit.turn != nil {
			a.fail(q.emit.turn, err)
		}
		q.done <- err
	}
	a.startNext()
}

// account adds to the record what is said of the session's use outside of turns.
func (a *actor) account(c *commit) {
	if a.turn != nil {
		return
	}
	t := tally{said: a.rec.Said}
	for _, e := range c.events {
		if e.Type == frames.UsageUpdatedEvent {
			if p, err := e.Payload(); err == nil {
				t.take(p)
			}
		}
	}
	if t.said != a.rec.Said {
		c.next = a.rec.clone()
		c.next.Account, c.next.Said = c.next.Account.plus(t.rise), t.said
		u := c.next.spending(nil)
		c.next.Tokens, c.next.Cost = u.Tokens, u.Cost
	}
}

// heard reports whether an emission is not too late.
func (a *actor) heard(em *emission) bool {
	return em.turn == nil || em.turn == a.turn && a.turn.outcome == nil
}

// fail gives a turn up whose events cannot be stored: its agent is stopped, and
// what it left open is closed once the store works again.
func (a *actor) fail(t *turn, err error) {
	if t != a.turn || t.failed != nil {
		return
	}
	t.failed = err
	a.broke(err)
	t.cancel(err)
}

// applied keeps track of what a stored event opened, closed and used.
func (t *turn) applied(e frames.Event) {
	if e.TurnID == t.id {
		_ = t.open.Apply(e) // a missed chunk is impossible here: the actor numbers them
	} else if e.Type != frames.UsageUpdatedEvent {
		return
	}
	if !measured(e.Type) {
		return
	}
	p, err := e.Payload()
	if err != nil {
		return
	}
	t.tally.take(p)
	if m, ok := p.(*frames.AssistantMessage); ok && !m.Partial && len(m.Content) > 0 {
		t.last = m.Content
	}
}

// Blob implements [agent.Turn].
func (t *turn) Blob(ctx context.Context, r io.Reader) (frames.BlobID, int64, error) {
	if t.over.Load() {
		return "", 0, agent.ErrTurnOver
	}
	return t.a.m.cfg.Blobs.Put(ctx, r)
}
