package host_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/store/bolt"
)

// Clients that stop reading in the middle of a load hurt nobody: one that reads
// is never behind; those that read on are told that they lagged, catch up and go
// live; those that do not are closed with 4008 and resume without loss. All learn
// the end of every request that they were shown.
func TestClientsThatStopReadingLoseNothing(t *testing.T) {
	late, gone := under(5, 15), under(5, 15)
	play(t, nil, func(t *testing.T, s *scene) {
		s.pup.on("load", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, load(ctx, t, 100)
		})
		good := s.dial()
		sid := s.create(good)
		s.attach(good, sid, 0)
		slow := make([]*hosttest.Watch, late+gone)
		for i := range slow {
			slow[i] = s.dial()
			s.attach(slow[i], sid, 0)
		}
		synctest.Wait()
		for _, w := range slow {
			w.Hold()
		}
		began := time.Now()
		s.prompt(good, sid, "load")
		at := 0
		for range 10 {
			card, err := good.Next(t.Context(), &at, isCard)
			if err != nil {
				t.Fatal(err)
			}
			s.respond(good, sid, card.Frame.(*frames.ApprovalRequested).ID, frames.AllowedOnce)
		}
		if err := rest(t.Context(), time.Until(began.Add(12*time.Second))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		head := s.list(good)[sid].Head
		if got, live := good.Cursor(sid); got != head || !live || len(framesOf[*frames.SessionLagging](good)) > 0 {
			t.Errorf("the client that reads is at %d of %d (live: %v), or was told that it lags", got, head, live)
		}
		for i, w := range slow[:late] {
			w.Resume()
			synctest.Wait()
			if len(framesOf[*frames.SessionLagging](w)) == 0 {
				t.Errorf("late client %d was not told that it lagged", i)
			}
			s.caughtUp(fmt.Sprint("late client ", i), w, good, sid)
		}
		if err := rest(t.Context(), time.Until(began.Add(30*time.Second+500*time.Millisecond))); err != nil {
			t.Fatal(err)
		}
		for i, w := range slow[late:] {
			w.Resume()
			synctest.Wait()
			if code := w.CloseCode(); code != 4008 {
				t.Errorf("gone client %d: closed with %d (%v), want 4008", i, code, w.Err())
			}
			s.resumes(fmt.Sprint("gone client ", i), w, sid, head)
		}
	})
}

// resumes comes back as w, which was cut below head, and must end at head.
func (s *scene) resumes(who string, w *hosttest.Watch, sid frames.SessionID, head frames.Seq) {
	s.t.Helper()
	cursor, _ := w.Cursor(sid)
	again := s.dial()
	s.attach(again, sid, int(cursor))
	synctest.Wait()
	if got, live := again.Cursor(sid); cursor == 0 || cursor >= head || got != head || !live || len(again.Cards()) > 0 {
		s.t.Errorf("%s resumed from %d and is at %d of %d, cards %v", who, cursor, got, head, again.Cards())
	}
}

