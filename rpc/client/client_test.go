package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// framesOf pulls the frames of c until the test ends.
func framesOf(t testing.TB, c *client.Client) reader {
	next, stop := iter.Pull2(c.Frames(t.Context()))
	t.Cleanup(stop)
	return reader{t, func() (frames.Frame, error, bool) { f, err, ok := next(); return f, err, ok }}
}

// bubble runs a test of a client in virtual time, against a scripted host.
func bubble(t *testing.T, script func(c *hostConn, n int), test func(t *testing.T, h *fakeHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHost(t, script)) })
}

// watch subscribes a session from its first event.
func watch(t testing.TB, c *client.Client, sid frames.SessionID) {
	t.Helper()
	if _, err := c.Subscribe(t.Context(), rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: sid, Since: new(frames.Seq(0))}}}); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
}

// The token goes into the header and nowhere else; label and heartbeat are asked for.
func TestDialSaysWhoCalls(t *testing.T) {
	bubble(t, func(c *hostConn, _ int) { c.wait() }, func(t *testing.T, h *fakeHost) {
		o := h.options()
		o.TokenFunc = func(context.Context) (string, error) { return "fresh", nil }
		o.Label, o.Heartbeat = "my phone", 30*time.Second
		h.connect(o)
		if got := h.header.Get("Authorization"); got != "Bearer fresh" {
			t.Errorf("Authorization %q, want the token of TokenFunc", got)
		}
		if strings.Contains(h.queries[0], "fresh") || h.query("label") != "my phone" || h.query("heartbeat") != "30" {
			t.Errorf("query %q, want label and heartbeat and no token", h.queries[0])
		}
	})
}

// The address is asked for before each connection, so a host that moved is found.
func TestDialAsksWhereTheHostIs(t *testing.T) {
	bubble(t, func(c *hostConn, _ int) { c.wait() }, func(t *testing.T, h *fakeHost) {
		o := h.options()
		url := o.URL
		o.URL = "http://elsewhere"
		o.URLFunc = func(context.Context) (string, error) { return url, nil }
		h.connect(o)
		o.URLFunc = func(context.Context) (string, error) { return "", errors.New("nowhere") }
		if _, err := client.Dial(t.Context(), o); !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("Dial = %v, want ErrUnreachable: nowhere", err)
		}
	})
}

// A first connection that fails says why.
func TestDialErrors(t *testing.T) {
	bubble(t, func(c *hostConn, _ int) { c.wait() }, func(t *testing.T, h *fakeHost) {
		for status, want := range map[int]error{401: client.ErrUnauthorized, 403: client.ErrUnauthorized, 503: client.ErrUnreachable, 404: client.ErrUnreachable} {
			h.refuse(status)
			if _, err := client.Dial(t.Context(), h.options()); !errors.Is(err, want) || want == client.ErrUnauthorized && !strings.HasSuffix(err.Error(), " no") {
				t.Errorf("status %d: %v, want %v", status, err, want)
			}
		}
		for _, url := range []string{"", "host", "ftp://x", "http://[::1"} {
			o := h.options()
			o.URL = url
			if _, err := client.Dial(t.Context(), o); !errors.Is(err, client.ErrUnreachable) {
				t.Errorf("URL %q: %v, want ErrUnreachable", url, err)
			}
		}
		h.close()
		if _, err := client.Dial(t.Context(), h.options()); !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("no host: %v, want ErrUnreachable", err)
		}
	})
}

