package mux_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

// sink is a socket that takes everything at once and counts it.
type sink struct {
	net.Conn // never used
	got      *atomic.Int64
	gone     chan struct{}
}

func (s *sink) Write(p []byte) (int, error)      { s.got.Add(int64(len(p))); return len(p), nil }
func (s *sink) Read([]byte) (int, error)         { <-s.gone; return 0, net.ErrClosed }
func (s *sink) SetDeadline(time.Time) error      { return nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }
func (s *sink) Close() error                     { return nil }

type sinkWriter struct {
	*httptest.ResponseRecorder
	*sink
}

func (w sinkWriter) Write(p []byte) (int, error) { return w.ResponseRecorder.Write(p) }

func (w sinkWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.sink, bufio.NewReadWriter(bufio.NewReader(w.sink), bufio.NewWriter(w.sink)), nil
}

const benchRing = 32 << 20

// audience subscribes n sinks to session "s" and returns the hub, and the count
// of bytes that have reached all of them together.
func audience(t testing.TB, n int) (*mux.Hub, *atomic.Int64) {
	hub := mux.NewHub(mux.Config{RingBytes: benchRing}, &muxtest.Log{})
	hub.Add(mux.Session{Summary: frames.Session{SessionID: "s", RootSessionID: "s", Epoch: "e"}, First: 1, Live: true})
	got, gone := new(atomic.Int64), make(chan struct{})
	for i := range n {
		r := httptest.NewRequest(http.MethodGet, "/v1/ws", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
		c, err := hub.Accept(sinkWriter{httptest.NewRecorder(), &sink{got: got, gone: gone}}, r, mux.AcceptOptions{ID: frames.ClientID(fmt.Sprint(i))})
		if err != nil {
			t.Fatal(err)
		}
		subscribe(t, c, mux.SubscribeRequest{Sessions: []mux.SubscribeEntry{{SessionID: "s"}}})
	}
	t.Cleanup(func() {
		close(gone)
		_ = hub.Shutdown(context.WithoutCancel(t.Context()))
	})
	settle(got)
	return hub, got
}

// settle waits until nothing more arrives.
func settle(got *atomic.Int64) {
	for last, same := got.Load(), 0; same < 1000; {
		runtime.Gosched()
		if n := got.Load(); n != last {
			last, same = n, 0
		} else {
			same++
		}
	}
}

// live returns a live-only event of about 200 bytes as a frame, and its size on
// the wire.
func liveEvent(t testing.TB) (frames.Encoded, int64) {
	e, err := frames.NewEvent(frames.AssistantDelta{From: 1, To: 2, Text: strings.Repeat("t", 20)})
	if err != nil {
		t.Fatal(err)
	}
	e.Time, e.TurnID = frames.At(time.Unix(1, 0)), "t1"
	enc := encode(t, e)
	return enc, int64(len(frames.AppendSessionEvent(nil, "s", enc.Data)) + 4)
}

// Delivering a frame to one more client allocates nothing.
func TestDeliveryDoesNotAllocate(t *testing.T) {
	per := func(clients int) float64 {
		hub, got := audience(t, clients)
		enc, size := liveEvent(t)
		u := mux.Update{Events: []frames.Encoded{enc}}
		once := func() {
			want := got.Load() + size*int64(clients)
			hub.Publish("s", u)
			for got.Load() < want {
				runtime.Gosched()
			}
		}
		for range 2000 { // buffers and the ring reach their sizes
			once()
		}
		return testing.AllocsPerRun(2000, once)
	}
	one, many := per(1), per(51)
	if d := (many - one) / 50; d > 0.02 {
		t.Errorf("%.3f allocations per event with 1 client, %.3f with 51: %.3f for each more; want 0", one, many, d)
	}
}

// BenchmarkPublish delivers one event of 200 bytes to every client.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			hub, got := audience(b, n)
			enc, size := liveEvent(b)
			u := mux.Update{Events: []frames.Encoded{enc}}
			want := got.Load()
			b.ReportAllocs()
			for b.Loop() {
				hub.Publish("s", u)
				want += size * int64(n)
				// Less than the ring is under way in all, so that nobody lags.
				for want-got.Load() > min(256<<10*int64(n), benchRing/2) {
					runtime.Gosched()
				}
			}
			for got.Load() < want {
				runtime.Gosched()
			}
			b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}
