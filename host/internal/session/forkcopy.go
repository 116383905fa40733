package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// copying is a fork's log while it is copied from its source's.
type copying struct {
	m    *Manager
	b    *birth
	from frames.ForkPoint

	head  store.Head
	next  frames.Seq    // of the next event of the fork
	batch []store.Event // not stored yet
	size  int           // of batch, in bytes
	// view is the fold of what matters to the record: no messages, no tools.
	view *frames.View
	// contexts is what was injected since the last turn began, in order.
	contexts map[frames.PromptID][]frames.ContentBlock
	order    []frames.PromptID
}

// copyBytes bounds one append of a copy, but for one event; 4 MiB.
const copyBytes = 4 << 20

// run stores the fork, the record last.
func (c *copying) run(ctx context.Context) error {
	base, err := c.begin(ctx)
	if err != nil {
		return err
	}
	if err := c.copy(ctx, base); err != nil {
		return err
	}
	if err := c.settle(); err != nil {
		return err
	}
	if err := c.flush(ctx); err != nil {
		return err
	}
	rows, err := c.rows(ctx)
	if err != nil {
		return err
	}
	if err := c.m.cfg.Store.Put(c.m.io, rows...); err != nil {
		return &StorageError{err}
	}
	return nil
}

// begin marks the log and puts the fork's first event into it; or, where the
// source's was trimmed, into its base. It returns the seq after which the source
// is copied.
func (c *copying) begin(ctx context.Context) (after frames.Seq, err error) {
	c.view = frames.NewView()
	rows := []store.Row{{Table: store.TableDirty, Key: string(c.b.id), Value: []byte(halfMark)}}
	created, at := c.created(), c.b.rec.CreatedAt
	base, err := c.m.baseOf(ctx, c.from.SessionID)
	if err != nil {
		return 0, err
	}
	if base != nil {
		after = base.Seq
		if after >= c.from.Seq {
			return 0, c.m.forkExpired(c.from.SessionID, c.from.Seq)
		}
		c.view = base
		c.view.Fork(created, at)
		b, err := json.Marshal(c.view)
		if err != nil {
			return 0, fmt.Errorf("session %s: its base: %w", c.b.id, err)
		}
		rows = append(rows, store.Row{Table: store.TableBase, Key: string(c.b.id), Value: b})
		c.forgetItems()
	}
	if err := c.m.cfg.Store.Put(c.m.io, rows...); err != nil {
		return 0, &StorageError{err}
	}
	c.next = after + 1
	if base != nil {
		c.next++
		return after, nil
	}
	e, err := frames.NewEvent(created)
	if err != nil {
		return 0, err
	}
	e.Time = at
	return 0, c.append(e)
}

func (c *copying) created() frames.SessionCreated {
	r := c.b.rec
	return frames.SessionCreated{
		Agent: r.Agent, Cwd: r.Cwd, Title: r.Title, ParentSessionID: r.Parent, RootSessionID: r.Root, Depth: r.Depth,
		Origin: r.Origin, ForkedFrom: &c.from, Config: r.Config, Policy: r.Policy, Budget: r.Budget, Labels: r.Labels,
	}
}

// append adds an event of the fork's own, and numbers it.
func (c *copying) append(e frames.Event) error {
	e.By, e.Seq = c.b.by, c.next
	enc, err := frames.EncodeEvent(e)
	if err != nil {
		return err
	}
	_ = c.view.ApplyEvent(e) // made here, from the table
	c.add(store.Event{ID: c.m.cfg.NewID(), Type: string(e.Type), Time: e.Time.Time, Data: enc.Data})
	return nil
}

func (c *copying) add(e store.Event) {
	c.batch = append(c.batch, e)
	c.size += len(e.Data)
	c.next++
}

