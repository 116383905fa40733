package mux_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

// A client that falls off the ring in the middle of a stream is told so once,
// gets every durable event from the log and then the open turn.
func TestLaggingClientsCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{RingBytes: 16 << 10, WriteChunk: 4 << 10})
		s := w.add("s", nil)
		conn, ws := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: "c"})
		k := newCheck(t, "c")
		subscribe(t, conn, since("s", 0))
		for range 3 { // response, session/subscribed, session/live
			k.one(readOne(t, ws))
		}
		s.publish(mux.Update{}, frames.TurnStart{Trigger: "prompt"})
		for i := range 400 {
			s.delta(strings.Repeat("x", 200))
			if i%4 == 0 {
				s.say(1, 500)
			}
		}
		synctest.Wait()
		s.raise("p") // overtakes what is behind
		cl := muxtest.Watch(t, ws)
		synctest.Wait()
		got := cl.Messages()
		k.all(got)
		s.settle("p")
		s.delta("end")
		synctest.Wait()
		k.all(cl.Messages()[len(got):])
		k.complete([]*session{s})
		lagged, at := 0, -1
		for i, m := range got {
			switch m.Type() {
			case frames.SessionLaggingFrame:
				lagged++
			case frames.ApprovalRequestedFrame:
				at = i
			}
		}
		if lagged != 1 || w.log.Reads() < 5 {
			t.Errorf("session/lagging came %d times after %d reads of the log, want 1 after several", lagged, w.log.Reads())
		}
		if at < 0 || at > len(got)/2 {
			t.Errorf("the request came as message %d of %d, want it to overtake", at, len(got))
		}
	})
}

func readOne(t *testing.T, ws *websocket.Conn) muxtest.Message {
	t.Helper()
	_, b, err := ws.Read(t.Context())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return muxtest.Decode(t, b)
}

// A client whose control queue overflows is closed with 4008, and Send says so;
// it may still read whole frames up to the close.
func TestAFullControlQueueEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		conn, ws := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: "c"})
		msg := []byte(`{"result":"` + strings.Repeat("x", 10<<10) + `"}`)
		sent := 0
		var err error
		for err == nil && sent < 1000 {
			sent++
			err = conn.Send(msg)
		}
		if !errors.Is(err, mux.ErrSlow) || sent*len(msg) > 300<<10 {
			t.Errorf("after %d messages: %v, want ErrSlow after about 256 KiB", sent, err)
		}
		cl := muxtest.Watch(t, ws)
		cl.Wait()
		if cl.CloseCode() != 4008 {
			t.Errorf("closed with %d, want 4008", cl.CloseCode())
		}
		if err := conn.Send(msg); !errors.Is(err, mux.ErrClosed) {
			t.Errorf("Send after the end: %v, want ErrClosed", err)
		}
	})
}

// A client that takes nothing of one write for the whole timeout is closed.
func TestAStuckWriteEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		conn, _ := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: "c"})
		start := time.Now()
		if err := conn.Send([]byte("{}")); err != nil {
			t.Fatal(err)
		}
		<-conn.Done()
		if d := time.Since(start); d < 30*time.Second || d > 33*time.Second || !errors.Is(conn.Err(), mux.ErrSlow) {
			t.Errorf("ended after %v with %v, want ErrSlow after 30s", d, conn.Err())
		}
	})
}

// Room blocks while the queue is over half, and ends with the connection.
func TestRoomWaitsForTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		conn, ws := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: "c"})
		big := []byte(`{"result":"` + strings.Repeat("x", 200<<10) + `"}`)
		if err := errors.Join(conn.Room(t.Context()), conn.Send(big)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { done <- conn.Room(t.Context()) })
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Room returned %v with a full queue", err)
		default:
		}
		readOne(t, ws)
		if err := <-done; err != nil {
			t.Errorf("Room: %v", err)
		}
		_ = conn.Send(big)
		wg.Go(func() { done <- conn.Room(t.Context()) })
		synctest.Wait()
		conn.Close(4001, "revoked")
		if err := <-done; !errors.Is(err, mux.ErrClosed) {
			t.Errorf("Room of a closed connection: %v, want ErrClosed", err)
		}
	})
}

// A hundred clients that never read cost a bounded number of bytes each, delay
// nobody and lose no durable event when they read again.
func TestClientsThatNeverReadCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{PingInterval: time.Hour, Heartbeat: time.Hour})
		s := w.add("s", nil)
		var stuck []*websocket.Conn
		var conns []*mux.Conn
		for i := range 100 {
			conn, ws := muxtest.Accept(t, w.hub, mux.AcceptOptions{ID: frames.ClientID(fmt.Sprint(i))})
			subscribe(t, conn, since("s", 0))
			stuck, conns = append(stuck, ws), append(conns, conn)
		}
		good, cl := muxtest.Join(t, w.hub, "good")
		subscribe(t, good, since("s", 0))
		synctest.Wait()
		before := heap()
		start := time.Now()
		for range 40 {
			s.say(100, 1000) // 4 MB in all
			s.raise("p")
			s.settle("p")
			synctest.Wait()
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("publishing waited for %v", d)
		}
		k := newCheck(t, "good")
		k.all(cl.Take())
		k.complete([]*session{s})
		logged := 4100 * 1100 // what the log in memory holds
		for i, c := range conns {
			if n := mux.Held(c); n > 256<<10+frames.MaxFrame {
				t.Errorf("client %d holds %d bytes", i, n)
			}
		}
		if grown := heap() - before - logged; grown > 100*(256<<10) {
			t.Errorf("the heap grew by %d KiB over the log's for 100 stuck clients", grown>>10)
		}
		late := muxtest.Watch(t, stuck[7])
		synctest.Wait()
		k = newCheck(t, "late")
		k.all(late.Take())
		k.complete([]*session{s})
	})
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A log that cannot be read ends that subscription and nothing else; one trimmed
// past the cursor says where it starts now.
func TestALogThatFailsEndsOnlyItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s, other := w.add("s", nil), w.add("other", nil)
		s.say(5, 1)
		conn, cl := muxtest.Join(t, w.hub, "c")
		w.log.Fail(io.ErrUnexpectedEOF)
		subscribe(t, conn, since("s", 0))
		got := wantBrief(t, cl, "response", "session/subscribed", "session/unsubscribed")
		if f := got[2].Frame.(*frames.SessionUnsubscribed); f.Reason != "storage-failed" {
			t.Errorf("session/unsubscribed = %+v", f)
		}
		w.log.Fail(nil)
		err := conn.Subscribe(t.Context(), since("s", 1), func(r []mux.SubscribeResult) []byte {
			w.log.Trim("s", 4, nil) // after the cursor was checked
			w.hub.Trimmed("s", 4)
			return response(r)
		})
		got = wantBrief(t, cl, "response", "session/subscribed", "session/unsubscribed")
		if f := got[2].Frame.(*frames.SessionUnsubscribed); err != nil || f.Reason != "cursor-expired" || f.First != 4 {
			t.Errorf("session/unsubscribed = %+v, %v", f, err)
		}
		other.say(1, 1)
		subscribe(t, conn, since("other", 0))
		wantBrief(t, cl, "response", "session/subscribed", "1", "session/live")
	})
}
