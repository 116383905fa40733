package mux_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/mux/muxtest"
)

// stream asks hub for a stream of events over a pipe. The connection is nil when it
// was refused.
func stream(t *testing.T, hub *mux.Hub, o mux.EventsOptions) (*mux.Conn, *http.Response) {
	t.Helper()
	var conn *mux.Conn
	var wg sync.WaitGroup
	ready := make(chan struct{})
	o.Refuse = func(err error) (int, []byte) {
		if errors.Is(err, mux.ErrNoSession) {
			return http.StatusNotFound, []byte(err.Error())
		}
		return http.StatusGone, []byte(err.Error())
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := hub.AcceptEvents(w, r, o)
		conn = c
		close(ready)
		if err == nil {
			wg.Go(func() {
				for _, err := c.Read(t.Context()); err == nil; {
					t.Error("an event stream read a message")
				}
			})
		}
	})
	resp := muxtest.Do(t, h, httptest.NewRequest(http.MethodGet, "/v1/events", nil))
	if resp.StatusCode != http.StatusOK {
		return nil, resp
	}
	<-ready
	t.Cleanup(func() { _ = resp.Body.Close(); <-conn.Done(); wg.Wait() })
	return conn, resp
}

// at asks for one session after seq n.
func at(sid frames.SessionID, n frames.Seq) mux.SubscribeEntry {
	return mux.SubscribeEntry{SessionID: sid, Since: new(n)}
}

func everything(es ...mux.SubscribeEntry) mux.EventsOptions {
	return mux.EventsOptions{Subscribe: mux.SubscribeRequest{Sessions: es}}
}

// asText says one message of a WebSocket as an event stream does.
func asText(t *testing.T, m muxtest.Message) muxtest.ServerEvent {
	t.Helper()
	var n struct {
		Method string
		Params json.RawMessage
	}
	if err := json.Unmarshal(m.Raw, &n); err != nil {
		t.Fatal(err)
	}
	e := muxtest.ServerEvent{Type: n.Method, Data: strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, string(n.Params))}
	if m.Event != nil && m.Event.Seq > 0 {
		e.ID = fmt.Sprintf("%s:e1:%d", m.Frame.(*frames.SessionEvent).SessionID, m.Event.Seq)
	}
	return e
}

// A stream of events carries frame by frame what a WebSocket does, whether they
// come from the log, from the ring or from the side, with an id on durable events
// and nothing else.
func TestAnEventStreamCarriesWhatAWebSocketDoes(t *testing.T) {
	for _, d := range []mux.Delivery{{}, {Text: "final", Reasoning: "off", Tools: "off"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mux.Config{RingBytes: 16 << 10, WriteChunk: 8 << 10})
			s, child := w.add("s1", nil), (*session)(nil)
			s.say(60, 600) // more than the ring keeps
			s.publish(mux.Update{}, frames.TurnStart{Trigger: "prompt"})
			s.delta("he")
			s.raise("a1")
			conn, cl := muxtest.Join(t, w.hub, "ws")
			root := at("s1", 0)
			root.Tree = true
			if err := conn.Subscribe(t.Context(), mux.SubscribeRequest{Sessions: []mux.SubscribeEntry{root}, Delivery: &d}, func([]mux.SubscribeResult) []byte { return nil }); err != nil {
				t.Fatal(err)
			}
			o := everything(root)
			o.Subscribe.Delivery = &d
			_, resp := stream(t, w.hub, o)
			ev := muxtest.Events(t, resp.Body)
			synctest.Wait()
			for _, step := range []func(){
				func() { child = w.add("s2", s) },
				func() { child.say(2, 100) },
				func() { s.delta("llo") },
				func() {
					s.publish(mux.Update{}, frames.ReasoningMessage{Content: []frames.ContentBlock{frames.Text("because")}})
				},
				func() {
					s.publish(mux.Update{}, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(strings.Repeat("é\n", 50<<10))}, Blocks: []int{0}})
				},
				func() { s.settle("a1") },
				func() { w.hub.Remove("s2", "deleted") },
			} {
				step()
				synctest.Wait() // each alone: between cursors there is no order
			}
			want, got := cl.Messages(), ev.Got()
			if got[0].Retry == "" {
				t.Errorf("the stream begins with %+v, want retry", got[0])
			}
			got = got[1:]
			if len(got) != len(want) || len(got) < 70 {
				t.Fatalf("%d events on the stream, %d on the WebSocket; want the same, over 70", len(got), len(want))
			}
			for i := range want {
				if e := asText(t, want[i]); got[i] != e {
					t.Errorf("event %d is %.300q, want %.300q", i, got[i], e)
				}
			}
		})
	}
}

