package hosttest

import (
	"fmt"

	"github.com/muxhost/muxhost/frames"
)

// book is what one connection knows, and the rules of order it holds frames to:
// the contract's section 4.
type book struct {
	parts  map[frames.SessionID]*part
	cards  map[frames.RequestID]frames.SessionID
	added  map[frames.SessionID]bool
	repeat map[frames.RequestID]bool // voided by a baseline that may show it again
	over   map[frames.RequestID]bool
	faults []string
}

// part is one subscription.
type part struct {
	cursor  frames.Seq
	epoch   frames.Epoch
	base    int  // parts of the base that are to come
	owed    int  // cards that the baseline still has to show
	live    bool // live events may come
	lagging bool
	view    *frames.View
}

func newBook() book {
	return book{
		parts: map[frames.SessionID]*part{}, cards: map[frames.RequestID]frames.SessionID{}, added: map[frames.SessionID]bool{},
		repeat: map[frames.RequestID]bool{}, over: map[frames.RequestID]bool{},
	}
}

func (b *book) fault(format string, args ...any) {
	if len(b.faults) < 50 {
		b.faults = append(b.faults, fmt.Sprintf(format, args...))
	}
}

// frame takes in the next frame; e is the event of a `session/event`.
func (b *book) frame(f frames.Frame, e *frames.Event) {
	switch f := f.(type) {
	case *frames.HostSubscribed:
		b.void(func(frames.SessionID) bool { return true })
	case *frames.SessionAdded:
		b.added[f.SessionID] = true
	case *frames.SessionSubscribed:
		b.begin(f)
	case *frames.SessionBase:
		b.takeBase(f)
	case *frames.SessionUnsubscribed:
		delete(b.parts, f.SessionID)
	case *frames.SessionLagging:
		b.lag(f)
	case *frames.SessionLive:
		b.goLive(f)
	case *frames.SessionEvent:
		b.event(f.SessionID, e)
	case *frames.ApprovalRequested:
		b.requested(f.SessionID, f.ID)
	case *frames.QuestionRequested:
		b.requested(f.SessionID, f.ID)
	case *frames.ApprovalResolved:
		b.resolved(f.SessionID, f.ID)
	case *frames.QuestionResolved:
		b.resolved(f.SessionID, f.ID)
	}
	if p := b.parts[sessionOf(f)]; p != nil {
		if err := p.view.ApplyFrame(f); err != nil {
			b.fault("fold: %v", err)
		}
	}
}

// void takes the cards of a scope away; its baseline shows what is open again.
func (b *book) void(in func(frames.SessionID) bool) {
	for id, sid := range b.cards {
		if in(sid) {
			delete(b.cards, id)
			b.repeat[id] = true
		}
	}
}

// startOf returns the seq that a subscription stands at when its baseline is
// complete: the base stands for what was trimmed.
func startOf(f *frames.SessionSubscribed) frames.Seq {
	if f.Since == 0 && f.First > 1 {
		return f.First - 1
	}
	return f.Since
}

// begin opens or replaces a subscription.
func (b *book) begin(f *frames.SessionSubscribed) {
	p := b.parts[f.SessionID]
	if p == nil {
		p = &part{view: frames.NewView(), cursor: startOf(f)}
		b.parts[f.SessionID] = p
	}
	if p.epoch != "" && p.epoch != f.Epoch {
		b.fault("%s: epoch %s became %s", f.SessionID, p.epoch, f.Epoch)
	}
	if startOf(f) != p.cursor { // the client asked for another place
		p.view = frames.NewView()
	}
	if f.Head < f.Since {
		b.fault("%s: head %d is below since %d", f.SessionID, f.Head, f.Since)
	}
	p.cursor, p.epoch, p.owed, p.live, p.lagging = startOf(f), f.Epoch, f.Pending, false, false
	p.base = f.BaseParts
	b.void(func(sid frames.SessionID) bool { return sid == f.SessionID })
}

// takeBase checks that the parts of a base come at once and in order.
func (b *book) takeBase(f *frames.SessionBase) {
	p := b.parts[f.SessionID]
	if p == nil || p.base == 0 || f.Part != f.Parts-p.base {
		b.fault("%s: part %d of %d of a base out of order", f.SessionID, f.Part, f.Parts)
		return
	}
	p.base--
}

func (b *book) lag(f *frames.SessionLagging) {
	p := b.parts[f.SessionID]
	if p == nil || !p.live {
		b.fault("%s: session/lagging though it is not live", f.SessionID)
		return
	}
	p.live, p.lagging = false, true
}

func (b *book) goLive(f *frames.SessionLive) {
	p := b.parts[f.SessionID]
	switch {
	case p == nil:
		b.fault("%s: session/live before session/subscribed", f.SessionID)
	case p.live:
		b.fault("%s: session/live though it is live", f.SessionID)
	case f.Seq != p.cursor:
		b.fault("%s: session/live at %d, cursor %d", f.SessionID, f.Seq, p.cursor)
	case p.owed > 0:
		b.fault("%s: session/live with %d cards owed", f.SessionID, p.owed)
	case !f.More:
		p.live, p.lagging = true, false
	}
}

// event checks promise 1: exactly the next durable event, and live ones only
// after `session/live`.
func (b *book) event(sid frames.SessionID, e *frames.Event) {
	p := b.parts[sid]
	switch {
	case p == nil:
		b.fault("%s: %s before session/subscribed", sid, e.Type)
	case p.owed > 0 || p.base > 0:
		b.fault("%s: %s with %d cards and %d parts of the base owed", sid, e.Type, p.owed, p.base)
	case e.Seq == 0 && !p.live:
		b.fault("%s: %s before session/live (lagging: %v)", sid, e.Type, p.lagging)
	case e.Seq == 0 && e.After != p.cursor:
		b.fault("%s: %s after %d, cursor %d", sid, e.Type, e.After, p.cursor)
	case e.Seq > 0 && e.Seq != p.cursor+1:
		b.fault("%s: event %d, cursor %d", sid, e.Seq, p.cursor)
	case e.Seq > 0:
		p.cursor = e.Seq
	}
}

// requested checks that a card comes once, and again after a baseline only.
func (b *book) requested(sid frames.SessionID, id frames.RequestID) {
	if p := b.parts[sid]; p != nil && p.owed > 0 {
		p.owed--
	}
	_, shown := b.cards[id]
	switch {
	case b.over[id]:
		b.fault("%s was requested after it was resolved", id)
	case shown:
		b.fault("%s was requested twice without a baseline between", id)
	}
	b.cards[id] = sid
	delete(b.repeat, id)
}

// resolved checks that each card ends once.
func (b *book) resolved(sid frames.SessionID, id frames.RequestID) {
	if b.over[id] {
		b.fault("%s was resolved twice", id)
	}
	if b.cards[id] != sid {
		b.fault("%s was resolved and shows no card (voided: %v)", id, b.repeat[id])
	}
	b.over[id] = true
	delete(b.cards, id)
}
