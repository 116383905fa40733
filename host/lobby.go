package host

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// maxLobby connections may be open without a client's seat: handshakes and logins
// under way, probes, idle keep-alives.
const maxLobby = 64

// lobby bounds the connections that nobody answers for: a client's socket, and a
// call while it lasts, have a seat instead. When there are too many the oldest goes,
// of those in the middle of a request only if all others are, and never the newest:
// a flood of silent ones, or of requests that do not come to their end, cannot keep
// a client out.
type lobby struct {
	max int

	mu      sync.Mutex // guards all below
	next    uint64
	waiting map[net.Conn]guest
}

type guest struct {
	order uint64
	busy  bool
}

func newLobby(max int) *lobby { return &lobby{max: max, waiting: map[net.Conn]guest{}} }

// lobbyKey is the context key of what takes a connection out of the lobby.
type lobbyKey struct{}

// context is an http.Server's ConnContext: it lets [leaveLobby] find c.
func (l *lobby) context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, lobbyKey{}, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting, c)
	})
}

// leaveLobby takes a request's connection out of the lobby until it is idle again:
// its client has shown a token, and bounds of its own. On a server of an embedder's
// there is no lobby, and it does nothing.
func leaveLobby(r *http.Request) {
	if leave, ok := r.Context().Value(lobbyKey{}).(func()); ok {
		leave()
	}
}

// changed follows a connection's state; it is an http.Server's ConnState.
func (l *lobby) changed(c net.Conn, s http.ConnState) {
	if out := l.note(c, s); out != nil {
		_ = out.Close()
	}
}

// note records a state and returns the connection that has to go, if one has.
func (l *lobby) note(c net.Conn, s http.ConnState) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, here := l.waiting[c]
	switch {
	case s == http.StateHijacked || s == http.StateClosed:
		delete(l.waiting, c)
		return nil
	case s == http.StateActive && !here:
		return nil // it has to go already
	case !here:
		l.next++
		g.order = l.next
	}
	g.busy = s == http.StateActive
	l.waiting[c] = g
	if len(l.waiting) <= l.max {
		return nil
	}
	return l.evict()
}

// evict forgets the connection that has to go, and returns it.
func (l *lobby) evict() net.Conn {
	var out net.Conn
	for c, g := range l.waiting {
		if o := l.waiting[out]; g.order != l.next && (out == nil || o.busy && !g.busy || o.busy == g.busy && g.order < o.order) {
			out = c
		}
	}
	delete(l.waiting, out)
	return out
}
