package pending_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// in moves a request into another session and turn.
func in(r pending.Request, session frames.SessionID, turn frames.TurnID, ancestors ...frames.SessionID) pending.Request {
	r.Session, r.Turn, r.Ancestors = session, turn, ancestors
	return r
}

// ids lists requests by id.
func ids(rs []pending.Request) []frames.RequestID {
	var out []frames.RequestID
	for _, r := range rs {
		out = append(out, r.ID)
	}
	return out
}

// A cancelled turn settles all that it asked, and only that, recorded in the
// order asked.
func TestCancelledTurnSettlesAllItAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		var order []frames.RequestID
		rec := recorderFunc(func(_ context.Context, r pending.Request, s pending.Settlement, placed func()) error {
			order = append(order, r.ID)
			placed()
			return nil
		})
		var mine []<-chan result
		var want []frames.RequestID
		for i := range 30 {
			id := frames.RequestID(fmt.Sprint(i))
			want = append(want, id)
			mine = append(mine, ask(t.Context(), tab, approval(id), rec))
			synctest.Wait()
		}
		ask(t.Context(), tab, in(approval("other turn"), "s1", "t2"), &recorder{})
		ask(t.Context(), tab, in(approval("other session"), "s2", "t1"), &recorder{})
		synctest.Wait()
		tab.CancelTurn(t.Context(), "s1", "t1", frames.CauseAbort)
		for _, done := range mine {
			if got := <-done; got.Outcome != frames.Cancelled || got.Cause != frames.CauseAbort {
				t.Errorf("Ask = %s/%s, want cancelled/abort", got.Outcome, got.Cause)
			}
		}
		if err := tab.Recorded(t.Context(), "s1"); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(order, want) {
			t.Errorf("recorded %v, want %v", order, want)
		}
		if n := len(tab.OpenAll()); n != 2 {
			t.Errorf("%d open, want the two of the others", n)
		}
		_ = tab.Shutdown(t.Context())
	})
}

type recorderFunc func(context.Context, pending.Request, pending.Settlement, func()) error

func (f recorderFunc) Decided(ctx context.Context, r pending.Request, s pending.Settlement, placed func()) error {
	return f(ctx, r, s, placed)
}

// What a marked turn asks is settled as its mark says, without being opened,
// until the turn is forgotten.
func TestMarkedTurnIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		never := func(context.Context) error { t.Error("it was opened"); return nil }
		tab.CancelTurn(t.Context(), "s1", "t1", frames.CauseCascade)
		s, err := tab.Ask(t.Context(), approval("r1"), rec, never)
		if err != nil || s.Outcome != frames.Cancelled || s.Cause != frames.CauseCascade || len(rec.all()) != 0 {
			t.Errorf("Ask = %s/%s, %v, recorded %v; want cancelled/cascade", s.Outcome, s.Cause, err, rec.all())
		}
		ask(t.Context(), tab, in(approval("next"), "s1", "t2"), rec)
		tab.ForgetTurn("s1", "t1")
		ask(t.Context(), tab, approval("again"), rec)
		synctest.Wait()
		if n := len(tab.Open("s1")); n != 2 {
			t.Errorf("%d open, want 2: the next turn's and the forgotten one's", n)
		}
		_ = tab.Shutdown(t.Context())
	})
}

// An agent that is gone before it asks is not asked for.
func TestAskAfterWithdrawalIsNotOpened(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := pending.New(pending.Config{}).Ask(ctx, approval("r1"), &recorder{}, func(context.Context) error {
		t.Error("it was opened")
		return nil
	})
	if err != nil || s.Outcome != frames.Cancelled || s.Cause != frames.CauseAbort {
		t.Errorf("Ask = %s/%s, %v; want cancelled/abort", s.Outcome, s.Cause, err)
	}
}

