package pending

import (
	"container/list"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// past is a settled request. kind is empty where it is not known.
type past struct {
	id      frames.RequestID
	session frames.SessionID
	kind    Kind
	s       Settlement
	since   time.Time
}

// memory remembers settled requests: the latest keep, and those of the last
// keepFor up to maxFactor times as many. What it has forgotten the session's log
// still tells. It is guarded by the table's mutex.
type memory struct {
	keep    int
	keepFor time.Duration
	byID    map[frames.RequestID]*list.Element
	order   *list.List // of *past, oldest first
}

const maxFactor = 20

func newMemory(keep int, keepFor time.Duration) memory {
	return memory{keep: keep, keepFor: keepFor, byID: make(map[frames.RequestID]*list.Element), order: list.New()}
}

// add remembers p from now on and forgets what is too old. An id that is known
// keeps its settlement.
func (m *memory) add(now time.Time, p past) {
	if m.byID[p.id] != nil {
		return
	}
	p.s, p.since = brief(p.s), now
	m.byID[p.id] = m.order.PushBack(&p)
	for m.order.Len() > m.keep {
		old := m.order.Front()
		o, ok := old.Value.(*past)
		if !ok || m.order.Len() <= maxFactor*m.keep && now.Sub(o.since) <= m.keepFor {
			return
		}
		m.order.Remove(old)
		delete(m.byID, o.id)
	}
}

func (m *memory) find(id frames.RequestID) *past {
	el := m.byID[id]
	if el == nil {
		return nil
	}
	p, _ := el.Value.(*past) // nothing else is in the list
	return p
}

// settled returns how the request of a ended, nil if a may not know.
func (m *memory) settled(a Answer) *Settlement {
	p := m.find(a.ID)
	if p == nil || p.session != a.Session || p.kind != "" && p.kind != a.Kind {
		return nil
	}
	return new(p.s)
}

// brief is s without the texts, of any length, that a late answer is not told.
func brief(s Settlement) Settlement {
	s.Feedback, s.Answers = "", nil
	return s
}

// Restore remembers how a request ended that was settled before the host
// started, so that a late answer to it is told. The session calls it from its
// log. A request that the table knows already keeps its settlement.
func (t *Table) Restore(session frames.SessionID, id frames.RequestID, s Settlement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[id] == nil {
		t.past.add(t.cfg.Now(), past{id: id, session: session, s: s})
	}
}