// A line break between the tokens of an event does not end its data.
func TestDataOfAnEventIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		w.add("s1", nil)
		_, resp := stream(t, w.hub, everything(at("s1", 0)))
		ev := muxtest.Events(t, resp.Body)
		synctest.Wait()
		raw := `{"type":"x.y/z","seq":1,"ts":"2026-01-01T00:00:00.000Z","data":{"a":` + "\r\n" + `"b\n"}}`
		e := frames.Encoded{Seq: 1, Class: frames.ClassDurable, Type: "x.y/z", Data: []byte(raw)}
		w.log.Append("s1", e)
		w.hub.Publish("s1", mux.Update{Events: []frames.Encoded{e}})
		synctest.Wait()
		got := ev.Got()
		last := got[len(got)-1]
		var p struct {
			Event struct{ Data struct{ A string } }
		}
		if err := json.Unmarshal([]byte(last.Data), &p); err != nil || p.Event.Data.A != "b\n" || last.ID != "s1:e1:1" {
			t.Errorf("got %+v, %v; want the event whole, as s1:e1:1", last, err)
		}
	})
}

// Silence is filled with a comment, and a client that never speaks is not taken for
// gone.
func TestSilentEventStreamsGetCommentsAndStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		w.add("s1", nil)
		conn, resp := stream(t, w.hub, everything(at("s1", 0)))
		ev := muxtest.Events(t, resp.Body)
		synctest.Wait()
		n := len(ev.Got())
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		got := ev.Got()[n:]
		if conn.Err() != nil || len(got) != 40 {
			t.Fatalf("after ten minutes: %v, %d comments; want 40", conn.Err(), len(got))
		}
		for _, e := range got {
			if e != (muxtest.ServerEvent{Comment: "heartbeat"}) {
				t.Errorf("got %+v, want the comment", e)
			}
		}
	})
}

// A client of an event stream that stops reading delays nobody, is cut off after
// the time for one write, and is told so if it reads on: the last frame whole, then
// 4008.
func TestSlowEventStreamsAreCutAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s1", nil)
		conn, resp := stream(t, w.hub, everything(at("s1", 0)))
		synctest.Wait()
		_, good := muxtest.Join(t, w.hub, "good")
		start := time.Now()
		s.say(20, 10<<10)
		synctest.Wait()
		w.hub.Broadcast([]byte(`{"jsonrpc":"2.0","method":"x/y"}`))
		wantBrief(t, good, "x/y")
		time.Sleep(30*time.Second + time.Millisecond)
		synctest.Wait()
		if !errors.Is(conn.Err(), mux.ErrSlow) {
			t.Fatalf("after %v: %v, want ErrSlow", time.Since(start), conn.Err())
		}
		ev := muxtest.Events(t, resp.Body)
		ev.Wait()
		got := ev.Got()
		last := got[len(got)-1]
		if last.Type != "mux/closed" || !strings.Contains(last.Data, `"code":4008`) || last.Retry == "" {
			t.Errorf("the last event is %+v, want mux/closed with 4008", last)
		}
	})
}

// A stream ends with what the close code of a WebSocket says, after everything that
// was published when the host goes down.
func TestEventStreamsAreToldWhyTheyEnd(t *testing.T) {
	for code, end := range map[int]func(context.Context, *mux.Hub, *mux.Conn){
		1001: func(ctx context.Context, h *mux.Hub, _ *mux.Conn) { _ = h.Shutdown(ctx) },
		4001: func(_ context.Context, _ *mux.Hub, c *mux.Conn) { c.Close(4001, "the token was revoked") },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mux.Config{})
			s := w.add("s1", nil)
			conn, resp := stream(t, w.hub, everything(at("s1", 0)))
			ev := muxtest.Events(t, resp.Body)
			synctest.Wait()
			n := len(ev.Got())
			if code == 1001 {
				s.say(1, 10)
			}
			end(t.Context(), w.hub, conn)
			ev.Wait()
			<-conn.Done()
			got := ev.Got()[n:]
			if code == 1001 && (len(got) != 2 || got[0].ID != "s1:e1:1") {
				t.Errorf("got %+v, want the event before the end", got)
			}
			if last := got[len(got)-1]; last.Type != "mux/closed" || !strings.Contains(last.Data, fmt.Sprint(code)) {
				t.Errorf("the last event is %+v, want mux/closed with %d", last, code)
			}
			if left := w.hub.Clients(); len(left) != 0 {
				t.Errorf("%d clients are left", len(left))
			}
		})
	}
}

// If one session of several cannot be subscribed, the stream is refused as a whole
// and nothing of it is left.
func TestEventStreamsAreAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mux.Config{})
		s := w.add("s1", nil)
		s.say(3, 10)
		stale := at("s1", 1)
		stale.Epoch = "other"
		for name, c := range map[string]struct {
			o      mux.EventsOptions
			status int
		}{
			"unknown": {everything(at("s1", 0), at("s9", 0)), 404},
			"first":   {everything(at("s9", 0)), 404},
			"ahead":   {everything(at("s1", 4)), 410},
			"epoch":   {everything(stale), 410},
			"hidden":  {mux.EventsOptions{AcceptOptions: mux.AcceptOptions{Trees: []frames.SessionID{"s2"}}, Subscribe: mux.SubscribeRequest{Sessions: []mux.SubscribeEntry{at("s1", 0)}}}, 404},
		} {
			_, resp := stream(t, w.hub, c.o)
			if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %v, want %d and JSON", name, resp.StatusCode, resp.Header, c.status)
			}
			_ = resp.Body.Close()
		}
		if left := w.hub.Clients(); len(left) != 0 {
			t.Errorf("%d clients are left", len(left))
		}
	})
}
