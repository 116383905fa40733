package host

import "sync"

// seats count the connections and own the goroutines that serve them.
type seats struct {
	max, perToken int

	wg     sync.WaitGroup
	mu     sync.Mutex // guards all below
	taken  int
	tokens map[string]int
	closed bool
}

// seating says whether a connection may stay.
type seating uint8

const (
	seated seating = iota
	hostFull
	tokenFull
	hostClosed
)

// take takes a seat for a connection of token; leave gives it back.
func (s *seats) take(token string) seating {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return hostClosed
	case s.taken >= s.max:
		return hostFull
	case s.tokens[token] >= s.perToken:
		return tokenFull
	}
	if s.tokens == nil {
		s.tokens = map[string]int{}
	}
	s.taken++
	s.tokens[token]++
	return seated
}

func (s *seats) leave(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.tokens[token]--; s.tokens[token] <= 0 {
		delete(s.tokens, token)
	}
}

// serve runs f on a goroutine of its own, unless the seats are closed; it reports
// whether it does.
func (s *seats) serve(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

// close takes nobody in any more and waits until everybody has left.
func (s *seats) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
}