// load says n things of 8 KB, with ten approvals among them, over five seconds.
func load(ctx context.Context, t agent.Turn, n int) error {
	for i := range n {
		if err := say(ctx, t, strings.Repeat(".", 8<<10), " ", fmt.Sprint(i)); err != nil {
			return err
		}
		if i%(n/10) == 0 {
			if _, err := gatedCall(ctx, t, fmt.Sprint("call-", i)); err != nil {
				return err
			}
		}
		if err := rest(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// attach subscribes to a session and to the inbox in one call.
func (s *scene) attach(w *hosttest.Watch, sid frames.SessionID, since int) {
	s.t.Helper()
	params := from(sid, since, false)
	params["host"] = true
	ask[json.RawMessage](s, w, "mux.subscribe", params)
}

// caughtUp holds that w knows what good knows.
func (s *scene) caughtUp(who string, w, good *hosttest.Watch, sid frames.SessionID) {
	s.t.Helper()
	want, _ := good.Cursor(sid)
	got, live := w.Cursor(sid)
	if got != want || !live || len(w.Cards()) > 0 || len(framesOf[*frames.ApprovalResolved](w)) != len(framesOf[*frames.ApprovalRequested](w)) {
		s.t.Errorf("%s is at %d of %d (live: %v), with the cards %v", who, got, want, live, w.Cards())
	}
	wantFold, _, err := good.View(sid)
	if err != nil {
		s.t.Fatal(err)
	}
	if fold, _, err := w.View(sid); err != nil || fold != wantFold {
		s.t.Errorf("%s folds to (%v)\n%.500s\nwant\n%.500s", who, err, fold, wantFold)
	}
}

// perStalled is what one connection that never reads may hold of the host's heap
// beside its queue and one frame: buffers of the socket, stacks of its goroutines
// are not on the heap, its cursors.
const perStalled = 32 << 10

// A hundred clients that never read cost the host no more than their queues and
// one frame each, and one that reads loses nothing and waits for none of them.
func TestClientsThatNeverReadCostTheirQueueOnly(t *testing.T) {
	const stalled = 100
	events := under(32, 64)
	s, srv := socketScene(t)
	s.pup.on("load", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		for range events {
			if err := say(ctx, t, strings.Repeat("x", 30<<10), strings.Repeat("y", 30<<10)); err != nil {
				return agent.Result{}, err
			}
		}
		return agent.Result{}, nil
	})
	caller := s.dialSocket(srv)
	sid := s.create(caller)
	run := func() frames.Seq {
		good := s.dialSocket(srv)
		s.watch(good, sid, -1)
		s.prompt(caller, sid, "load")
		at := 0
		if _, err := good.Next(t.Context(), &at, func(g hosttest.Got) bool { return ended(g, sid) }); err != nil {
			t.Fatal(err)
		}
		seq, _ := good.Cursor(sid)
		s.leave(good)
		return seq
	}
	run()
	before := heap()
	conns := make([]net.Conn, stalled)
	for i := range conns {
		conns[i] = neverRead(t, srv, sid)
	}
	if got, want := run(), s.list(caller)[sid].Head; got != want {
		t.Errorf("the client that reads ended at %d, want %d", got, want)
	}
	each := (heap() - before) / stalled
	t.Logf("%d bytes of heap for each stalled connection", each)
	if limit := int64(256<<10 + frames.MaxFrame + perStalled); each > limit {
		t.Errorf("each stalled connection holds %d bytes, want at most %d", each, limit)
	}
	runtime.KeepAlive(conns)
}

// heap returns what is live on the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// socketScene is a scene on real sockets and a real disk.
func socketScene(t *testing.T) (*scene, *httptest.Server) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "muxhost.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, pup: &puppet{}, store: db, dir: t.TempDir()}
	s.start()
	srv := httptest.NewServer(s.host.Handler())
	t.Cleanup(func() {
		s.stop()
		srv.Close()
		if err := db.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s, srv
}

// dialSocket opens a client over a real socket.
func (s *scene) dialSocket(srv *httptest.Server) *hosttest.Watch {
	s.t.Helper()
	ws, _, err := websocket.Dial(s.t.Context(), srv.URL+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + canary}}, Subprotocols: []string{"muxhost.v1"},
	})
	if err != nil {
		s.t.Fatalf("dial: %v", err)
	}
	w := hosttest.NewWatch(ws)
	s.open = append(s.open, w)
	return w
}

// neverRead opens a socket with the smallest buffer, subscribes a session from its
// start and reads nothing but the handshake.
func neverRead(t *testing.T, srv *httptest.Server, sid frames.SessionID) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	handshake := "GET /v1/ws HTTP/1.1\r\nHost: " + srv.Listener.Addr().String() + "\r\nAuthorization: Bearer " + canary +
		"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: muxhost.v1\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	call, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "mux.subscribe", "params": from(sid, 0, true)})
	if err != nil {
		t.Fatal(err)
	}
	// One masked text frame; a mask of zeros leaves the bytes as they are.
	frame := binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(call)))
	frame = append(append(frame, 0, 0, 0, 0), call...)
	if _, err := c.Write(append([]byte(handshake), frame...)); err != nil {
		t.Fatal(err)
	}
	status, err := bufio.NewReaderSize(c, 16).ReadString('\n')
	if err != nil || !strings.Contains(status, "101") {
		t.Fatalf("handshake: %q %v", status, err)
	}
	return c
}
