package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/rpc"
)

// holdFirst makes the first call wait for hold.
func holdFirst(hold chan struct{}) func(context.Context, string, any, func()) error {
	var once sync.Once
	return func(context.Context, string, any, func()) error {
		once.Do(func() { <-hold })
		return nil
	}
}

// slow makes the calls of a method take a time.
func slow(method string, d time.Duration) func(context.Context, string, any, func()) error {
	return func(ctx context.Context, m string, _ any, _ func()) error {
		if m != method {
			return nil
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A response precedes every frame that its method caused, for each method that
// changes something, however late the method replies.
func TestResponsePrecedesTheFramesOfItsMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		api := &fakeAPI{}
		api.on = func(_ context.Context, method string, _ any, reply func()) error {
			time.Sleep(time.Second) // virtual: the change is written
			reply()
			return p.Send([]byte("frame of " + method))
		}
		stop := serveOn(t, p, api, rpc.Options{})
		changes := 0
		for _, m := range rpc.Methods() {
			if !m.Changes {
				continue
			}
			p.send(call(m.Name, m.Name, goodParams[m.Name]))
			out := p.wait(t, 2*changes+2)[2*changes:]
			changes++
			if a := parse(t, out[0]); string(a.ID) != `"`+m.Name+`"` || out[1] != "frame of "+m.Name {
				t.Errorf("%s: sent %v, want the response, then the frame", m.Name, out)
			}
		}
		if changes != 14 {
			t.Errorf("%d methods change something, want 14", changes)
		}
		_ = stop()
	})
}

// Calls of one session start in the order received, one after the other.
func TestCallsOfOneSessionStartInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		api := &fakeAPI{}
		api.on = func(context.Context, string, any, func()) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}
		p, stop := serve(t, api, rpc.Options{})
		want := []string{"session.prompt", "session.cancel", "approval.respond", "session.configure", "question.respond", "session.close", "session.delete"}
		for i, m := range want {
			p.send(call(i, m, goodParams[m]))
		}
		p.wait(t, len(want))
		if got := api.ran(); fmt.Sprint(got) != fmt.Sprint(want) || most != 1 {
			t.Errorf("ran %v, at most %d at once; want %v, 1 at once", got, most, want)
		}
		_ = stop()
	})
}

// A slow call holds up neither other sessions, nor the subscriptions, nor the
// calls after its own Started.
func TestSlowCallHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &placingAPI{}
		api.on = slow("session.close", time.Minute)
		p, stop := serve(t, api, rpc.Options{})
		api.stream = p
		start := time.Now()
		p.send(call("slow", "session.close", `{"sessionId":"a"}`))
		for i, m := range []string{"session.prompt", "host.describe", "mux.subscribe", "sessions.list", "session.create"} {
			if a := p.ask(t, call(i, m, goodParams[m])); a.Error != nil {
				t.Errorf("%s: %+v", m, a.Error)
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("calls beside a slow one took %v, want none of its time", d)
		}
		p.wait(t, 6)
		_ = stop()
	})
}

// A call that said Started lets the next call of its session start.
func TestStartedLetsTheNextCallStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{}
		api.on = func(ctx context.Context, m string, _ any, _ func()) error {
			if m == "session.close" {
				rpc.Started(ctx)
				rpc.Started(ctx) // again: nothing
				time.Sleep(time.Minute)
			}
			return nil
		}
		p, stop := serve(t, api, rpc.Options{})
		start := time.Now()
		p.send(call(1, "session.close", goodParams["session.close"]),
			call(2, "session.cancel", goodParams["session.cancel"]),
			call(3, "session.cancel", goodParams["session.cancel"]))
		out := p.wait(t, 2)
		if a, b := parse(t, out[0]), parse(t, out[1]); string(a.ID) != "2" || string(b.ID) != "3" || time.Since(start) != 0 {
			t.Errorf("answered %s, %s after %v, want 2, 3 at once", a.ID, b.ID, time.Since(start))
		}
		p.wait(t, 3)
		rpc.Started(t.Context()) // outside a call: nothing
		_ = stop()
	})
}

