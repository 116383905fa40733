package frames

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// ApplyFrame takes the session's next frame, by value or by pointer; frames that
// do not concern one session's state are ignored. The caller picks out the frames
// of this view's session, and `host/subscribed`, which voids the cards of all. It
// fails as [View.ApplyEvent] does, or on a base that does not decode, which changes
// nothing.
func (v *View) ApplyFrame(f Frame) error {
	switch f := value(f).(type) {
	case SessionEvent:
		e, err := DecodeEvent(f.Event)
		if err != nil {
			return err
		}
		return v.ApplyEvent(e)
	case SessionSubscribed:
		return v.subscribe(f)
	case SessionBase:
		return v.takeBase(f)
	case SessionLive:
		v.applySnapshot(f)
	case SessionLagging:
		v.Lagging = true
	case HostSubscribed:
		v.voidCards()
	case SessionStatus:
		v.Status = f.State
	case ApprovalRequested:
		v.request(Pending{
			ID: f.ID, Kind: ItemApproval, TurnID: f.TurnID, CallID: f.CallID, Tool: &f.Tool, Input: rawOrNil(f.Input),
			InputHash: f.InputHash, Truncated: f.Truncated, Reason: f.Reason, Options: f.Options,
			AskedAt: timeOrZero(f.AskedAt), ExpiresAt: timeOrZero(f.ExpiresAt),
		})
	case QuestionRequested:
		v.request(Pending{
			ID: f.ID, Kind: ItemQuestion, TurnID: f.TurnID, CallID: f.CallID, Questions: f.Questions,
			AskedAt: timeOrZero(f.AskedAt), ExpiresAt: timeOrZero(f.ExpiresAt),
		})
	case ApprovalResolved:
		v.resolve(f.ID)
	case QuestionResolved:
		v.resolve(f.ID)
	}
	return nil
}

// subscribe begins a baseline: it voids all cards, and a base replaces the view,
// at once or when its last part came. So does a log of another epoch, when it
// comes from its start.
func (v *View) subscribe(f SessionSubscribed) error {
	if len(f.Base) > 0 && !isNull(f.Base) {
		base := NewView()
		if err := base.UnmarshalJSON(f.Base); err != nil {
			return fmt.Errorf("base: %w", err)
		}
		*v = *base
	} else if f.BaseParts == 0 && f.Since == 0 && v.Epoch != "" && f.Epoch != v.Epoch {
		*v = *NewView()
	}
	v.Epoch, v.subscribed, v.more, v.partial = f.Epoch, true, false, nil
	if f.BaseParts > 0 {
		v.partial = &partialBase{parts: f.BaseParts}
	}
	v.voidCards()
	v.Status = f.State
	return nil
}

// voidCards takes every card away; a baseline repeats those that still wait.
func (v *View) voidCards() {
	for _, p := range v.pending.all() {
		v.resolve(p.ID)
	}
	v.settle()
}

// request shows a card. What its audit event said stands.
func (v *View) request(p Pending) {
	if old := v.pending.get(p.ID); old != nil && old.Seq > 0 {
		p = *old
	}
	p.Card = true
	v.putPending(p)
	v.settle()
}

// resolve takes a card away. Its history ends with the audit event.
func (v *View) resolve(id RequestID) {
	p := v.pending.get(id)
	switch {
	case p == nil:
	case p.Seq == 0:
		v.dropPending(id)
	default:
		kept := *p
		kept.Card = false
		v.putPending(kept)
	}
	v.settle()
}

// applySnapshot replaces what is live with the snapshot, part by part. What is
// over by now stays over.
func (v *View) applySnapshot(f SessionLive) {
	first := !v.more
	v.more = f.More
	if first {
		v.Gaps = false
	}
	if !f.More {
		v.Lagging = false
	}
	switch {
	case f.Turn == nil && v.TurnID == "":
		v.live = nil
	case f.Turn == nil:
		v.live = v.freshLive(v.TurnID)
	case v.over(f.Turn.TurnID):
	default:
		if first || v.live == nil || v.live.id != f.Turn.TurnID {
			v.live = v.freshLive(f.Turn.TurnID)
		}
		v.load(f.Turn)
	}
	v.settle()
}

// freshLive returns the open turn id as the log alone tells it: running tools,
// no text.
func (v *View) freshLive(id TurnID) *OpenTurn {
	t := NewOpenTurn(id)
	if id == v.TurnID {
		for n := range v.closed {
			t.closed[n] = struct{}{}
		}
	}
	if v.live != nil && v.live.id == id {
		t.closed = v.live.closed
	}
	running := slices.SortedFunc(maps.Values(v.running), func(a, b *Item) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, it := range running {
		if it.TurnID == "" || it.TurnID == id {
			t.openTool(it.Tool.CallID)
		}
	}
	return t
}

// load adds a snapshot's texts to the open turn.
func (v *View) load(turn *LiveTurn) {
	for _, b := range turn.Blocks {
		if _, over := v.live.closed[b.Block]; over {
			continue
		}
		have := v.live.blocks[b.Block]
		if have == nil || b.Offset == 0 {
			if have != nil {
				v.live.bytes -= len(have.text)
			}
			have = &openBlock{block: b.Block, kind: b.Kind}
			v.live.blocks[b.Block] = have
		}
		v.live.bytes += v.loadText(&have.stream, b.Text, b.Offset, b.To)
	}
	for _, b := range turn.Tools {
		have := v.live.tools[b.CallID]
		if have == nil {
			if v.calls[b.CallID] != nil {
				continue // over by now
			}
			have = v.live.openTool(b.CallID)
		} else if b.Offset == 0 {
			have.stream = stream{}
		}
		v.loadText(&have.stream, b.Text, b.Offset, b.To)
		have.keepTail()
	}
}

// loadText appends one piece of a text and returns how many bytes it took.
func (v *View) loadText(s *stream, text string, offset, to int) int {
	if offset != len(s.text) {
		v.Gaps = true
		return 0
	}
	s.text = append(s.text, text...)
	s.to = to
	return len(text)
}

// rawOrNil keeps raw JSON that the view can write again.
func rawOrNil(b json.RawMessage) json.RawMessage {
	if json.Valid(b) {
		return b
	}
	return nil
}

// timeOrZero keeps a time that the view can write again.
func timeOrZero(t Time) Time {
	if writable(t.Time) {
		return t
	}
	return Time{}
}
