package hosttest

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Proxy stands between clients and a host. Each connection through it meets one
// of its troubles after a random number of bytes. It belongs to a test, which
// closes it.
type Proxy struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	rng   *rand.Rand // guarded by mu
	calm  bool       // guarded by mu
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup

	// MaxBytes bounds how many bytes a connection lives; 0 means 64 KiB.
	MaxBytes int
}

// NewProxy listens on a free loopback port in front of target (host:port).
func NewProxy(target string, seed uint64) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{ln: ln, target: target, rng: rand.New(rand.NewPCG(seed, 1)), conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients dial.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Calm makes later connections untroubled, and cuts those that are.
func (p *Proxy) Calm() {
	p.mu.Lock()
	p.calm = true
	p.mu.Unlock()
	p.cutAll()
}

// Close ends everything and waits.
func (p *Proxy) Close() error {
	err := p.ln.Close()
	p.cutAll()
	p.wg.Wait()
	return err
}

func (p *Proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// trouble is what happens to one connection.
type trouble struct {
	kind  int // 0 cut, 1 reset, 2 stall then cut, 3 dribble then cut, 4 half-close
	after int // bytes towards the client before it
	up    int // bytes towards the host before a cut on that side
}

func (p *Proxy) pick() (trouble, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.MaxBytes
	if most <= 0 {
		most = 64 << 10
	}
	// Small cuts as often as large ones: the handshake and the baseline too.
	n := 1 + p.rng.IntN(1+p.rng.IntN(most))
	return trouble{kind: p.rng.IntN(5), after: n, up: 200 + p.rng.IntN(8<<10)}, !p.calm
}

func (p *Proxy) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer up.Close()
	p.track(c, up)
	defer p.untrack(c, up)
	t, troubled := p.pick()
	var wg sync.WaitGroup
	wg.Go(func() {
		limit := int64(-1)
		if troubled {
			limit = int64(t.up) * 8
		}
		copySome(up, c, limit)
		if troubled || !halfClose(up) {
			_ = up.Close()
		}
	})
	if troubled {
		p.down(c, up, t)
	} else {
		_, _ = io.Copy(c, up) // its end is the connection's end
	}
	_ = c.Close()
	_ = up.Close()
	wg.Wait()
}

// down carries bytes to the client until the trouble comes.
func (p *Proxy) down(c, up net.Conn, t trouble) {
	if copySome(c, up, int64(t.after)) != nil {
		return
	}
	switch t.kind {
	case 1:
		if tc, ok := c.(*net.TCPConn); ok {
			_ = tc.SetLinger(0) // close with a reset
		}
	case 2:
		wait(c, 20*time.Millisecond)
	case 3:
		dribble(c, up, 64)
	case 4:
		halfClose(c)
		wait(c, 5*time.Millisecond)
	}
}

// wait holds the connection for d, unless it is closed before.
func wait(c net.Conn, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
	_ = c
}

func dribble(dst io.Writer, src io.Reader, n int) {
	b := make([]byte, 1)
	for range n {
		if _, err := io.ReadFull(src, b); err != nil {
			return
		}
		if _, err := dst.Write(b); err != nil {
			return
		}
	}
}

func halfClose(c net.Conn) bool {
	tc, ok := c.(*net.TCPConn)
	return ok && tc.CloseWrite() == nil
}

// copySome copies n bytes, or all when n is negative.
func copySome(dst io.Writer, src io.Reader, n int64) error {
	var err error
	if n < 0 {
		_, err = io.Copy(dst, src)
	} else {
		_, err = io.CopyN(dst, src, n)
	}
	if errors.Is(err, io.EOF) {
		return err
	}
	return err
}

func (p *Proxy) track(cs ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cs {
		p.conns[c] = struct{}{}
	}
}

func (p *Proxy) untrack(cs ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cs {
		delete(p.conns, c)
	}
}
