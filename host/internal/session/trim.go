package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// goal says what a trim is for: that at most so many events and bytes are kept, and
// no turn that ended before a time.
type goal struct {
	events, bytes int64
	before        time.Time
}

// trimPoint is where a log is cut: behind event seq, the end of a turn. Zero is nowhere.
type trimPoint struct {
	seq           frames.Seq
	events, bytes int64 // dropped
	never         bool  // nowhere as the log is now, however much time passes
}

// findCut looks for the first cut that reaches the goal, or for the last one there
// is. It reads about as much of the log as it says to drop.
func (m *Manager) findCut(ctx context.Context, sid frames.SessionID, s logSpan, bytes int64, g goal) (trimPoint, error) {
	v, err := m.cfg.Store.Get(ctx, store.TableSession, string(sid))
	if err != nil {
		return trimPoint{}, err
	}
	rec, err := readRecord(sid, v)
	if err != nil {
		return trimPoint{}, err
	}
	c := cutter{goal: g, head: s.head, events: s.events(), bytes: bytes, waiting: map[frames.PromptID]struct{}{}, asked: map[frames.RequestID]struct{}{}}
	if t := rec.Turn; t != nil {
		c.head = min(c.head, t.After+1)
	}
	for _, q := range rec.Queue {
		c.waiting[q.ID] = struct{}{}
	}
	for after := s.first - 1; ; {
		evs, err := m.cfg.Store.Read(ctx, sid, after, 0, 0)
		if err != nil || len(evs) == 0 {
			return c.found(), err
		}
		for i := range evs {
			after = evs[i].Seq
			if more, err := c.take(&evs[i]); err != nil || !more {
				return c.found(), err
			}
		}
	}
}

// cutter looks for a cut, event by event.
type cutter struct {
	goal
	head          frames.Seq // the last event that must stay
	events, bytes int64      // of the whole log
	seen          trimPoint  // up to the event looked at
	best          trimPoint
	young         bool          // the next cut drops what need not go yet
	turn          frames.TurnID // the open turn
	waiting       map[frames.PromptID]struct{}
	asked         map[frames.RequestID]struct{} // and not decided
}

// found is where to cut, as far as the log was looked at.
func (c *cutter) found() trimPoint {
	p := c.best
	p.never = p.seq == 0 && !c.young
	return p
}

// take looks at the next event; false ends the search.
func (c *cutter) take(e *store.Event) (more bool, err error) {
	c.seen = trimPoint{seq: e.Seq, events: c.seen.events + 1, bytes: c.seen.bytes + int64(len(e.Data))}
	if e.Seq >= c.head {
		return false, nil
	}
	switch frames.EventType(e.Type) {
	case frames.TurnStartEvent, frames.TurnEndEvent, frames.PromptQueuedEvent,
		frames.ApprovalAskedEvent, frames.ApprovalDecidedEvent, frames.QuestionAskedEvent, frames.QuestionDecidedEvent:
	default:
		return true, nil
	}
	d, err := frames.DecodeEvent(e.Data)
	if err != nil {
		return false, fmt.Errorf("%w: seq %d: %v", store.ErrCorrupt, e.Seq, err)
	}
	p, err := d.Payload()
	if err != nil {
		return true, nil //nolint:nilerr // no fold knows more of it either
	}
	switch p := p.(type) {
	case *frames.TurnStart:
		c.turn = d.TurnID
	case *frames.TurnEnd:
		return c.end(d), nil
	case *frames.PromptQueued:
		_, waits := c.waiting[p.PromptID]
		return !waits, nil
	case *frames.ApprovalAsked:
		c.asked[p.ID] = struct{}{}
	case *frames.ApprovalDecided:
		delete(c.asked, p.ID)
	case *frames.QuestionAsked:
		c.asked[p.ID] = struct{}{}
	case *frames.QuestionDecided:
		delete(c.asked, p.ID)
	}
	return true, nil
}

// end looks at the end of a turn: if it has to go, the log may be cut behind it.
func (c *cutter) end(e frames.Event) (more bool) {
	if c.turn != "" && c.turn != e.TurnID {
		return true
	}
	c.turn = ""
	reached := c.goal.events >= c.events-c.best.events && c.goal.bytes >= c.bytes-c.best.bytes
	if reached && !e.Time.Before(c.before) {
		c.young = true
		return false
	}
	if len(c.asked) == 0 {
		c.best = c.seen
	}
	return true
}

// Reasons to leave a log as it is.
var (
	errNotWorth  = errors.New("session: the trim would write far more than it drops")
	errBaseLarge = fmt.Errorf("session: the fold of what would be trimmed is larger than %d MiB: delete the session, or keep it as it is", store.MaxRow>>20)
)

// A trim writes the base anew. One over smallBase bytes is written only for as many
// bytes that are dropped as worth says, times less.
const (
	smallBase = 256 << 10
	worth     = 16
)

// trimTo folds what is before a cut into the session's base and drops it, in one
// step of the store: either all of it happened or nothing. No actor waits for it.
func (m *Manager) trimTo(ctx context.Context, sid frames.SessionID, c trimPoint) error {
	v, size, err := m.base(ctx, sid)
	if err != nil {
		return err
	}
	if size > smallBase && int64(size) > worth*c.bytes {
		return errNotWorth
	}
	if err := m.foldTo(ctx, sid, v, c.seq); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("session %s: its base: %w", sid, err)
	}
	if len(b) > store.MaxRow {
		return errBaseLarge
	}
	first := c.seq + 1
	if err := m.cfg.Store.Trim(ctx, sid, first, store.Row{Table: store.TableBase, Key: string(sid), Value: b}); err != nil {
		hctx, cancel := context.WithTimeout(m.io, headTimeout)
		defer cancel()
		h, herr := m.cfg.Store.Head(hctx, sid)
		if herr != nil || h.First < first {
			return err // if it happened after all, whoever reads the log finds out
		}
	}
	m.trimmed(sid, first)
	return nil
}

// trimmed notes that a log begins at first, and tells.
func (m *Manager) trimmed(sid frames.SessionID, first frames.Seq) {
	m.mu.Lock()
	e := m.dir.byID[sid]
	if e != nil {
		e.first = max(e.first, first)
	}
	m.mu.Unlock()
	if e != nil {
		m.cfg.Publisher.Trimmed(sid, first)
	}
}

// base returns the fold of what was trimmed from a log, a new view where nothing
// was, and the size of its JSON.
func (m *Manager) base(ctx context.Context, sid frames.SessionID) (*frames.View, int, error) {
	b, err := m.cfg.Store.Get(ctx, store.TableBase, string(sid))
	if err != nil {
		return nil, 0, err
	}
	v := frames.NewView()
	if b == nil {
		return v, 0, nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, 0, fmt.Errorf("%w: the base of session %s: %v", store.ErrCorrupt, sid, err)
	}
	return v, len(b), nil
}

// foldTo applies the events after v.Seq to v, up to event upTo.
func (m *Manager) foldTo(ctx context.Context, sid frames.SessionID, v *frames.View, upTo frames.Seq) error {
	for e, err := range m.events(ctx, sid, v.Seq) {
		if err != nil {
			return err
		}
		if e.Seq > upTo {
			break
		}
		if err := v.ApplyEvent(e); err != nil {
			m.log.Debug("an event does not fold", "session", string(sid), "seq", uint64(e.Seq), "error", err)
		}
	}
	if v.Seq < upTo {
		return fmt.Errorf("%w: session %s: its log folds up to event %d, want %d", store.ErrCorrupt, sid, v.Seq, upTo)
	}
	return nil
}
