package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/bolt"
)

// Over 1,000 connections (300 under the race detector) of 10 clients that are cut, reset, stalled and dribbled
// at random bytes while agents stream, ask and spawn, every client received the
// durable events 1 … head of every session, each once, and its picture is the
// log's picture.
func TestClientsThatAreCutAnywhereLoseNothing(t *testing.T) {
	const clients = 10
	dials := reconnects(t) / clients
	w := newChaosWorld(t)
	roots := w.load(4)
	var wg sync.WaitGroup
	recs := make([]*hosttest.Recorder, clients)
	proxies := make([]*hosttest.Proxy, clients)
	for i := range recs {
		proxy, err := hosttest.NewProxy(strings.TrimPrefix(w.srv.URL, "http://"), uint64(i)+1)
		if err != nil {
			t.Fatal(err)
		}
		defer proxy.Close()
		proxies[i] = proxy
		recs[i] = hosttest.NewRecorder("ws://"+proxy.Addr()+"/v1/ws", w.token, roots...)
		recs[i].Host = strings.TrimPrefix(w.srv.URL, "http://")
		recs[i].Answer = w.answerer(uint64(i))
		wg.Go(func() {
			for recs[i].Dials() < dials {
				err := recs[i].Session(t.Context(), nil) // ends with what the proxy does to it
				if errors.Is(err, hosttest.ErrRefused) || t.Context().Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	w.quiet(roots)
	for i, r := range recs {
		proxies[i].Calm()
		w.finish(t, r)
		w.compare(t, fmt.Sprintf("client %d after %d connections", i, r.Dials()), r)
	}
}

// reconnectsEnv says how many connections all clients of that test open together.
const reconnectsEnv = "MUXHOST_TEST_RECONNECTS"

func reconnects(t *testing.T) int {
	t.Helper()
	s := os.Getenv(reconnectsEnv)
	if s == "" {
		return under(300, 1000)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 10 {
		t.Fatalf("%s=%s: it takes a number of connections from 10 on, such as 10000", reconnectsEnv, s)
	}
	return n
}

// chaosWorld is a host on a real disk and a real socket, under load.
type chaosWorld struct {
	t     *testing.T
	token string
	host  *host.Host
	srv   *httptest.Server
	c     *client.Client
	calls sync.WaitGroup
	stop  atomic.Bool
}

func newChaosWorld(t *testing.T) *chaosWorld {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "muxhost.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &chaosWorld{t: t, token: host.NewToken()}
	w.host, err = host.New(t.Context(), host.Config{
		Store: db, Drivers: []agent.Driver{demo.New(demo.Options{})}, Token: w.token, DrainTimeout: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.srv = httptest.NewServer(w.host.Handler())
	w.c, err = client.Dial(t.Context(), client.Options{URL: w.srv.URL, Token: w.token, Label: "load"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stop.Store(true)
		w.calls.Wait()
		_ = w.c.Close()
		if err := w.host.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		w.srv.Close()
		if err := db.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return w
}

// load starts n sessions that keep streaming, asking and spawning.
func (w *chaosWorld) load(n int) []frames.SessionID {
	w.t.Helper()
	roles := []string{
		`{"role":"stream","speed":0,"chunks":400,"size":120,"everyMs":2,"durableEvery":20}`,
		`{"role":"asks","speed":0,"count":60,"parallel":4}`,
		`{"role":"spawns","speed":0,"count":3,"depth":2}`,
	}
	var roots []frames.SessionID
	for i := range n {
		s, err := w.c.Create(w.t.Context(), rpc.CreateParams{Cwd: w.t.TempDir(), Config: json.RawMessage(roles[i%len(roles)])})
		if err != nil {
			w.t.Fatal(err)
		}
		roots = append(roots, s.SessionID)
		w.calls.Go(func() { w.keepPrompting(s.SessionID) })
	}
	return roots
}

// keepPrompting prompts a session anew whenever it is idle, until told to stop.
func (w *chaosWorld) keepPrompting(sid frames.SessionID) {
	for i := 0; !w.stop.Load(); i++ {
		_, err := w.c.Prompt(w.t.Context(), rpc.PromptParams{
			SessionID: sid, Content: []frames.ContentBlock{frames.Text("go")}, PromptID: frames.PromptID(fmt.Sprint("p", i)),
		})
		if err != nil {
			w.t.Errorf("prompt: %v", err)
			return
		}
		if !w.await(sid, func(s frames.Session) bool { return s.State == frames.StateIdle || w.stop.Load() }) {
			return
		}
	}
}

// await asks for the session until ok says yes.
func (w *chaosWorld) await(sid frames.SessionID, ok func(frames.Session) bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		res, err := w.c.Get(w.t.Context(), rpc.GetParams{SessionID: sid})
		if err != nil {
			w.t.Errorf("session.get: %v", err)
			return false
		}
		if ok(res.Session) {
			return true
		}
		select {
		case <-tick.C:
		case <-w.t.Context().Done():
			return false
		}
	}
}

// answerer answers requests at random, in goroutines that the world waits for.
func (w *chaosWorld) answerer(seed uint64) func(*hosttest.Conn, frames.Frame) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 2))
	return func(c *hosttest.Conn, f frames.Frame) {
		mu.Lock()
		n := rng.IntN(4)
		mu.Unlock()
		a, ok := f.(*frames.ApprovalRequested)
		if !ok || n == 0 || w.stop.Load() {
			return
		}
		outcome := frames.AllowedOnce
		if n == 1 {
			outcome = frames.Rejected
		}
		w.calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			// An error is a cut connection or somebody else's answer.
			_, _ = c.Call(ctx, "approval.respond", map[string]any{"sessionId": a.SessionID, "id": a.ID, "outcome": outcome, "inputHash": a.InputHash})
		})
	}
}

// quiet stops the load and waits until nothing runs.
func (w *chaosWorld) quiet(roots []frames.SessionID) {
	w.stop.Store(true)
	w.calls.Wait()
	for _, r := range roots {
		if _, err := w.c.Cancel(w.t.Context(), rpc.CancelParams{SessionID: r}); err != nil {
			w.t.Errorf("cancel: %v", err)
		}
	}
	for s, err := range w.c.ListAll(w.t.Context(), rpc.ListParams{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		w.await(s.SessionID, func(s frames.Session) bool { return s.State == frames.StateIdle })
	}
}

// finish lets r catch up to the end of every session, over a calm connection.
func (w *chaosWorld) finish(t *testing.T, r *hosttest.Recorder) {
	t.Helper()
	want := map[frames.SessionID]frames.Seq{}
	for s, err := range w.c.ListAll(t.Context(), rpc.ListParams{}) {
		if err != nil {
			t.Fatal(err)
		}
		want[s.SessionID] = s.Head
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	err := r.Session(ctx, func() bool { return len(r.Behind(want)) == 0 })
	if err != nil {
		t.Fatalf("the last connection: %v; behind in %v", err, r.Behind(want))
	}
}

// compare holds what r received against the log.
func (w *chaosWorld) compare(t *testing.T, who string, r *hosttest.Recorder) {
	t.Helper()
	for _, f := range r.Faults() {
		t.Errorf("%s: %s", who, f)
	}
	if open := r.Open(); len(open) > 0 {
		t.Errorf("%s: still shows %v", who, open)
	}
	r.Sessions(func(sid frames.SessionID, rec *hosttest.Record) {
		log, events := w.log(t, sid)
		if len(events) != len(rec.Events) {
			t.Errorf("%s: %s: %d events received, the log has %d", who, sid, len(rec.Events), len(events))
			return
		}
		for i := range events {
			if !bytes.Equal(events[i], rec.Events[i]) {
				t.Errorf("%s: %s: event %d differs", who, sid, i+1)
			}
		}
		got, err := json.Marshal(rec.View.Durable())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, log) {
			t.Errorf("%s: %s: its picture differs from the log's:\n%s\n%s", who, sid, got, log)
		}
	})
}

// log returns the fold of a session's log, and its events.
func (w *chaosWorld) log(t *testing.T, sid frames.SessionID) ([]byte, []json.RawMessage) {
	t.Helper()
	v := frames.NewView()
	var events []json.RawMessage
	for after := frames.Seq(0); ; {
		page, err := w.c.History(t.Context(), rpc.HistoryParams{SessionID: sid, After: &after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range page.Events {
			e, err := frames.DecodeEvent(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := v.ApplyEvent(e); err != nil {
				t.Fatal(err)
			}
			after = e.Seq
			events = append(events, raw)
		}
		if !page.More {
			break
		}
	}
	b, err := json.Marshal(v.Durable())
	if err != nil {
		t.Fatal(err)
	}
	return b, events
}
