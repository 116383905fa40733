package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// LocalURL is where the client of [Host.Local] finds the host.
const LocalURL = "http://localhost"

// Local returns an HTTP client that reaches this host inside the program: no
// socket, no port, the same paths, rules and tokens as over the network. Give it
// to a client of package rpc/client together with [LocalURL] and a token. It works
// until [Host.Shutdown]; then its requests fail with [net.ErrClosed]. Each call
// returns the same client.
func (h *Host) Local() *http.Client {
	h.local.once.Do(func() { h.local.open(h) })
	return h.local.client
}

// local is the listener that lives in memory, and the server behind it.
type local struct {
	once   sync.Once
	client *http.Client
	conns  chan net.Conn
	// done is closed when nobody accepts any more.
	done <-chan struct{}
}

func (l *local) open(h *Host) {
	l.conns, l.done = make(chan net.Conn), h.ctx.Done()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) }}
	l.client = &http.Client{Transport: tr}
	srv := h.server(newLobby(maxLobby))
	h.seats.serve(func() {
		stop := context.AfterFunc(h.ctx, func() { _ = srv.Close() })
		defer stop()
		defer tr.CloseIdleConnections()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			h.cfg.Logger.Error("the connections inside this program are no longer served", slog.Any("err", err))
		}
	})
}

// dial hands one end of a pipe to the server.
func (l *local) dial(ctx context.Context) (net.Conn, error) {
	mine, theirs := net.Pipe()
	var err error
	select {
	case l.conns <- inside{theirs}:
		return inside{mine}, nil
	case <-l.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, mine.Close(), theirs.Close())
}

// Accept implements [net.Listener].
func (l *local) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]; the host's context ends it.
func (l *local) Close() error { return nil }

// Addr implements [net.Listener].
func (l *local) Addr() net.Addr { return insideAddr }

// inside is an end of a pipe that calls itself this machine, so that the checks of
// the perimeter hold for it as for a socket.
type inside struct{ net.Conn }

var insideAddr net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

// LocalAddr returns a loopback address.
func (inside) LocalAddr() net.Addr { return insideAddr }

// RemoteAddr returns a loopback address.
func (inside) RemoteAddr() net.Addr { return insideAddr }