// A query starts in its session's order but holds nothing up.
func TestQueryDoesNotHoldItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{on: slow("session.history", time.Minute)}
		p, stop := serve(t, api, rpc.Options{})
		p.send(call(1, "session.history", goodParams["session.history"]))
		if a := p.ask(t, call(2, "session.prompt", goodParams["session.prompt"])); string(a.ID) != "2" {
			t.Errorf("answered %s first, want the prompt", a.ID)
		}
		p.wait(t, 2)
		_ = stop()
	})
}

// At MaxInFlight the connection is not read; a call that returns makes room.
func TestMaxInFlightStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		api := &fakeAPI{on: func(context.Context, string, any, func()) error { <-hold; return nil }}
		p, stop := serve(t, api, rpc.Options{MaxInFlight: 3})
		for i := range 4 { // the fourth is read, and waits
			p.send(call(i, "session.close", fmt.Sprintf(`{"sessionId":"s%d"}`, i)))
		}
		synctest.Wait()
		select {
		case p.in <- []byte(call(9, "host.describe", "")):
			t.Errorf("a fifth message was read, with 3 in flight allowed")
		default:
		}
		if n := len(api.ran()); n != 3 {
			t.Errorf("%d calls run, want 3", n)
		}
		close(hold)
		p.wait(t, 4)
		if a := p.ask(t, call(9, "host.describe", "")); a.Error != nil {
			t.Errorf("after room was made: %+v", a.Error)
		}
		_ = stop()
	})
}

// Large results are made one at a time and only when the stream has room; small
// calls go on meanwhile.
func TestBulkQueriesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := make(chan struct{})
		p := newPipe()
		p.room = func(ctx context.Context) error {
			select {
			case <-room:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		api := &fakeAPI{}
		stop := serveOn(t, p, api, rpc.Options{})
		for i := range 3 {
			p.send(call(i, "session.history", fmt.Sprintf(`{"sessionId":"s%d"}`, i)))
		}
		p.ask(t, call("small", "session.prompt", goodParams["session.prompt"]))
		synctest.Wait()
		for want := 1; want <= 3; want++ {
			room <- struct{}{}
			synctest.Wait()
			if n := len(api.ran()) - 1; n != want {
				t.Errorf("%d large queries ran after room for %d", n, want)
			}
		}
		_ = stop()
	})
}

// A panic of one call is answered with a log id and nothing else, is reported, and
// leaves the connection and the other calls alone.
func TestPanicEndsOnlyItsCall(t *testing.T) {
	for _, method := range []string{"session.close", "session.get", "mux.subscribe"} {
		var log strings.Builder
		var told []string
		api := &placingAPI{}
		api.on = func(_ context.Context, m string, _ any, _ func()) error {
			if m == method {
				panic("secret /home/me")
			}
			return nil
		}
		p := newPipe()
		api.stream = p
		stop := serveOn(t, p, api, rpc.Options{
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			OnPanic: func(m string, v any, stack []byte) { told = append(told, fmt.Sprint(m, v, len(stack) > 0)) },
		})
		a := p.ask(t, call(1, method, goodParams[method]))
		if a.code() != rpc.CodeInternal || strings.Contains(a.Error.Message, "secret") {
			t.Errorf("%s: answered %+v, want -32603 without the text", method, a.Error)
		}
		if b := p.ask(t, call(1, "session.prompt", goodParams["session.prompt"])); b.Error != nil {
			t.Errorf("%s: the next call got %+v", method, b.Error)
		}
		if err := stop(); err != nil {
			t.Errorf("%s: Serve = %v", method, err)
		}
		id := strings.TrimSuffix(strings.SplitAfter(a.Error.Message, "log id ")[1], "); the host's log says more")
		if !strings.Contains(log.String(), id) || !strings.Contains(log.String(), "secret") || len(told) != 1 {
			t.Errorf("%s: log id %q, told %v, log %s; want the panic under its id, told once", method, id, told, log.String())
		}
	}
}

