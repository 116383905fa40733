package mux

import (
	"sync"
	"weak"

	"github.com/muxhost/muxhost/frames"
)

// topic is one session in the hub.
type topic struct {
	sid      frames.SessionID
	overhead int    // bytes of a notification around an event of this session
	order    uint64 // of Add: the order of the host baseline

	// The hub's lock guards the fields below.
	summary  frames.Session
	added    []byte // `host/session-added` of summary, nil when it must be made
	status   frames.SessionStatus
	statused []byte // `host/session-status` of status, nil when it must be made
	live     bool
	gone     bool
	subs     map[*Conn]*cursor
	notices  []*notice

	mu sync.Mutex // after the hub's, before a connection's; guards the fields below and the cursors
	// first changes under both locks.
	first frames.Seq
	head  frames.Seq
	turn  *frames.TurnSnapshot
	ends  uint64 // number of the next ring entry, also while there is no ring
	ring  *ring  // nil while nobody is subscribed
	armed []*cursor
	// base is what was read last of the fold of what is before baseFirst, while
	// somebody sends it. reading is closed when it has been read; nil: nobody does.
	base      weak.Pointer[frames.Base]
	baseFirst frames.Seq
	reading   chan struct{}
}

// notice is one open request of a topic.
type notice struct {
	key   string
	frame []byte
	sent  map[*Conn]struct{}
}

// publish appends what u says; everything in it becomes visible at once. The
// caller holds t.mu.
func (t *topic) publish(u *Update) {
	for _, e := range u.Events {
		if e.Class.Durable() && !t.advance(e.Seq) {
			continue
		}
		if t.ring != nil {
			t.ring.append(e)
			t.ends = t.ring.next
		}
	}
	if len(u.Events) > 0 || u.Turn != nil {
		t.turn = u.Turn
	}
	for _, cur := range t.armed {
		cur.armed = -1
		cur.c.touch(cur)
	}
	clear(t.armed)
	t.armed = t.armed[:0]
}

// advance moves the head to durable event seq, and reports false for one that
// was published before. After a hole the ring starts anew, so that cursors read
// what is missing from the log.
func (t *topic) advance(seq frames.Seq) bool {
	if seq <= t.head {
		return false
	}
	if seq != t.head+1 && t.ring != nil {
		t.ring.chunks, t.ring.size, t.ring.last = nil, 0, seq-1
	}
	t.head = seq
	return true
}

// open makes sure that there is a ring. The caller holds t.mu.
func (t *topic) open(limit int) {
	if t.ring == nil {
		t.ring = &ring{sid: t.sid, overhead: t.overhead, limit: limit, next: t.ends, last: t.head}
	}
}

// arm lets the next publish wake cur. The caller holds t.mu.
func (t *topic) arm(cur *cursor) {
	cur.armed = len(t.armed)
	t.armed = append(t.armed, cur)
}

// kill ends cur: nothing that it has not handed to the writer leaves any more.
// The caller holds t.mu.
func (t *topic) kill(cur *cursor) {
	cur.dead = true
	if i := cur.armed; i >= 0 {
		n := len(t.armed) - 1
		t.armed[i] = t.armed[n]
		t.armed[i].armed = i
		t.armed[n] = nil
		t.armed = t.armed[:n]
		cur.armed = -1
	}
}

// note is what the writer may send of a topic in one pass.
type note struct {
	end  uint64     // number of the next ring entry
	head frames.Seq // last durable seq
}

func (t *topic) note() note {
	t.mu.Lock()
	defer t.mu.Unlock()
	return note{end: t.ends, head: t.head}
}
