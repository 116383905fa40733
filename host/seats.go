package host

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/rpc"
)

// seats count the connections, know who sits where, and own the goroutines that
// serve them.
type seats struct {
	max, perToken int

	wg      sync.WaitGroup
	mu      sync.Mutex // guards all below
	taken   int
	tokens  map[string]int
	clients map[*client]struct{}
	closed  bool
}

// client is who has a seat: a connection, or a call by POST while it lasts.
type client struct {
	rpc.ConnectedClient
	// end ends it with a close code; it does not block, and may be called often.
	end func(code int, reason string)
}

// Transports of clients. Those of one call are in no list.
const (
	overWebSocket = "websocket"
	overEvents    = "sse"
	overCall      = "call"
)

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

// enter notes a client; left forgets it.
func (s *seats) enter(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == nil {
		s.clients = map[*client]struct{}{}
	}
	s.clients[c] = struct{}{}
}

func (s *seats) left(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, c)
}

// list returns the clients that are connected, oldest first.
func (s *seats) list() []rpc.ConnectedClient {
	s.mu.Lock()
	out := make([]rpc.ConnectedClient, 0, len(s.clients))
	for c := range s.clients {
		if c.Transport != overCall {
			out = append(out, c.ConnectedClient)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b rpc.ConnectedClient) int {
		return cmp.Or(a.ConnectedAt.Compare(b.ConnectedAt.Time), cmp.Compare(a.ClientID, b.ClientID))
	})
	return out
}

// evict ends all clients of tokens, but for one.
func (s *seats) evict(tokens []string, reason string, but func(*client) bool) {
	s.mu.Lock()
	var out []*client
	for c := range s.clients {
		if slices.Contains(tokens, c.TokenID) && !but(c) {
			out = append(out, c)
		}
	}
	s.mu.Unlock()
	for _, c := range out {
		c.end(closeToken, reason)
	}
}

// admit notes a client whose credentials were in order a moment ago, and ends it
// when its token expires. If the token was revoked meanwhile the client is ended at
// once: whoever revokes marks the token first and then looks for clients, so one of
// the two sees the other. leave undoes it.
func (h *Host) admit(c *client, who auth.Principal) (leave func()) {
	h.seats.enter(c)
	stop := func() bool { return true }
	if !who.Expires.IsZero() {
		stop = time.AfterFunc(time.Until(who.Expires), func() { c.end(closeToken, "the token has expired") }).Stop
	}
	if !h.gate.Tokens().Holds(who.TokenID) {
		c.end(closeToken, "the token was revoked or has expired")
	}
	return func() { stop(); h.seats.left(c) }
}