// copy copies the source's events after a seq up to the fork's point.
func (c *copying) copy(ctx context.Context, after frames.Seq) error {
	for after < c.from.Seq {
		evs, err := c.m.cfg.Store.Read(ctx, c.from.SessionID, after, store.MaxBatch, copyBytes)
		if errors.Is(err, store.ErrTrimmed) {
			return errTrimmedUnder
		}
		if err != nil {
			return readError(err)
		}
		if len(evs) == 0 {
			return &StorageError{fmt.Errorf("%w: session %s has no event %d", store.ErrCorrupt, c.from.SessionID, after+1)}
		}
		for _, e := range evs {
			if e.Seq > c.from.Seq {
				break
			}
			after = e.Seq
			if err := c.take(e); err != nil {
				return err
			}
			if len(c.batch) == store.MaxBatch || c.size >= copyBytes {
				if err := c.flush(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// take copies one event.
func (c *copying) take(e store.Event) error {
	data, err := frames.Renumber(e.Data, 1)
	if err != nil {
		return &StorageError{fmt.Errorf("%w: session %s, event %d: %v", store.ErrCorrupt, c.from.SessionID, e.Seq, err)}
	}
	c.add(store.Event{ID: e.ID, Type: e.Type, Time: e.Time, Data: data})
	family, _, _ := strings.Cut(e.Type, "/")
	switch family {
	case "assistant", "reasoning", "tool", "todo":
		return nil // the bulk of a log, of which the record keeps nothing
	}
	ev, err := frames.DecodeEvent(data)
	if err != nil {
		return &StorageError{fmt.Errorf("%w: session %s, event %d: %v", store.ErrCorrupt, c.from.SessionID, e.Seq, err)}
	}
	if err := c.view.ApplyEvent(ev); err != nil && !errors.Is(err, frames.ErrGap) {
		c.m.log.Debug("an event does not fold", "session", string(c.from.SessionID), "seq", uint64(e.Seq), "error", err)
	}
	c.note(ev)
	c.forgetItems()
	return nil
}

// forgetItems lets go of messages, which would add up.
func (c *copying) forgetItems() {
	clear(c.view.Items)
	c.view.Items = c.view.Items[:0]
}

// note keeps the context that no turn has taken yet.
func (c *copying) note(e frames.Event) {
	switch e.Type {
	case frames.TurnStartEvent:
		clear(c.contexts)
		c.order = nil
	case frames.ContextMessageEvent:
		if p, err := e.Payload(); err == nil {
			m := p.(*frames.ContextMessage)
			c.contexts[m.PromptID] = m.Content
			c.order = append(c.order, m.PromptID)
		}
	}
}

// flush stores the batch. It gives up when the host goes down or ctx is done.
func (c *copying) flush(ctx context.Context) error {
	if len(c.batch) == 0 {
		return nil
	}
	if c.m.isDraining() {
		return ErrDraining
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fork session %s: %w: fork at an earlier turn", c.from.SessionID, context.Cause(ctx))
	}
	var err error
	if c.head.Seq == 0 {
		c.head, err = c.m.cfg.Store.Restore(c.m.io, c.b.id, "", c.next-frames.Seq(len(c.batch)), c.batch)
	} else {
		c.head, err = c.m.cfg.Store.Append(c.m.io, c.b.id, c.head, c.batch)
	}
	if err != nil {
		return &StorageError{err}
	}
	c.batch, c.size = c.batch[:0], 0
	return nil
}

// settle closes what the copies leave open, and says what of the fork differs
// from what they say.
func (c *copying) settle() error {
	s, v, r := &commit{}, c.view, c.b.rec
	options, err := json.Marshal(v.Options)
	if err != nil {
		return fmt.Errorf("session %s: its options: %w", c.b.id, err)
	}
	if len(v.Options) > 0 {
		r.Options = options
	}
	if v.Title != r.Title {
		s.add(frames.SessionRenamed{Title: r.Title})
	}
	if p := c.configured(); p != nil {
		s.add(*p)
	}
	for _, q := range v.Queue() {
		s.add(frames.PromptDequeued{PromptID: q.PromptID, Reason: "cancelled"})
	}
	for _, p := range v.Pending() {
		if p.Kind == frames.ItemApproval {
			s.add(frames.ApprovalDecided{ID: p.ID, Outcome: frames.Cancelled, Origin: frames.CauseAbort, InputHash: p.InputHash})
		} else {
			s.add(frames.QuestionDecided{ID: p.ID, Outcome: frames.Cancelled, Origin: frames.CauseAbort})
		}
	}
	for _, k := range v.Children() {
		if k.Status == "" {
			s.add(frames.AgentCompleted{ChildSessionID: k.SessionID, CallID: k.CallID, Status: string(frames.TurnInterrupted)})
		}
	}
	for _, t := range v.Tasks() {
		if t.Status == "" {
			s.add(frames.TaskCompleted{TaskID: t.TaskID, Status: "interrupted"})
		}
	}
	if s.err != nil {
		return s.err
	}
	return c.appendAll(s.events)
}

// appendAll adds events of the fork's own, however many they are.
func (c *copying) appendAll(events []frames.Event) error {
	for _, e := range events {
		if len(c.batch) >= store.MaxBatch {
			if err := c.flush(c.m.io); err != nil {
				return err
			}
		}
		e.Time = now()
		if err := c.append(e); err != nil {
			return err
		}
	}
	return nil
}

// configured returns what governs the fork where the copies say otherwise.
func (c *copying) configured() *frames.SessionConfigured {
	var p frames.SessionConfigured
	differs := false
	if r := c.b.rec; r.Policy != nil && !sameJSON(r.Policy, c.view.Policy) {
		p.Policy, differs = r.Policy, true
	}
	if r := c.b.rec; r.Budget != nil && !sameJSON(r.Budget, c.view.Budget) {
		p.Budget, differs = r.Budget, true
	}
	if r := c.b.rec; !maps.Equal(r.Labels, c.view.Labels) {
		p.Labels, differs = maps.Clone(r.Labels), true
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
	}
	if !differs {
		return nil
	}
	return &p
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// rows are what makes the copied log a session.
func (c *copying) rows(ctx context.Context) ([]store.Row, error) {
	r := c.b.rec
	r.UpdatedAt = now()
	rows := []store.Row{{Table: store.TableDirty, Key: string(c.b.id)}}
	state, err := c.m.state(ctx, c.from.SessionID)
	if err != nil {
		return nil, err
	}
	if state != nil {
		rows = append(rows, stateRow(c.b.id, state))
	}
	for _, id := range c.order {
		content, ok := c.contexts[id]
		if !ok || id == "" {
			continue
		}
		delete(c.contexts, id)
		hash, err := promptHash(frames.ModeInject, content)
		if err != nil {
			return nil, err
		}
		row, err := promptRow{Hash: hash, Mode: frames.ModeInject, Content: content}.row(c.b.id, id)
		if err != nil {
			return nil, err
		}
		rows, r.Contexts = append(rows, row), append(r.Contexts, id)
	}
	row, err := r.row(c.b.id)
	if err != nil {
		return nil, err
	}
	return append(append(rows, row), c.b.once.rows(c.b.id)...), nil
}