// A host that opens no connection is told apart from none, with what it said:
// its refusal's message, or whatever words came.
func TestDialSaysWhyTheHostOpensNothing(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"kind":"rate-limited","message":"close one"}}`: "close one",
		`{"error":"odd"}`: `{"error":"odd"}`,
		"try later\n":     "try later",
		"":                "",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, body)
		}))
		_, err := client.Dial(t.Context(), client.Options{URL: srv.URL, Token: "x"})
		srv.Close()
		e, ok := errors.AsType[*client.RefusedError](err)
		if !ok || e.Status != http.StatusTooManyRequests || e.Reason != want || !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("body %q: %v, want a RefusedError of 429 with %q", body, err, want)
		}
	}
}

// Results and errors of calls come back typed, in whatever order they are answered.
func TestCallsAreAnswered(t *testing.T) {
	script := func(c *hostConn, _ int) {
		a, _ := c.next()
		b, _ := c.next()
		for _, r := range []request{b, a} { // the other way round
			if r.Method == "session.prompt" {
				c.reply(r.ID, rpc.PromptResult{Accepted: true, PromptID: "p"})
			} else {
				c.fail(r.ID, rpc.Errorf(rpc.KindApprovalNotPending, "settled").With(map[string]string{"outcome": "rejected"}))
			}
		}
		r, _ := c.next()
		c.fail(r.ID, rpc.Paramsf("bad"))
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		done := make(chan error, 1)
		h.wg.Go(func() {
			done <- c.Respond(t.Context(), rpc.ApprovalParams{SessionID: "s", ID: "r", Outcome: frames.Rejected})
		})
		r, err := c.Prompt(t.Context(), rpc.PromptParams{SessionID: "s", Content: []frames.ContentBlock{frames.Text("hi")}})
		if err != nil || r.PromptID != "p" {
			t.Errorf("Prompt = %+v, %v", r, err)
		}
		e, ok := errors.AsType[*rpc.Error](<-done)
		if !ok || e.Kind != rpc.KindApprovalNotPending || string(e.Details.(json.RawMessage)) != `{"outcome":"rejected"}` {
			t.Errorf("Respond = %+v, want approval-not-pending with its details", e)
		}
		_, err = c.Create(t.Context(), rpc.CreateParams{Cwd: "/"})
		if e, ok := errors.AsType[*client.RPCError](err); !ok || e.Code != rpc.CodeInvalidParams {
			t.Errorf("Create = %v, want an RPCError -32602", err)
		}
	})
}

// When the connection breaks, a change is lost with its outcome unknown, and a
// read is made again on the next connection.
func TestLostCalls(t *testing.T) {
	script := func(c *hostConn, n int) {
		r, ok := c.next()
		if n > 2 && ok {
			c.reply(r.ID, rpc.ListResult{Sessions: []frames.Session{{SessionID: "s"}}})
			c.wait()
		}
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		_, err := c.Prompt(t.Context(), rpc.PromptParams{SessionID: "s"})
		if lost, ok := errors.AsType[*client.LostError](err); !ok || lost.Method != "session.prompt" {
			t.Errorf("Prompt = %v, want a LostError", err)
		}
		r, err := c.List(t.Context(), rpc.ListParams{})
		if err != nil || len(r.Sessions) != 1 || h.connections() != 3 {
			t.Errorf("List = %+v, %v after %d connections, want the answer of the third", r, err, h.connections())
		}
	})
}

// A call ends with its context, whether it waits for a response or a connection.
func TestCallEndsWithItsContext(t *testing.T) {
	bubble(t, func(c *hostConn, n int) {
		c.wait()
	}, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Describe(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Describe = %v, want the deadline", err)
		}
	})
}

// A host that is silent for 2.5 heartbeats is left; heartbeats keep it and are not
// handed out.
func TestSilentHostIsLeft(t *testing.T) {
	var cut chan time.Duration
	script := func(c *hostConn, n int) {
		if n > 1 {
			c.frame(frames.HostLive{})
			c.wait()
			return
		}
		for range 10 {
			time.Sleep(15 * time.Second)
			c.frame(frames.Heartbeat{TS: frames.At(time.Now())})
		}
		last := time.Now()
		c.wait()
		cut <- time.Since(last)
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		cut = make(chan time.Duration, 1) // of the bubble
		c := h.connect(h.options())
		framesOf(t, c).want("host/live")
		if d := <-cut; d != 37500*time.Millisecond || h.connections() != 2 {
			t.Errorf("left after %v on connection %d, want 37.5s", d, h.connections())
		}
	})
}

// Close codes say what to do: 4008 resume at once, 1001 after a while, 4001 and
// 4029 never again.
func TestCloseCodes(t *testing.T) {
	for _, row := range []struct {
		code     websocket.StatusCode
		min, max time.Duration
		terminal bool
	}{
		{4008, 0, 0, false},
		{websocket.StatusGoingAway, 50 * time.Millisecond, 100 * time.Millisecond, false},
		{4001, 0, 0, true},
		{4029, 0, 0, true},
	} {
		script := func(c *hostConn, n int) {
			if n > 1 {
				c.frame(frames.HostLive{})
				c.wait()
				return
			}
			time.Sleep(time.Second)
			_ = c.sock.Close(row.code, "because")
		}
		bubble(t, script, func(t *testing.T, h *fakeHost) {
			start := time.Now()
			c := h.connect(h.options())
			got, err := framesOf(t, c).take()
			d := time.Since(start) - time.Second
			if e, ok := errors.AsType[*client.TerminalError](err); ok != row.terminal || ok && (e.Code != int(row.code) || e.Reason != "because") {
				t.Errorf("%d: got %q, %v; want terminal %v", row.code, got, err, row.terminal)
			}
			if d < row.min || d > row.max {
				t.Errorf("%d: came back after %v, want %v to %v", row.code, d, row.min, row.max)
			}
			if row.terminal {
				if _, err := c.Describe(t.Context()); err == nil || h.connections() != 1 {
					t.Errorf("%d: a later call gave %v, %d connections; want an error, 1", row.code, err, h.connections())
				}
			}
		})
	}
}

// Attempts to come back wait 100 ms, then twice as long each, up to 10 s, less up
// to half; a refused token ends them.
func TestBackoff(t *testing.T) {
	bubble(t, func(c *hostConn, _ int) { time.Sleep(time.Second) }, func(t *testing.T, h *fakeHost) {
		states := []client.State{}
		o := h.options()
		o.OnState = func(s client.State) { states = append(states, s) }
		c := h.connect(o)
		h.refuse(http.StatusServiceUnavailable)
		time.Sleep(time.Second)
		for i := range 12 {
			n, start := h.connections(), time.Now()
			for h.connections() == n {
				time.Sleep(time.Millisecond)
			}
			full := min(100*time.Millisecond<<i, 10*time.Second)
			if d := time.Since(start); d < full/2-time.Millisecond || d > full+2*time.Millisecond {
				t.Errorf("attempt %d after %v, want %v to %v", i, d, full/2, full)
			}
		}
		h.refuse(http.StatusUnauthorized)
		if _, err := framesOf(t, c).take(); !errors.Is(err, client.ErrUnauthorized) {
			t.Errorf("Frames ended with %v, want ErrUnauthorized", err)
		}
		_ = c.Close()
		if want := []client.State{client.StateConnected, client.StateResumed, client.StateDisconnected, client.StateClosed}; !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
	})
}

// Close waits for everything; what is buffered is still handed out, then ErrClosed.
func TestCloseEndsFramesAfterTheBuffer(t *testing.T) {
	bubble(t, func(c *hostConn, _ int) {
		c.frame(frames.HostSubscribed{})
		c.frame(frames.HostLive{})
		c.wait()
	}, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		synctest.Wait()
		_ = c.Close()
		_ = c.Close()
		r := framesOf(t, c)
		r.want("host/subscribed", "host/live")
		if _, err := r.take(); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Frames ended with %v, want ErrClosed", err)
		}
	})
}

// A consumer that stops does not let the host send for ever; a call still gets its
// answer, and afterwards every event is there.
func TestFullBufferStopsTheHostButNotCalls(t *testing.T) {
	const events = 150
	title := strings.Repeat("x", 20_000)
	var sent chan int
	script := func(c *hostConn, _ int) {
		id, _, _ := c.subscribe()
		c.open(id, "s", 0, events, "e")
		e, err := frames.NewEvent(frames.SessionRenamed{Title: title})
		if err != nil {
			c.t.Error(err)
		}
		for seq := range frames.Seq(events) {
			e.Seq = seq + 1
			enc, _ := frames.EncodeEvent(e)
			if !c.write(frames.AppendSessionEvent(nil, "s", enc.Data)) {
				return
			}
			sent <- int(seq)
		}
		r, _ := c.next()
		c.reply(r.ID, rpc.Accepted{Accepted: true})
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		sent = make(chan int, events) // of the bubble
		c := h.connect(h.options())
		watch(t, c, "s")
		synctest.Wait()
		if n := len(sent); n >= events || n < 50 {
			t.Errorf("the host sent %d of %d events to a client that does not read, want about 100", n, events)
		}
		if err := c.Respond(t.Context(), rpc.ApprovalParams{SessionID: "s", ID: "r", Outcome: frames.Rejected}); err != nil {
			t.Errorf("Respond = %v", err)
		}
		r := framesOf(t, c)
		r.want("subscribed s 0")
		for seq := range events {
			r.want("event s " + itoa(seq+1))
		}
	})
}

// A consumer that waits for a call and lets the buffer run full loses the call, not
// the events: they are all there, once, over the next connection.
func TestOverrunLosesTheCallAndNoEvent(t *testing.T) {
	const events = 100
	script := func(c *hostConn, n int) {
		id, p, ok := c.subscribe()
		if !ok {
			return
		}
		since := *p.Sessions[0].Since
		c.open(id, "s", since, events, "e")
		for seq := since + 1; seq <= events; seq++ {
			if n == 1 && seq == 2 {
				_, _ = c.next() // the call that is never answered
			}
			if !c.event("s", seq) {
				return
			}
		}
		c.wait()
	}
	bubble(t, script, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		c.SetLimits(1000, 4000)
		watch(t, c, "s")
		if _, err := c.Describe(t.Context()); err == nil {
			t.Error("Describe = nil, want a lost call")
		} else if _, ok := errors.AsType[*client.LostError](err); !ok {
			t.Errorf("Describe = %v, want a LostError", err)
		}
		r := framesOf(t, c)
		r.want("subscribed s 0")
		for seq := 1; seq <= events; seq++ {
			got, err := r.take()
			if strings.HasPrefix(got, "subscribed") {
				got, err = r.take()
			}
			if got != "event s "+itoa(seq) || err != nil {
				t.Fatalf("got %q, %v; want event %d", got, err, seq)
			}
		}
	})
}

// A connection whose subscriptions run again starts the waits anew; one that broke
// before that does not, and is not taken for a slow client's.
func TestWaitsStartAnewOnceResumed(t *testing.T) {
	for _, row := range []struct {
		resumes bool
		code    websocket.StatusCode
		min     time.Duration // of the wait after the fifth connection
		max     time.Duration
	}{
		{true, websocket.StatusGoingAway, 50 * time.Millisecond, 100 * time.Millisecond},
		{true, 4008, 0, 0},
		{false, websocket.StatusGoingAway, 800 * time.Millisecond, 1600 * time.Millisecond},
		{false, 4008, 400 * time.Millisecond, 1600 * time.Millisecond},
	} {
		var ended, began time.Time
		script := func(c *hostConn, n int) {
			if n == 6 {
				began = time.Now()
				c.frame(frames.HostLive{})
				c.wait()
				return
			}
			id, _, _ := c.subscribe()
			if row.resumes || n == 1 {
				c.open(id, "s", 0, 0, "e")
				time.Sleep(time.Second)
			}
			ended = time.Now()
			_ = c.sock.Close(row.code, "because")
		}
		bubble(t, script, func(t *testing.T, h *fakeHost) {
			c := h.connect(h.options())
			watch(t, c, "s")
			r := framesOf(t, c)
			for {
				if got, err := r.take(); got == "host/live" || err != nil {
					break
				}
			}
			if d := began.Sub(ended); d < row.min || d > row.max {
				t.Errorf("resumes %v, code %d: came back after %v, want %v to %v", row.resumes, row.code, d, row.min, row.max)
			}
		})
	}
}

// A call that the host would not take for its size is refused here; the connection stays,
// and what need not be escaped does not count.
func TestCallThatIsTooLargeIsRefused(t *testing.T) {
	answer := func(c *hostConn, _ int) {
		for {
			if _, _, err := c.sock.Read(c.ctx); err != nil {
				return
			}
			if c.sock.Write(c.ctx, websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"result":{"turnId":"t"}}`)) != nil {
				return
			}
		}
	}
	bubble(t, answer, func(t *testing.T, h *fakeHost) {
		c := h.connect(h.options())
		say := func(text string) error {
			_, err := c.Prompt(t.Context(), rpc.PromptParams{SessionID: "s", Content: []frames.ContentBlock{frames.Text(text)}})
			return err
		}
		if e, ok := errors.AsType[*rpc.Error](say(strings.Repeat("x", frames.MaxMessage))); !ok || e.Kind != rpc.KindTooLarge {
			t.Errorf("Prompt = %v, want too-large", e)
		}
		if err := say(strings.Repeat("<", frames.MaxMessage/2)); err != nil {
			t.Errorf("Prompt = %v", err)
		}
		if n := h.connections(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}
