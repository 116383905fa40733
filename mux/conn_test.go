package mux_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

// reader accepts one connection and hands on what it reads.
func reader(t *testing.T, hub *mux.Hub) (*mux.Conn, *muxtest.Client, <-chan string, <-chan error) {
	msgs, ended := make(chan string, 16), make(chan error, 1)
	var conn *mux.Conn
	var wg sync.WaitGroup
	ws := muxtest.Pipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := hub.Accept(w, r, mux.AcceptOptions{ID: "c"})
		if err != nil {
			t.Errorf("Accept: %v", err)
			return
		}
		conn = c
		wg.Go(func() {
			for {
				b, err := c.Read(t.Context())
				if err != nil {
					ended <- err
					return
				}
				msgs <- string(b)
			}
		})
	}))
	t.Cleanup(func() { _ = ws.CloseNow(); wg.Wait() })
	return conn, muxtest.Watch(t, ws), msgs, ended
}

// Messages that are not text, not UTF-8 or too large end the connection with the
// code that says so; the largest allowed one is read whole.
func TestBadMessagesCloseWithTheirCode(t *testing.T) {
	for _, c := range []struct {
		name string
		kind websocket.MessageType
		msg  string
		code int
	}{
		{"binary", websocket.MessageBinary, "{}", 1003},
		{"utf-8", websocket.MessageText, "\"\xff\"", 1007},
		{"too big", websocket.MessageText, strings.Repeat("x", frames.MaxMessage+1), 1009},
		{"largest", websocket.MessageText, strings.Repeat("x", frames.MaxMessage), 0},
		{"empty", websocket.MessageText, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mux.Config{})
				conn, cl, msgs, ended := reader(t, w.hub)
				_ = cl.WS.Write(t.Context(), c.kind, []byte(c.msg)) // may fail: the host hangs up
				if c.code == 0 {
					if got := <-msgs; got != c.msg {
						t.Errorf("read %d bytes, want %d", len(got), len(c.msg))
					}
					return
				}
				err := <-ended
				ce, ok := errors.AsType[*mux.CloseError](err)
				if !errors.Is(err, mux.ErrClosed) || !ok || ce.Code != c.code {
					t.Errorf("Read: %v, want ErrClosed with %d", err, c.code)
				}
				<-conn.Done()
				cl.Wait()
				if got := cl.CloseCode(); got != c.code {
					t.Errorf("closed with %d, want %d", got, c.code)
				}
			})
		})
	}
}

// A message that does not arrive whole in time ends the connection.
func TestASlowMessageEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		_, cl, _, ended := reader(t, w.hub)
		start := time.Now()
		part, err := cl.WS.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write(make([]byte, 10<<10)); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, mux.ErrClosed) {
			t.Errorf("Read: %v", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("ended after %v, want 10s", d)
		}
	})
}

// A silent connection gets a heartbeat each interval, and a busy one none.
func TestHeartbeatFillsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		conn, cl := muxtest.Join(t, w.hub, "c")
		time.Sleep(46 * time.Second)
		wantBrief(t, cl, "mux/heartbeat", "mux/heartbeat", "mux/heartbeat")
		for range 10 {
			if err := conn.Send([]byte(`{"id":1}`)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		for _, m := range cl.Take() {
			if m.Frame != nil {
				t.Errorf("a heartbeat on a busy connection: %s", m.Raw)
			}
		}
	})
}

// A client that answers pings stays for ever; one that reads nothing and says
// nothing is closed after two unanswered pings.
func TestUnansweredPingsEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		good, _ := muxtest.Join(t, w.hub, "good")
		// Heartbeats are rare here, so that no write blocks and only pings count.
		deaf := muxtest.Deaf(t, w.hub, mux.AcceptOptions{ID: "deaf", Heartbeat: time.Hour})
		start := time.Now()
		<-deaf.Done()
		if d := time.Since(start); d < 40*time.Second || d > 63*time.Second {
			t.Errorf("ended after %v, want about a minute", d)
		}
		if !errors.Is(deaf.Err(), mux.ErrSlow) {
			t.Errorf("ended with %v, want ErrSlow", deaf.Err())
		}
		time.Sleep(10 * time.Minute)
		if good.Err() != nil {
			t.Errorf("the good client ended: %v", good.Err())
		}
	})
}

