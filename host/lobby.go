package host

import (
	"net"
	"net/http"
	"sync"
)

// maxLobby connections may be open without being a client's socket: handshakes
// under way, probes, idle keep-alives.
const maxLobby = 64

// lobby bounds the connections that have not been upgraded. When there are too
// many, the oldest that is not in the middle of a request goes, so that a flood of
// silent ones cannot keep a client out.
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
	switch s {
	case http.StateHijacked, http.StateClosed:
		delete(l.waiting, c)
		return nil
	case http.StateNew:
		l.next++
		l.waiting[c] = guest{order: l.next}
	case http.StateActive, http.StateIdle:
		if g, ok := l.waiting[c]; ok {
			g.busy = s == http.StateActive
			l.waiting[c] = g
		}
	}
	if len(l.waiting) <= l.max {
		return nil
	}
	return l.evict()
}

// evict forgets the oldest connection that is not busy, and returns it.
func (l *lobby) evict() net.Conn {
	var oldest net.Conn
	for c, g := range l.waiting {
		if !g.busy && (oldest == nil || g.order < l.waiting[oldest].order) {
			oldest = c
		}
	}
	delete(l.waiting, oldest)
	return oldest
}
