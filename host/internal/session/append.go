package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// headTimeout bounds the look at a log's head after a failed append.
const headTimeout = 10 * time.Second

// The waits between tries to store what could not be stored.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// commit is one step of a session: what is stored, all or nothing, and what
// follows once it is.
type commit struct {
	turn   frames.TurnID // of the events added next
	by     *frames.By
	events []frames.Event
	err    error // the first event that could not be made

	rows    []store.Row
	next    *record // replaces the record
	then    func()  // changes what is in memory
	placed  func()  // lets the caller place its response
	lost    func()  // called where an unknown outcome turned out to be none
	notices []Notice
	status  bool // publish the status too
	asked   bool // what is pending changed: tell the ancestors too
	summary bool // publish the summary too
}

// add makes p the commit's next event.
func (c *commit) add(p frames.Payload) {
	e, err := frames.NewEvent(p)
	if err != nil {
		c.err = errors.Join(c.err, err)
		return
	}
	e.TurnID, e.By = c.turn, c.by
	c.events = append(c.events, e)
}

// row adds a row that was made with an error.
func (c *commit) row(r store.Row, err error) {
	c.err = errors.Join(c.err, err)
	c.rows = append(c.rows, r)
}

// attempt is a commit that was sent to the store.
type attempt struct {
	c      *commit
	enc    []frames.Encoded
	events []frames.Event
	stored []store.Event
}

// landed reports whether h is the head that the attempt makes after at.
func (t *attempt) landed(at, h store.Head) bool {
	return h.Seq == at.Seq+frames.Seq(len(t.stored)) && h.LastID == t.stored[len(t.stored)-1].ID
}

// commit stores c and publishes it. It blocks for one flush of the disk. On an
// error nothing changed; it is a *StorageError where the store failed.
func (a *actor) commit(c *commit) error {
	if c.err != nil {
		return c.err
	}
	if a.limbo != nil { // c was made without knowing what that changed
		return &StorageError{fmt.Errorf("%w: an earlier append may have landed or not", store.ErrUnknown)}
	}
	if n := len(c.events); n > 0 && n <= store.MaxBatch {
		for len(a.owed)+n > store.MaxBatch {
			if err := a.commit(&commit{}); err != nil {
				return err
			}
		}
	}
	t, err := a.encode(c)
	if err != nil {
		return err
	}
	if err := a.recordRows(c); err != nil {
		return err
	}
	head, err := a.m.cfg.Store.Append(a.m.io, a.id, a.head, t.stored, c.rows...)
	if err != nil {
		if head, err = a.verify(t, err); err != nil {
			return &StorageError{err}
		}
	}
	a.land(t, head)
	return nil
}

// commitAll is commit for more events than fit one append. The first ones are
// stored before; what follows from c waits for the last.
func (a *actor) commitAll(c *commit) error {
	const part = store.MaxBatch / 2
	for len(c.events) > part && c.err == nil {
		if err := a.commit(&commit{events: c.events[:part]}); err != nil {
			return err
		}
		c.events = c.events[part:]
	}
	return a.commit(c)
}

// encode numbers and encodes what is owed and the events of c.
func (a *actor) encode(c *commit) (*attempt, error) {
	owed := a.owed
	if len(c.events) == 0 {
		owed = owed[:min(len(owed), store.MaxBatch)]
	}
	t := &attempt{c: c, events: slices.Concat(owed, c.events)}
	if len(t.events) > store.MaxBatch {
		return nil, fmt.Errorf("%w: %d events in one step, want at most %d", ErrTooLarge, len(t.events), store.MaxBatch)
	}
	now := frames.At(time.Now())
	for i := range t.events {
		e := &t.events[i]
		e.Seq, e.Time = a.head.Seq+1+frames.Seq(i), now
		enc, err := frames.EncodeEvent(*e)
		if err != nil {
			return nil, err
		}
		t.enc = append(t.enc, enc)
		t.stored = append(t.stored, store.Event{ID: a.m.cfg.NewID(), Type: string(e.Type), Time: now.Time, Data: enc.Data})
	}
	return t, nil
}

// recordRows adds the rows of a new record.
func (a *actor) recordRows(c *commit) error {
	if c.next == nil {
		return nil
	}
	c.next.UpdatedAt = frames.At(time.Now())
	r, err := c.next.row(a.id)
	if err != nil {
		return err
	}
	c.rows = append(c.rows, r)
	if was := a.rec != nil && a.rec.dirty(); was != c.next.dirty() {
		d := store.Row{Table: store.TableDirty, Key: string(a.id)}
		if !was {
			d.Value = []byte("1")
		}
		c.rows = append(c.rows, d)
	}
	return nil
}