// The client's close is answered, and told as the cause.
func TestPeerCloseIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		conn, cl := muxtest.Join(t, w.hub, "c")
		if err := cl.WS.Close(4321, "bye"); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-conn.Done()
		ce, ok := errors.AsType[*mux.CloseError](conn.Err())
		if !ok || *ce != (mux.CloseError{Code: 4321, Reason: "bye", Peer: true}) {
			t.Errorf("Err = %v", conn.Err())
		}
		if n := len(w.hub.Clients()); n != 0 {
			t.Errorf("%d clients are left", n)
		}
	})
}

// Close sends its code and what is published before 1001, and never blocks, not
// even when the client does not read.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		a, cl := muxtest.Join(t, w.hub, "a")
		b, _ := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: "b"})
		subscribe(t, a, since("s", 0))
		subscribe(t, b, since("s", 0))
		s.say(300, 1000)
		start := time.Now()
		if err := w.hub.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
		cl.Wait()
		k := newCheck(t, "a")
		k.all(cl.Messages())
		k.complete([]*session{s})
		if cl.CloseCode() != 1001 {
			t.Errorf("closed with %d, want 1001", cl.CloseCode())
		}
		_, resp, err := muxtest.Dial(t.Context(), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if _, err := w.hub.Accept(rw, r, mux.AcceptOptions{}); !errors.Is(err, mux.ErrShutdown) {
				t.Errorf("Accept after Shutdown: %v", err)
			}
		}), nil)
		if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("Dial after Shutdown: %v, %v", resp, err)
		}
	})
}

// A response that was sent before an event was published is never behind it, and
// a subscription's response precedes its frames, however the writer is timed.
func TestResponsesPrecedeWhatTheyCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{RingBytes: 8 << 10, WriteChunk: 2 << 10, QueueBytes: 4 << 20})
		s := w.add("s", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		subscribe(t, conn, since("s", 0))
		for i := range 3000 {
			if err := conn.Send(fmt.Appendf(nil, `{"answer":%d}`, i+1)); err != nil {
				t.Fatal(err)
			}
			s.say(1, i%200)
			if i%100 == 0 {
				subscribe(t, conn, since("s", s.seq-min(s.seq, 50)))
			}
		}
		synctest.Wait()
		answers := frames.Seq(0)
		for _, m := range cl.Take() {
			var n frames.Seq
			if _, err := fmt.Sscanf(string(m.Raw), `{"answer":%d}`, &n); err == nil {
				answers = n
			}
			if m.Event != nil && m.Event.Seq > answers {
				t.Fatalf("event %d came when answer %d had not", m.Event.Seq, m.Event.Seq)
			}
		}
		if answers != 3000 {
			t.Errorf("last answer %d", answers)
		}
	})
}

// While respond runs, nothing leaves; a respond that panics ends the connection.
func TestNothingPassesAnUnbuiltResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s", nil)
		conn, cl := muxtest.Join(t, w.hub, "c")
		err := conn.Subscribe(t.Context(), since("s", 0), func(r []mux.SubscribeResult) []byte {
			s.say(1, 1)
			s.raise("p")
			synctest.Wait()
			if got := brief(cl.Take()); len(got) > 0 {
				t.Errorf("%q left before the response", got)
			}
			return response(r)
		})
		if err != nil {
			t.Fatal(err)
		}
		wantBrief(t, cl, "response", "session/subscribed", "+p", "1", "session/live")
		func() {
			defer func() { _ = recover() }()
			_ = conn.Subscribe(t.Context(), since("s", 0), func([]mux.SubscribeResult) []byte { panic("broken") })
		}()
		<-conn.Done()
		if ce, ok := errors.AsType[*mux.CloseError](conn.Err()); !ok || ce.Code != 1011 {
			t.Errorf("after a panic: %v, want 1011", conn.Err())
		}
	})
}

// Reading ends with its context.
func TestReadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		var wg sync.WaitGroup
		var conn atomic.Pointer[mux.Conn]
		ws := muxtest.Pipe(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			c, aerr := w.hub.Accept(rw, r, mux.AcceptOptions{})
			if aerr != nil {
				t.Error(aerr)
				return
			}
			conn.Store(c)
			wg.Go(func() { _, err = c.Read(ctx) })
		}))
		cl := muxtest.Watch(t, ws)
		synctest.Wait()
		cancel()
		wg.Wait()
		if !errors.Is(err, mux.ErrClosed) {
			t.Errorf("Read: %v, want ErrClosed", err)
		}
		<-conn.Load().Done()
		cl.Wait()
		if cl.CloseCode() != 1001 {
			t.Errorf("closed with %d, want 1001", cl.CloseCode())
		}
	})
}