// Where an answer and the agent's withdrawal race, agent and client are told the
// same.
func TestAnswerRacingWithdrawalAgrees(t *testing.T) {
	won, lost := 0, 0
	for range 500 {
		tab := pending.New(pending.Config{})
		ctx, withdraw := context.WithCancel(t.Context())
		asked := make(chan struct{})
		done := askWith(ctx, tab, approval("r1"), &recorder{}, func(context.Context) error { close(asked); return nil })
		<-asked
		var wg sync.WaitGroup
		wg.Go(withdraw)
		err := tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil)
		got := <-done
		wg.Wait()
		if (err == nil) != got.Outcome.Allows() {
			t.Fatalf("Answer = %v, Ask = %s/%s", err, got.Outcome, got.Cause)
		}
		if err == nil {
			won++
			continue
		}
		lost++
		if e, ok := errors.AsType[*pending.NotPendingError](err); !ok || e.Settled == nil || e.Settled.Cause != frames.CauseAbort {
			t.Fatalf("Answer = %v, want NotPending, abort", err)
		}
	}
	t.Logf("answer first %d times, withdrawal first %d times", won, lost)
}

// A host that drains asks nothing more; what is open stays answerable until
// shutdown, which settles the rest.
func TestDrainKeepsOpenRequestsAnswerable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		first := ask(t.Context(), tab, approval("r1"), rec)
		second := ask(t.Context(), tab, approval("r2"), rec)
		synctest.Wait()
		tab.Drain()
		s, err := tab.Ask(t.Context(), approval("r3"), rec, opened)
		if err != nil || s.Outcome != frames.Cancelled || s.Cause != frames.CauseShutdown {
			t.Errorf("Ask while draining = %s/%s, %v; want cancelled/shutdown", s.Outcome, s.Cause, err)
		}
		if err := tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil); err != nil {
			t.Errorf("Answer while draining = %v", err)
		}
		if got := <-first; got.Outcome != frames.AllowedOnce {
			t.Errorf("r1 = %s", got.Outcome)
		}
		if err := tab.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-second; got.Outcome != frames.Cancelled || got.Cause != frames.CauseShutdown {
			t.Errorf("r2 = %s/%s, want cancelled/shutdown", got.Outcome, got.Cause)
		}
		if n := len(rec.all()); n != 2 {
			t.Errorf("%d recorded when Shutdown returned, want 2", n)
		}
		if err := tab.Shutdown(t.Context()); err != nil {
			t.Errorf("second Shutdown = %v", err)
		}
	})
}

// After a shutdown nothing is asked, whether the host drained before or not.
func TestNothingIsAskedAfterShutdown(t *testing.T) {
	tab := pending.New(pending.Config{})
	if err := tab.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // an Ask that waits would be cancelled/abort
	defer cancel()
	s, err := tab.Ask(ctx, approval("r1"), &recorder{}, opened)
	if err != nil || s.Outcome != frames.Cancelled || s.Cause != frames.CauseShutdown {
		t.Errorf("Ask = %s/%s, %v; want cancelled/shutdown", s.Outcome, s.Cause, err)
	}
}

// A shutdown that takes too long cuts the recorders short.
func TestShutdownEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		rec := &recorder{before: func(ctx context.Context, _ pending.Settlement) error { <-ctx.Done(); return ctx.Err() }}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := tab.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Shutdown = %v after %v, want its context's error after 1s", err, time.Since(start))
		}
		<-done
	})
}

// A mode that turns to deny settles what its session has open, and nothing else.
func TestModeDenyKeepsToItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		ask(t.Context(), tab, approval("r1"), rec)
		ask(t.Context(), tab, in(approval("r2"), "s2", "t1", "s1"), rec)
		synctest.Wait()
		tab.ModeDeny(t.Context(), "s1")
		if open := ids(tab.OpenAll()); !slices.Equal(open, []frames.RequestID{"r2"}) {
			t.Errorf("open %v, want r2", open)
		}
		_ = tab.Shutdown(t.Context())
	})
}

