package rpc

import (
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// budget counts faults in a sliding window. It is used by the reader alone.
type budget struct {
	max    int
	window time.Duration
	times  []time.Time // ring of the last max faults
	next   int
}

// spend counts one fault; it reports false when it is the max-th within the
// window.
func (b *budget) spend(now time.Time) bool {
	if len(b.times) < b.max {
		b.times = append(b.times, now)
	} else {
		b.times[b.next] = now
	}
	b.next = (b.next + 1) % b.max
	if len(b.times) < b.max {
		return true
	}
	oldest := b.times[b.next]
	return now.Sub(oldest) >= b.window
}

// idSet holds the ids of the calls in flight.
type idSet struct {
	mu  sync.Mutex
	ids map[jsonrpc2.ID]struct{} // guarded by mu
}

// add reports false when id is there already.
func (s *idSet) add(id jsonrpc2.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.ids[id]; ok {
		return false
	}
	if s.ids == nil {
		s.ids = make(map[jsonrpc2.ID]struct{})
	}
	s.ids[id] = struct{}{}
	return true
}

func (s *idSet) remove(id jsonrpc2.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}
