package host_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store/mem"
)

// Without TLS only loopback addresses are listened on; others are refused before
// anything is opened.
func TestPlaintextStaysOnLoopback(t *testing.T) {
	r := start(t, nil)
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.evil.com:0", "localhost.evil.com:0"} {
		ln, err := r.host.Listen(t.Context(), addr)
		if !errors.Is(err, host.ErrPlaintext) {
			t.Errorf("Listen(%q) = %v, %v; want ErrPlaintext", addr, ln, err)
		}
	}
	for _, addr := range []string{"", "127.0.0.1", "7717", "127.0.0.1:"} {
		if _, err := r.host.Listen(t.Context(), addr); !errors.Is(err, host.ErrConfig) {
			t.Errorf("Listen(%q) = %v; want ErrConfig", addr, err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0", "127.0.0.2:0"} {
		ln, err := r.host.Listen(t.Context(), addr)
		if err != nil {
			t.Errorf("Listen(%q): %v", addr, err)
			continue
		}
		if port := ln.Addr().(*net.TCPAddr).Port; port == 0 {
			t.Errorf("Listen(%q) has no port", addr)
		}
		_ = ln.Close()
	}
}

// A configuration that would run open or empty is refused.
func TestIncompleteConfigurationsAreRefused(t *testing.T) {
	ok := host.Config{Store: mem.New(), Drivers: []agent.Driver{&script{}}, Token: canary}
	for name, spoil := range map[string]func(*host.Config){
		"no token":      func(c *host.Config) { c.Token = "" },
		"short token":   func(c *host.Config) { c.Token = "hunter2" },
		"no store":      func(c *host.Config) { c.Store = nil },
		"no driver":     func(c *host.Config) { c.Drivers = nil },
		"twins":         func(c *host.Config) { c.Drivers = append(c.Drivers, &script{}) },
		"no such agent": func(c *host.Config) { c.DefaultAgent = "other" },
		"no scope":      func(c *host.Config) { c.Tokens = []host.Token{{Secret: host.NewToken()}} },
		"odd scope":     func(c *host.Config) { c.Tokens = []host.Token{{Secret: host.NewToken(), Scopes: []rpc.Scope{"root"}}} },
		"wild host":     func(c *host.Config) { c.AllowHosts = []string{"*"} },
		"null origin":   func(c *host.Config) { c.AllowOrigins = []string{"null"} },
		"negative":      func(c *host.Config) { c.AskTimeout = -1 },
	} {
		cfg := ok
		spoil(&cfg)
		if h, err := host.New(t.Context(), cfg); err == nil || !errors.Is(err, host.ErrConfig) {
			t.Errorf("%s: New = %v, %v; want ErrConfig", name, h, err)
		}
	}
}

// A host keeps the id that it once minted.
func TestHostKeepsItsID(t *testing.T) {
	st := mem.New()
	first := start(t, func(c *host.Config) { c.Store = st })
	second := start(t, func(c *host.Config) { c.Store = st })
	if first.host.ID() == "" || first.host.ID() != second.host.ID() {
		t.Errorf("ids %q and %q, want one", first.host.ID(), second.host.ID())
	}
}

// pipes is a listener whose connections are pipes, for virtual time.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	a, b := net.Pipe()
	p.conns <- b
	return a
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// Connections that send nothing, or half a handshake, are gone after the header
// timeout; a flood of them does not keep a client out.
func TestSilentConnectionsAreCutAndEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := host.New(t.Context(), host.Config{Store: mem.New(), Drivers: []agent.Driver{&script{}}, Token: canary, AllowHosts: []string{"mux.test"}})
		if err != nil {
			t.Fatal(err)
		}
		ln := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := h.Serve(ctx, ln); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
		began := time.Now()
		gone := make(chan time.Duration, 400)
		for i := range 400 {
			c := ln.dial()
			wg.Go(func() {
				if i%2 == 0 {
					_, _ = io.WriteString(c, "GET /v1/ws HTTP/1.1\r\nHost: mux")
				}
				_, _ = io.Copy(io.Discard, c)
				gone <- time.Since(began)
			})
		}
		c := ln.dial()
		wg.Go(func() {
			_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: mux.test\r\n"+bearer+"\r\nConnection: close\r\n\r\n")
		})
		if b, err := io.ReadAll(c); err != nil || len(b) < 15 || string(b[:15]) != "HTTP/1.1 200 OK" || time.Since(began) > time.Second {
			t.Errorf("the good client got %.60q, %v after %v", b, err, time.Since(began))
		}
		when := map[time.Duration]int{}
		for range 400 {
			when[<-gone]++
		}
		if when[0] < 400-64 || when[0]+when[5*time.Second] != 400 || when[5*time.Second] < 32 {
			t.Errorf("connections were closed after %v; want at most 64 kept, those for 5 s, and the rest evicted at once", when)
		}
		stop()
		wg.Wait()
	})
}