// verify finds out what became of an append that failed: it returns the head if
// the events are there after all. Where that cannot be known, the attempt stays
// in limbo until the next step finds out.
func (a *actor) verify(t *attempt, cause error) (store.Head, error) {
	if errors.Is(cause, store.ErrTooLarge) {
		return store.Head{}, cause
	}
	ctx, cancel := context.WithTimeout(a.m.io, headTimeout)
	defer cancel()
	h, err := a.m.cfg.Store.Head(ctx, a.id)
	switch {
	case err != nil:
		t.c.placed = nil
		a.limbo = t
	case t.landed(a.head, h):
		return h, nil
	case h.Deleted:
		return h, store.ErrDeleted
	default:
		a.head = h
	}
	return store.Head{}, cause
}

// unknown reports whether c may be in the log though its append failed. It is
// found out later: what follows from c follows then, or c.lost is called.
func (a *actor) unknown(c *commit) bool { return a.limbo != nil && a.limbo.c == c }

// settleLimbo finishes or drops the attempt whose outcome was unknown.
func (a *actor) settleLimbo() error {
	if a.limbo == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(a.m.io, headTimeout)
	defer cancel()
	h, err := a.m.cfg.Store.Head(ctx, a.id)
	if err != nil {
		return &StorageError{err}
	}
	t := a.limbo
	a.limbo, a.stalled = nil, true // see heal: what waited for this goes on
	if t.landed(a.head, h) {
		a.land(t, h)
		return nil
	}
	a.head = h
	if t.c.lost != nil {
		t.c.lost()
	}
	return nil
}

// land makes a stored attempt true: in memory, for the caller, for everyone.
func (a *actor) land(t *attempt, head store.Head) {
	c := t.c
	a.head, a.failing, a.backoff = head, false, 0
	a.owed = a.owed[min(len(a.owed), len(t.events)-len(c.events)):]
	if c.next != nil {
		a.rec = c.next
	}
	if c.then != nil {
		c.then()
	}
	if a.turn != nil {
		for _, e := range t.events {
			a.turn.applied(e)
		}
	}
	size := int64(0)
	for _, e := range t.enc {
		size += int64(len(e.Data))
	}
	a.m.mu.Lock()
	a.e.grown += size
	a.e.sum = a.rec.summary(a.id, head)
	a.e.sum.UpdatedAt = t.events[len(t.events)-1].Time
	a.e.first = max(a.e.first, head.First) // trims come in between
	a.e.policy, a.e.own = a.rec.Policy, a.rec.Own
	a.work(t.events)
	warn, stop := a.charge(c, t.events)
	a.m.mu.Unlock()
	if c.placed != nil {
		c.placed()
	}
	a.publish(Update{Events: t.enc, Notices: c.notices}, c.status || c.asked, c.summary)
	if c.asked && !a.quiet {
		a.m.pokeAbove(a.e)
	}
	a.told(warn, stop)
}

// owe keeps events that could not be stored for the next append, and sees to it
// that there is one.
func (a *actor) owe(events ...frames.Event) {
	a.owed = append(a.owed, events...)
	a.retryLater()
}

// retryLater plans the next try to store what could not be stored.
func (a *actor) retryLater() {
	a.backoff = min(max(2*a.backoff, minBackoff), maxBackoff)
	a.retry.Reset(a.backoff)
}

// broke handles an append that failed though a turn needed it: clients are told
// once, and it is tried again with pauses.
func (a *actor) broke(err error) {
	if !a.failing {
		a.failing = true
		a.log.Error("the session could not be stored and is tried again", "error", err)
		a.complain("the session could not be stored and is tried again; the host's log says why")
	}
	a.retryLater()
}

// ready loads the session and stores what is still to be stored; calls begin
// with it.
func (a *actor) ready() error {
	if !a.loaded {
		if err := a.load(); err != nil {
			return err
		}
	}
	return a.heal()
}

// heal stores what could not be stored before, and goes on from there.
func (a *actor) heal() error {
	ended := a.turn != nil && a.turn.outcome != nil
	if !a.loaded || a.limbo == nil && !ended && !a.stalled && len(a.owed)+len(a.later) == 0 {
		return nil
	}
	err := a.settleLimbo()
	switch {
	case err != nil:
	case a.turn != nil && a.turn.outcome != nil:
		err = a.endTurn(a.turn)
	case len(a.owed) > 0:
		err = a.commit(&commit{})
	}
	for err == nil && len(a.later) > 0 {
		if err = a.later[0](); err == nil {
			a.later = a.later[1:]
		}
	}
	if err != nil {
		a.broke(err)
		return err
	}
	a.retry.Stop()
	a.stalled = false
	a.startNext()
	return nil
}
