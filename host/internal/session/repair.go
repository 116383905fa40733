package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// repairAll closes what was open in the logs of sessions that were running when
// the host stopped, children before parents. One that cannot be repaired now is
// repaired when it is first touched.
func (m *Manager) repairAll(ctx context.Context) error {
	var dirty []*entry
	after := ""
	for {
		rows, err := m.cfg.Store.Scan(ctx, store.TableDirty, "", after, 0)
		if err != nil {
			return fmt.Errorf("look for sessions to repair: %w", err)
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			after = r.Key
			if e := m.dir.byID[frames.SessionID(r.Key)]; e != nil {
				dirty = append(dirty, e)
			}
		}
	}
	slices.SortStableFunc(dirty, func(a, b *entry) int { return cmp.Compare(b.sum.Depth, a.sum.Depth) })
	for _, e := range dirty {
		a := newActor(m, e)
		a.quiet = true
		if err := a.load(); err != nil {
			m.log.Error("a session could not be repaired yet", "session", string(e.id), "error", err)
		}
	}
	return nil
}

// leftOpen is what the log of an open turn leaves open.
type leftOpen struct {
	approvals map[frames.RequestID]string // input hashes
	questions map[frames.RequestID]struct{}
	tools     map[frames.CallID]struct{}
	order     []func(c *commit) // closes each, in the order they were opened
	tally     tally             // what the turn used
}

// repair closes everything that the host left open when it stopped: in one
// append, but for more than fit. Each append leaves a log and a record that a
// repair can begin with, so that it may be cut off anywhere.
func (a *actor) repair() error {
	if err := a.repairAsks(); err != nil || !a.rec.dirty() {
		return err
	}
	for len(a.rec.Spawned)+len(a.rec.Tasks) > maxEnds {
		c := &commit{next: a.rec.clone()}
		if a.rec.Turn != nil {
			c.turn = a.rec.Turn.ID
		}
		c.interrupt()
		if err := a.commit(c); err != nil {
			return err
		}
	}
	c := &commit{status: true}
	var asked []frames.RequestID
	var sum *tally
	if t := a.rec.Turn; t != nil {
		open, err := a.findOpen(t)
		if err != nil {
			return &StorageError{err}
		}
		c.turn = t.ID
		asked, sum = open.close(c), &open.tally
	}
	for len(c.events) > maxEnds { // a log tells which of these are closed
		part := &commit{events: c.events[:maxEnds]}
		if err := a.commit(part); err != nil {
			return err
		}
		c.events = c.events[maxEnds:]
	}
	c.next = a.rec.clone()
	c.interrupt()
	if a.rec.Turn != nil {
		c.add(frames.TurnEnd{Reason: frames.TurnInterrupted})
		c.next.spend(sum)
	}
	c.next.Turn = nil
	a.giveUpSteers(c.next)
	if err := a.commit(c); err != nil {
		return err
	}
	for _, id := range asked {
		a.restored(id)
	}
	return nil
}

// maxEnds bounds the ends of one append of a repair: two such lists and a turn's
// end fit.
const maxEnds = store.MaxBatch/2 - 1

// interrupt ends children and tasks, as many as fit, and takes them from the
// record.
func (c *commit) interrupt() {
	r, room := c.next, maxEnds
	for ; len(r.Spawned) > 0 && room > 0; room-- {
		c.add(frames.AgentCompleted{ChildSessionID: r.Spawned[0].Child, CallID: r.Spawned[0].Call, Status: string(frames.TurnInterrupted)})
		r.Spawned = r.Spawned[1:]
	}
	for ; len(r.Tasks) > 0 && room > 0; room-- {
		c.add(frames.TaskCompleted{TaskID: r.Tasks[0].ID, Status: "interrupted"})
		r.Tasks = r.Tasks[1:]
	}
}

// findOpen reads the log of the open turn.
func (a *actor) findOpen(t *openTurn) (*leftOpen, error) {
	open := &leftOpen{
		tally:     tally{said: a.rec.Said},
		approvals: map[frames.RequestID]string{}, questions: map[frames.RequestID]struct{}{}, tools: map[frames.CallID]struct{}{},
	}
	for e, err := range a.m.events(a.m.io, a.id, t.After) {
		if err != nil {
			return nil, err
		}
		p, err := e.Payload()
		if err != nil {
			a.log.Warn("an event cannot be read", "type", string(e.Type), "error", err)
			continue
		}
		open.take(p)
	}
	return open, nil
}

// take notes what one event opens or closes.
func (o *leftOpen) take(p any) {
	o.tally.take(p)
	switch v := p.(type) {
	case *frames.ApprovalAsked:
		o.approvals[v.ID] = v.InputHash
		o.order = append(o.order, func(c *commit) {
			if hash, ok := o.approvals[v.ID]; ok {
				c.add(frames.ApprovalDecided{ID: v.ID, Outcome: frames.Cancelled, Origin: frames.CauseShutdown, InputHash: hash})
			}
		})
	case *frames.ApprovalDecided:
		delete(o.approvals, v.ID)
	case *frames.QuestionAsked:
		o.questions[v.ID] = struct{}{}
		o.order = append(o.order, func(c *commit) {
			if _, ok := o.questions[v.ID]; ok {
				c.add(frames.QuestionDecided{ID: v.ID, Outcome: frames.Cancelled, Origin: frames.CauseShutdown})
			}
		})
	case *frames.QuestionDecided:
		delete(o.questions, v.ID)
	case *frames.ToolCall:
		o.tools[v.CallID] = struct{}{}
		o.order = append(o.order, func(c *commit) {
			if _, ok := o.tools[v.CallID]; ok {
				delete(o.tools, v.CallID) // once, though it may have been announced twice
				c.add(frames.ToolResult{
					CallID: v.CallID, IsError: true, ErrorCode: "interrupted",
					Content: []frames.ContentBlock{frames.Text("the host stopped before this finished")},
				})
			}
		})
	case *frames.ToolResult:
		delete(o.tools, v.CallID)
	}
}

// close adds what closes everything, and returns the requests among it.
func (o *leftOpen) close(c *commit) []frames.RequestID {
	for _, f := range o.order {
		f(c)
	}
	var asked []frames.RequestID
	for id := range o.approvals {
		asked = append(asked, id)
	}
	for id := range o.questions {
		asked = append(asked, id)
	}
	return asked
}
