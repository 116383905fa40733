package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxhost/muxhost/host/agent"
)

// Options are those of [New]; the zero value works.
type Options struct {
	// Agents lists what may be spawned; it is called at every offer and spawn, and may
	// be nil: then the host alone judges the names.
	Agents func() []agent.Info
	// Version is the program's: "devel".
	Version string
	// Beat is how often a caller that waits hears of it: 10 s. It keeps the time
	// limits of agents and of their HTTP clients from passing.
	Beat time.Duration
	// Logger gets crashes, and at the level of debugging who was refused; nil
	// discards. It never gets tokens or what tools are called with.
	Logger *slog.Logger
}

// ErrClosed is what [Server.Offer] fails with after [Server.Close], and the cause of
// what ends with it.
var ErrClosed = errors.New("mcp: the tools are not offered any more")

// Server is the listener and its doors. It is safe for concurrent use.
type Server struct {
	opt   Options
	addr  string
	hosts []string // values of the Host header that are taken
	http  *http.Server
	conns atomic.Int64
	wg    sync.WaitGroup // of the listener
	once  sync.Once      // of closing
	down  chan struct{}  // closed when everything has ended

	mu     sync.Mutex // guards what follows; a leaf
	doors  map[[sha256.Size]byte]*door
	silent map[net.Conn]struct{} // connections on which nothing came yet
	closed bool
}

var (
	_ agent.Tools     = (*Server)(nil)
	_ agent.ToolOffer = (*door)(nil)
)

// Bounds of what strangers can cost.
const (
	maxConns      = 512
	maxHeader     = 16 << 10
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// New listens on a free port of 127.0.0.1. The caller closes the server.
func New(opt Options) (*Server, error) {
	opt.Version = cmp.Or(opt.Version, "devel")
	opt.Beat = cmp.Or(opt.Beat, 10*time.Second)
	if opt.Beat < 0 {
		return nil, fmt.Errorf("mcp: Beat is %v; want more than 0, or 0 for 10s", opt.Beat)
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("mcp: listen on loopback for the agents' tools: %w", err)
	}
	s := &Server{opt: opt, addr: ln.Addr().String(), doors: map[[sha256.Size]byte]*door{}, silent: map[net.Conn]struct{}{}, down: make(chan struct{})}
	_, port, _ := net.SplitHostPort(s.addr)
	s.hosts = []string{s.addr, net.JoinHostPort("localhost", port)}
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnState: s.count, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	s.wg.Go(func() { _ = s.http.Serve(ln) })
	return s, nil
}

// count hangs up on connections over the bound, and on new ones once the server closes.
func (s *Server) count(c net.Conn, st http.ConnState) {
	s.mu.Lock()
	closed := s.closed
	if delete(s.silent, c); st == http.StateNew {
		s.silent[c] = struct{}{}
	}
	s.mu.Unlock()
	switch st {
	case http.StateNew:
		if s.conns.Add(1) > maxConns || closed {
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

// Offer implements [agent.Tools]. It fails with [ErrClosed] once the server closes.
func (s *Server) Offer(ses agent.Session) (agent.ToolOffer, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	d := newDoor(s, ses, base64.RawURLEncoding.EncodeToString(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.doors[d.digest] = d
	return d, nil
}

// forget makes the token of d worthless.
func (s *Server) forget(d *door) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.doors, d.digest)
}

// Close ends every offer and the listener and waits until no call runs, at most until
// ctx is done; it goes on ending things then, and a later Close waits for it.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() { s.wg.Go(s.shut) })
	select {
	case <-s.down:
		s.wg.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("mcp: close the agents' tools: %w", context.Cause(ctx))
	}
}

// goodbye is how long answers may take to leave once everything has ended.
const goodbye = 5 * time.Second

func (s *Server) shut() {
	s.mu.Lock()
	s.closed = true
	doors := slices.Collect(maps.Values(s.doors))
	s.mu.Unlock()
	for _, d := range doors {
		d.shut()
	}
	for _, d := range doors {
		d.Close()
	}
	s.mu.Lock()
	silent := slices.Collect(maps.Keys(s.silent))
	s.mu.Unlock()
	for _, c := range silent {
		_ = c.Close() // they would be waited for
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	close(s.down)
}

// url is where the protocol is spoken.
func (s *Server) url() string { return "http://" + s.addr + path }

// agents names those that may be spawned.
func (s *Server) agents() []agent.Info {
	if s.opt.Agents == nil {
		return nil
	}
	return s.opt.Agents()
}

// quoted lists names for people.
func quoted(infos []agent.Info) string {
	var b []byte
	for i, a := range infos {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendQuote(b, a.Name)
	}
	return string(b)
}
