//go:build browser

package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store/mem"
)

// page logs in, follows a session with EventSource, and reports what it saw once it
// read "the end", and then how the stream ended for good.
const page = `<!doctype html><meta charset="utf-8"><title>events</title><script>
const token = %q, session = %q
const report = (what) => fetch('/report', {method: 'POST', body: JSON.stringify(what)})
;(async () => {
  const login = await fetch('/v1/login', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({token})})
  if (!login.ok) return report({error: 'login: ' + login.status})
  const ids = [], live = []
  let opens = 0, ending = false, closed = 0
  const es = new EventSource('/v1/events?since=0&session=' + session)
  es.onopen = () => opens++
  es.onerror = () => { if (es.readyState === EventSource.CLOSED) report({stopped: true, code: closed}) }
  es.addEventListener('mux/closed', (e) => { closed = JSON.parse(e.data).code })
  es.addEventListener('session/event', (e) => {
    const event = JSON.parse(e.data).event
    if (!event.seq) return
    ids.push(e.lastEventId)
    if (event.type === 'assistant/message' && event.data.content[0].text === 'the end') ending = true
    if (event.type === 'turn/end' && ending) report({ids, opens})
  })
})()
</script>`

// told is one report of the page.
type told struct {
	Error   string
	IDs     []string
	Opens   int
	Stopped bool
	Code    int
}

// cutter is a proxy that cuts the first streams of events somewhere.
type cutter struct {
	ln     net.Listener
	target string
	cuts   atomic.Int32
	most   int32
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn // guarded by mu
}

func newCutter(t *testing.T, target string, most int32) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ln: ln, target: target, most: most}
	c.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		c.mu.Lock()
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) serve(down net.Conn) {
	defer down.Close()
	up, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer up.Close()
	c.mu.Lock()
	c.conns = append(c.conns, down, up)
	c.mu.Unlock()
	head := make([]byte, 4<<10)
	n, err := down.Read(head)
	if err != nil {
		return
	}
	if _, err := up.Write(head[:n]); err != nil {
		return
	}
	c.wg.Go(func() { _, _ = io.Copy(up, down) })
	if bytes.HasPrefix(head, []byte("GET /v1/events")) && c.cuts.Add(1) <= c.most {
		_, _ = io.CopyN(down, up, 400+rand.Int64N(6_000))
		return
	}
	_, _ = io.Copy(down, up)
}

// browse opens a page in a browser without a screen until the test ends.
func browse(t *testing.T, url string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+dir, url)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatalf("chromium, which this test needs: %v; install it with apt-get install -y chromium", err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
		_ = os.RemoveAll(dir)
	})
}

// A page in a real browser logs in, follows a session with EventSource while a
// proxy cuts its streams, and gets every durable event once and in order, because
// the browser brings the last id back by itself. Once its token is revoked it is
// told 4001 and does not come back.
func TestBrowserFollowsWithEventSource(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := newCutter(t, ln.Addr().String(), 5)
	r := &rig{t: t, agent: &script{}, cwd: t.TempDir()}
	r.host, err = host.New(t.Context(), host.Config{
		Store: mem.New(), Drivers: []agent.Driver{r.agent}, Token: canary, DrainTimeout: 50 * time.Millisecond,
		AllowHosts: []string{proxy.ln.Addr().String()}, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	var body atomic.Pointer[string]
	reports := make(chan told, 16)
	routes := http.NewServeMux()
	routes.Handle("/", r.host.Handler())
	routes.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, *body.Load()) })
	routes.HandleFunc("/report", func(_ http.ResponseWriter, req *http.Request) {
		var what told
		if err := json.NewDecoder(req.Body).Decode(&what); err != nil {
			what.Error = err.Error()
		}
		reports <- what
	})
	srv := &http.Server{Handler: routes}
	srv.SetKeepAlivesEnabled(false) // the proxy tells requests apart by connections
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() {
		if err := r.host.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		_ = srv.Close()
		wg.Wait()
	})
	r.follow(proxy, ln, &body, reports)
}

// follow runs the session that the page follows, and checks its reports.
func (r *rig) follow(proxy *cutter, ln net.Listener, body *atomic.Pointer[string], reports <-chan told) {
	t := r.t
	r.srv = &httptest.Server{URL: "http://" + ln.Addr().String()}
	admin := r.dial(canary)
	s := r.create(admin, nil)
	subscribe(admin, s.SessionID)
	made := must[rpc.TokenCreateResult](admin, "tokens.create", map[string]any{"label": "a page", "scope": "observe"})
	body.Store(new(fmt.Sprintf(page, made.Secret, s.SessionID)))
	browse(t, "http://"+proxy.ln.Addr().String()+"/page")
	for start := time.Now(); proxy.cuts.Load() < proxy.most+1; {
		if time.Since(start) > 90*time.Second {
			t.Fatalf("the page opened %d streams in 90 s, want %d", proxy.cuts.Load(), proxy.most+1)
		}
		prompt(admin, s.SessionID, "say a few words more")
		admin.event(frames.TurnEndEvent)
	}
	prompt(admin, s.SessionID, "say the end")
	admin.event(frames.TurnEndEvent)
	head := admin.live(s.SessionID)
	got := next(t, reports)
	if got.Error != "" || len(got.IDs) != int(head) || got.Opens < int(proxy.most) {
		t.Errorf("the page saw %d events over %d streams (%s), want %d over more than %d", len(got.IDs), got.Opens, got.Error, head, proxy.most)
	}
	for i, id := range got.IDs {
		if want := fmt.Sprintf("%s:%s:%d", s.SessionID, s.Epoch, i+1); id != want {
			t.Fatalf("event %d has the id %s, want %s", i, id, want)
		}
	}
	must[rpc.Empty](admin, "tokens.revoke", map[string]any{"id": made.Token.ID})
	if end := next(t, reports); !end.Stopped || end.Code != 4001 {
		t.Errorf("after the token was revoked: %+v, want mux/closed with 4001 and no way back", end)
	}
}

func next(t *testing.T, reports <-chan told) told {
	t.Helper()
	select {
	case got := <-reports:
		return got
	case <-time.After(60 * time.Second):
		t.Fatal("the page reported nothing for a minute")
		return told{}
	}
}