// When the connection ends, a change that runs is finished, a query is cancelled,
// and what had not started does not run.
func TestEndOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		errs := map[string]error{}
		api := &fakeAPI{}
		api.on = func(ctx context.Context, m string, p any, r func()) error {
			err := slow(m, 30*time.Second)(ctx, m, p, r)
			mu.Lock()
			errs[m] = err
			mu.Unlock()
			return err
		}
		p, stop := serve(t, api, rpc.Options{})
		p.send(call(1, "session.close", goodParams["session.close"]),
			call(2, "session.delete", goodParams["session.delete"]),
			call(3, "grants.list", ""))
		synctest.Wait()
		start := time.Now()
		if err := stop(); err != nil {
			t.Errorf("Serve = %v, want nil at the end of the stream", err)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("Serve waited %v, want the 30 s of the change", d)
		}
		closeErr, deleteErr := errs["session.close"], errs["session.delete"]
		if _, ran := errs["session.delete"]; ran || closeErr != nil || !errors.Is(errs["grants.list"], context.Canceled) {
			t.Errorf("close %v, delete ran %v (%v), query %v; want nil, not run, cancelled", closeErr, ran, deleteErr, errs["grants.list"])
		}
		for _, m := range p.sent() {
			if strings.Contains(m, "error") {
				t.Errorf("a cancelled call was answered: %s", m)
			}
		}
	})
}

// A change that takes longer than a minute is cancelled.
func TestChangeTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{on: slow("session.close", time.Hour)}
		p, stop := serve(t, api, rpc.Options{})
		start := time.Now()
		a := p.ask(t, call(1, "session.close", goodParams["session.close"]))
		if a.code() != rpc.CodeInternal || time.Since(start) != rpc.ChangeTimeout {
			t.Errorf("answered %+v after %v, want -32603 after %v", a.Error, time.Since(start), rpc.ChangeTimeout)
		}
		_ = stop()
	})
}

// Errors spread over more than the window do not close the connection.
func TestErrorBudgetIsAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, &fakeAPI{}, rpc.Options{})
		for range 500 {
			p.ask(t, "")
			time.Sleep(102 * time.Millisecond)
		}
		if code := p.closeCode(); code != 0 {
			t.Errorf("closed with %d at 98 errors in 10 s", code)
		}
		_ = stop()
	})
}

// Outcomes of the domain are no faults of the client and close nothing.
func TestOutcomesDoNotSpendTheBudget(t *testing.T) {
	api := &fakeAPI{on: func(context.Context, string, any, func()) error {
		return rpc.Errorf(rpc.KindApprovalNotPending, "settled")
	}}
	p, _ := serve(t, api, rpc.Options{})
	for i := range 300 {
		if a := p.ask(t, call(i, "approval.respond", goodParams["approval.respond"])); a.kind() != rpc.KindApprovalNotPending {
			t.Fatalf("answer %d: %+v", i, a.Error)
		}
	}
}

// Started does not wait for the calls that it lets start, and large queries run one
// at a time however much room there is.
func TestStartedDoesNotWaitAndBulkRunsAlone(t *testing.T) {
	for method, want := range map[string]time.Duration{"session.cancel": 2 * time.Second, "session.history": 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			api := &fakeAPI{}
			api.on = func(ctx context.Context, _ string, _ any, _ func()) error {
				time.Sleep(time.Second / 2) // the others are queued meanwhile
				rpc.Started(ctx)
				time.Sleep(time.Second / 2)
				return nil
			}
			p, stop := serve(t, api, rpc.Options{})
			start := time.Now()
			for i := range 3 {
				p.send(call(i, method, goodParams[method]))
			}
			p.wait(t, 3)
			if d := time.Since(start); d != want {
				t.Errorf("three calls of %s took %v, want %v", method, d, want)
			}
			_ = stop()
		})
	}
}
