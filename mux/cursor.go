package mux

import (
	"iter"

	"github.com/muxhost/muxhost/frames"
)

// mode is how far a cursor is on its way to live.
type mode uint8

const (
	// behind: durable events come from the log, a page at a time.
	behind mode = iota
	// replay: the ring has everything that is missing; durable events up to
	// liveAt come from there.
	replay
	// snapshot: the open turn as it was at liveAt is being sent.
	snapshot
	// live: everything comes from the ring.
	live
)

// cursor is one subscription of one connection. It is replaced, never changed,
// when the client subscribes again.
type cursor struct {
	t        *topic
	c        *Conn
	filter   filter
	delivery Delivery

	// The topic's lock guards the fields below.
	dead   bool
	armed  int // place in topic.armed, -1 when the writer has it
	mode   mode
	seq    frames.Seq // last durable event handed to the writer
	pos    uint64     // next ring entry, in modes replay and live
	liveAt uint64     // where live begins
	turn   *frames.TurnSnapshot

	// The writer's own.
	noted note
	next  func() (frames.SessionLive, bool) // parts of turn
	stop  func()
}

// step is what a cursor asks its writer to do.
type step uint8

const (
	stepDrop   step = iota // the cursor is dead
	stepIdle               // nothing to send; the next publish wakes it
	stepWait               // nothing more in this pass
	stepWrite              // write the pieces
	stepPage               // read a page of the log
	stepLive               // write a part of the open turn
	stepLagged             // say `session/lagging`
)

// advance moves cur as far as one step goes and says what to do; pieces of
// stepWrite are appended to out. It never goes beyond what was noted.
func (cur *cursor) advance(out []piece) ([]piece, step) {
	t := cur.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if cur.dead {
		return out, stepDrop
	}
	r := t.ring
	if cur.mode == behind {
		if !r.covers(cur.seq) {
			return out, cur.page()
		}
		// One cut: from here on the ring, and the turn as it is right now.
		cur.mode, cur.pos, cur.liveAt, cur.turn = replay, r.find(cur.seq), r.next, t.turn
	}
	if cur.mode == snapshot {
		return out, stepLive
	}
	if cur.pos < r.start() || r.prev(cur.pos) != cur.seq {
		return out, cur.fallBack()
	}
	return cur.read(r, out)
}

func (cur *cursor) page() step {
	if cur.noted.head <= cur.seq {
		return stepWait
	}
	return stepPage
}

// fallBack turns to the log: the ring no longer has what comes next.
func (cur *cursor) fallBack() step {
	was := cur.mode
	cur.mode, cur.turn = behind, nil
	if was == live {
		return stepLagged
	}
	return cur.page()
}

// read takes entries from the ring in modes replay and live.
func (cur *cursor) read(r *ring, out []piece) ([]piece, step) {
	limit, f := cur.noted.end, cur.filter
	if cur.mode == replay {
		if cur.pos == cur.liveAt {
			if limit < cur.liveAt {
				return out, stepWait
			}
			cur.mode = snapshot
			return out, stepLive
		}
		limit, f = min(limit, cur.liveAt), f.durable()
	}
	if cur.pos < limit {
		out, cur.pos, cur.seq = r.take(cur.pos, limit, f, out)
		return out, stepWrite
	}
	if cur.mode == live && cur.pos == r.next {
		cur.t.arm(cur)
		return out, stepIdle
	}
	return out, stepWait
}

// accept counts a page of the log as sent, up to seq; false when cur has ended
// meanwhile and the page must not be written.
func (cur *cursor) accept(seq frames.Seq) bool {
	cur.t.mu.Lock()
	defer cur.t.mu.Unlock()
	if cur.dead {
		return false
	}
	cur.seq = seq
	return true
}

// part returns the next part of the open turn that must be sent. last means
// that live events follow it.
func (cur *cursor) part() (p frames.SessionLive, last bool) {
	if cur.next == nil {
		cur.next, cur.stop = iter.Pull(cur.turn.Parts(cur.t.sid, cur.seq, frames.MaxFrame))
	}
	for {
		p, ok := cur.next()
		if !ok { // no parts at all: an empty turn
			return frames.SessionLive{SessionID: cur.t.sid, Seq: cur.seq}, true
		}
		if cur.filter.live(&p) {
			return p, !p.More
		}
	}
}

// goLive ends mode snapshot.
func (cur *cursor) goLive() {
	cur.release()
	cur.t.mu.Lock()
	defer cur.t.mu.Unlock()
	cur.mode, cur.turn = live, nil
}

// release ends the iteration over parts. Only the writer calls it.
func (cur *cursor) release() {
	if cur.stop != nil {
		cur.stop()
		cur.next, cur.stop = nil, nil
	}
}

// expired returns the oldest seq kept if it is beyond what cur needs next.
func (cur *cursor) expired() (frames.Seq, bool) {
	cur.t.mu.Lock()
	defer cur.t.mu.Unlock()
	return cur.t.first, cur.t.first > cur.seq+1
}