// What is open is listed oldest first, by session, and counted up the tree.
func TestOpenIsListedOldestFirstAndCountedUpTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		add := func(r pending.Request) {
			ask(t.Context(), tab, r, rec)
			synctest.Wait()
		}
		add(in(approval("grandchild"), "s3", "t1", "s2", "s1"))
		add(in(approval("root"), "s1", "t1"))
		add(in(question("child"), "s2", "t1", "s1"))
		add(in(approval("grandchild 2"), "s3", "t2", "s2", "s1"))
		for _, c := range []struct {
			got, want []frames.RequestID
		}{
			{ids(tab.OpenAll()), []frames.RequestID{"grandchild", "root", "child", "grandchild 2"}},
			{ids(tab.Open("s2", "s3", "s3")), []frames.RequestID{"grandchild", "child", "grandchild 2"}},
			{ids(tab.Open("s1")), []frames.RequestID{"root"}},
			{ids(tab.Open("s4")), nil},
			{ids(tab.Open()), nil},
		} {
			if !slices.Equal(c.got, c.want) {
				t.Errorf("open %v, want %v", c.got, c.want)
			}
		}
		counts := func(want map[frames.SessionID][2]int) {
			for s, w := range want {
				if own, below := tab.Counts(s); own != w[0] || below != w[1] {
					t.Errorf("%s: %d and %d below, want %v", s, own, below, w)
				}
			}
		}
		counts(map[frames.SessionID][2]int{"s1": {1, 3}, "s2": {1, 2}, "s3": {2, 0}})
		tab.CancelSession(t.Context(), "s3", frames.CauseAbort)
		counts(map[frames.SessionID][2]int{"s1": {1, 1}, "s2": {1, 0}, "s3": {0, 0}})
		_ = tab.Shutdown(t.Context())
		counts(map[frames.SessionID][2]int{"s1": {0, 0}, "s2": {0, 0}, "s3": {0, 0}})
	})
}

// What belongs to no turn is cancelled alone, and what is asked afterwards is asked.
func TestCancelOutsideLeavesTurnsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		rec := &recorder{}
		loose, other, late := approval("loose"), approval("other"), approval("late")
		loose.Turn, late.Turn = "", ""
		other.Turn, other.Session = "", "s2"
		for _, r := range []pending.Request{approval("turn"), loose, other} {
			ask(t.Context(), tab, r, rec)
			synctest.Wait()
		}
		if n := tab.Outside("s1"); n != 1 {
			t.Errorf("%d outside of turns, want one", n)
		}
		tab.CancelOutside(t.Context(), "s1", frames.CauseCascade)
		ask(t.Context(), tab, late, rec)
		synctest.Wait()
		if got := ids(tab.OpenAll()); !slices.Equal(got, []frames.RequestID{"turn", "other", "late"}) {
			t.Errorf("open %v, want turn, other and late", got)
		}
		if all := rec.all(); len(all) != 1 || all[0].Outcome != frames.Cancelled || all[0].Cause != frames.CauseCascade {
			t.Errorf("recorded %+v, want cancelled/cascade once", all)
		}
		_ = tab.Shutdown(t.Context())
	})
}

// Recorded waits for the decisions of its session and for no other's.
func TestRecordedWaitsForTheDecisionsOfItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		rec := &recorder{before: func(context.Context, pending.Settlement) error { time.Sleep(time.Second); return nil }}
		ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		tab.CancelSession(t.Context(), "s1", frames.CauseAbort)
		start := time.Now()
		if err := tab.Recorded(t.Context(), "s2"); err != nil || time.Since(start) != 0 {
			t.Errorf("other session: %v after %v, want nil at once", err, time.Since(start))
		}
		if err := tab.Recorded(t.Context(), "s1"); err != nil || time.Since(start) != time.Second || len(rec.all()) != 1 {
			t.Errorf("own session: %v after %v, want nil after 1s", err, time.Since(start))
		}
	})
}
