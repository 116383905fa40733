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

var errDisk = errors.New("disk full")

// An unanswered approval is a rejection, exactly at its deadline, with nobody
// connected.
func TestAskFailsClosedAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		r := approval("r1")
		got := <-ask(t.Context(), tab, r, rec)
		if got.err != nil || got.Outcome != frames.Rejected || got.Cause != frames.CauseTimeout {
			t.Errorf("Ask = %v, %v; want rejected/timeout", got.Settlement, got.err)
		}
		if !got.at.Equal(r.ExpiresAt) {
			t.Errorf("settled at %v, want exactly %v", got.at, r.ExpiresAt)
		}
	})
}

// cause is one row of the contract's table of outcomes.
type cause struct {
	name     string
	happen   func(t *testing.T, tab *pending.Table, withdraw context.CancelFunc)
	approval frames.Outcome
	question frames.Outcome
	origin   frames.Cause
}

func causes() []cause {
	return []cause{
		{"answer", func(t *testing.T, tab *pending.Table, _ context.CancelFunc) {
			a := reply("r1", frames.Rejected, "phone")
			_ = tab.Answer(t.Context(), a, nil)
			q := pending.Answer{Session: "s1", ID: "r1", Kind: pending.KindQuestion, Answers: []frames.Answer{{ID: "free", Text: "so"}}}
			_ = tab.Answer(t.Context(), q, nil)
		}, frames.Rejected, frames.Answered, frames.CauseReply},
		{
			"deadline", func(*testing.T, *pending.Table, context.CancelFunc) { time.Sleep(time.Hour) },
			frames.Rejected, frames.Cancelled, frames.CauseTimeout,
		},
		{
			"withdrawn", func(_ *testing.T, _ *pending.Table, withdraw context.CancelFunc) { withdraw() },
			frames.Cancelled, frames.Cancelled, frames.CauseAbort,
		},
		{"own turn cancelled", func(t *testing.T, tab *pending.Table, _ context.CancelFunc) {
			tab.CancelTurn(t.Context(), "s1", "t1", frames.CauseAbort)
		}, frames.Cancelled, frames.Cancelled, frames.CauseAbort},
		{"ancestor cancelled", func(t *testing.T, tab *pending.Table, _ context.CancelFunc) {
			tab.CancelTurn(t.Context(), "s1", "t1", frames.CauseCascade)
		}, frames.Cancelled, frames.Cancelled, frames.CauseCascade},
		{"agent crashed", func(t *testing.T, tab *pending.Table, _ context.CancelFunc) {
			tab.CancelSession(t.Context(), "s1", frames.CauseAbort)
		}, frames.Cancelled, frames.Cancelled, frames.CauseAbort},
		{
			"shutdown", func(t *testing.T, tab *pending.Table, _ context.CancelFunc) { _ = tab.Shutdown(t.Context()) },
			frames.Cancelled, frames.Cancelled, frames.CauseShutdown,
		},
		{
			"mode-change", func(t *testing.T, tab *pending.Table, _ context.CancelFunc) { tab.ModeDeny(t.Context(), "s1") },
			frames.Rejected, frames.Cancelled, frames.CauseModeChange,
		},
	}
}

// Every cause settles an open request with its outcome and origin, and has it
// recorded once.
func TestEveryCauseHasItsOutcome(t *testing.T) {
	for _, c := range causes() {
		for _, kind := range []pending.Kind{pending.KindApproval, pending.KindQuestion} {
			t.Run(c.name+"/"+string(kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tab, rec := pending.New(pending.Config{}), &recorder{}
					r, want := approval("r1"), c.approval
					if kind == pending.KindQuestion {
						r, want = question("r1"), c.question
						r.ExpiresAt = time.Now().Add(time.Minute)
					}
					ctx, withdraw := context.WithCancel(t.Context())
					defer withdraw()
					done := ask(ctx, tab, r, rec)
					synctest.Wait()
					c.happen(t, tab, withdraw)
					got := <-done
					synctest.Wait()
					if got.err != nil || got.Outcome != want || got.Cause != c.origin {
						t.Errorf("Ask = %s/%s, %v; want %s/%s", got.Outcome, got.Cause, got.err, want, c.origin)
					}
					all := rec.all()
					if len(all) != 1 || all[0].Outcome != want || all[0].Cause != c.origin {
						t.Errorf("recorded %v, want %s/%s once", all, want, c.origin)
					}
					if n := len(tab.OpenAll()); n != 0 {
						t.Errorf("%d requests are still open", n)
					}
				})
			})
		}
	}
}

// Whatever happens in whatever state of a request, an agent is never allowed
// without an allow on disk: only an answer that was first is.
func TestNoCauseInAnyStateAllows(t *testing.T) {
	for _, c := range causes() {
		for _, state := range []string{"opening", "opening that fails", "open", "allow being stored", "allow that fails"} {
			t.Run(c.name+"/"+state, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { oneCell(t, c, state) })
			})
		}
	}
}

func oneCell(t *testing.T, c cause, state string) {
	tab := pending.New(pending.Config{})
	slow := time.Second
	rec := &recorder{before: func(_ context.Context, s pending.Settlement) error {
		time.Sleep(slow)
		if s.Outcome.Allows() && state == "allow that fails" {
			return errDisk
		}
		return nil
	}}
	opened := func(context.Context) error {
		switch state {
		case "opening":
			time.Sleep(slow)
		case "opening that fails":
			time.Sleep(slow)
			return errDisk
		}
		return nil
	}
	ctx, withdraw := context.WithCancel(t.Context())
	defer withdraw()
	var wg sync.WaitGroup
	done := askWith(ctx, tab, approval("r1"), rec, opened)
	synctest.Wait()
	answering := state == "allow being stored" || state == "allow that fails"
	if answering {
		wg.Go(func() { _ = tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil) })
		synctest.Wait()
	}
	c.happen(t, tab, withdraw)
	got := <-done
	synctest.Wait()
	time.Sleep(time.Minute)
	wg.Wait()
	if stored := slices.ContainsFunc(rec.all(), func(s pending.Settlement) bool { return s.Outcome.Allows() }); got.Outcome.Allows() != stored {
		t.Errorf("Ask = %s, an allow on disk: %v", got.Outcome, stored)
	}
	if got.Outcome.Allows() && (got.err != nil || state != "allow being stored") {
		t.Errorf("Ask = %s, %v in state %q", got.Outcome, got.err, state)
	}
	if n := len(tab.OpenAll()); n != 0 {
		t.Errorf("%d requests are still open", n)
	}
}

// A request whose opening fails ends unavailable, with the error, and leaves no
// record.
func TestFailedOpeningIsUnavailableWithoutFrames(t *testing.T) {
	tab, rec := pending.New(pending.Config{}), &recorder{}
	s, err := tab.Ask(t.Context(), approval("r1"), rec, func(context.Context) error { return errDisk })
	if s.Outcome != frames.Unavailable || s.Cause != frames.CauseAbort || !errors.Is(err, errDisk) {
		t.Errorf("Ask = %s/%s, %v; want unavailable/abort, %v", s.Outcome, s.Cause, err, errDisk)
	}
	if err := tab.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := rec.all(); len(all) != 0 {
		t.Errorf("recorded %v, want nothing", all)
	}
}

// A request that somebody was shown while it was opened is resolved though its
// opening fails.
func TestFailedOpeningOfAListedRequestIsResolved(t *testing.T) {
	tab, rec := pending.New(pending.Config{}), &recorder{}
	_, _ = tab.Ask(t.Context(), approval("r1"), rec, func(context.Context) error {
		if n := len(tab.Open("s1")); n != 1 {
			t.Errorf("%d open while it is opened, want 1", n)
		}
		return errDisk
	})
	if err := tab.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := rec.all(); len(all) != 1 || all[0].Outcome != frames.Unavailable {
		t.Errorf("recorded %v, want unavailable once", all)
	}
}

// An allow given while the request is being opened does not stand if that
// fails: the client is told, and so is everybody who knows of the request.
func TestAllowWhileOpeningFailsIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		done := askWith(t.Context(), tab, approval("r1"), rec, func(context.Context) error {
			time.Sleep(time.Second)
			return errDisk
		})
		synctest.Wait()
		err := tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil)
		if _, ok := errors.AsType[*pending.StorageError](err); !ok || !errors.Is(err, errDisk) {
			t.Errorf("Answer = %v, want a StorageError", err)
		}
		if got := <-done; got.Outcome != frames.Unavailable || got.err == nil {
			t.Errorf("Ask = %s, %v; want unavailable and the error", got.Outcome, got.err)
		}
		if all := rec.all(); len(all) != 1 || all[0].Outcome != frames.Unavailable {
			t.Errorf("recorded %v, want unavailable once", all)
		}
	})
}

// A decision made while the request is being opened is recorded after that, so
// that asked precedes decided.
func TestDecisionWaitsForTheOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		tab := pending.New(pending.Config{})
		rec := &recorder{before: func(context.Context, pending.Settlement) error {
			order = append(order, "decided")
			return nil
		}}
		done := askWith(t.Context(), tab, approval("r1"), rec, func(context.Context) error {
			time.Sleep(time.Second)
			order = append(order, "asked")
			return nil
		})
		synctest.Wait()
		if err := tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil); err != nil {
			t.Errorf("Answer while opening = %v", err)
		}
		if got := <-done; got.Outcome != frames.AllowedOnce {
			t.Errorf("Ask = %s", got.Outcome)
		}
		if want := []string{"asked", "decided"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

// A withdrawal does not cut the opening or the recording short.
func TestWithdrawalLeavesNothingHalfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		live := func(ctx context.Context, _ pending.Settlement) error { return ctx.Err() }
		rec := &recorder{before: live}
		ctx, withdraw := context.WithCancel(t.Context())
		got, err := tab.Ask(ctx, approval("r1"), rec, func(ctx context.Context) error {
			withdraw()
			synctest.Wait()
			return ctx.Err()
		})
		if err != nil || got.Outcome != frames.Cancelled || got.Cause != frames.CauseAbort {
			t.Errorf("Ask = %s/%s, %v; want cancelled/abort", got.Outcome, got.Cause, err)
		}
		synctest.Wait()
		if all := rec.all(); len(all) != 1 {
			t.Errorf("recorded %v, want once", all)
		}
	})
}

// A recorder that never comes back is given up after RecordTimeout, and the call
// is not allowed.
func TestRecorderIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{RecordTimeout: 3 * time.Second})
		rec := &recorder{before: func(ctx context.Context, s pending.Settlement) error {
			if s.Outcome.Allows() {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		start := time.Now()
		err := tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil)
		if _, ok := errors.AsType[*pending.StorageError](err); !ok || time.Since(start) != 3*time.Second {
			t.Errorf("Answer = %v after %v, want a StorageError after 3s", err, time.Since(start))
		}
		if got := <-done; got.Outcome != frames.Unavailable {
			t.Errorf("Ask = %s, want unavailable", got.Outcome)
		}
	})
}

// A request that could never be judged is not asked.
func TestMalformedRequestsAreNotAsked(t *testing.T) {
	for name, breakIt := range map[string]func(*pending.Request){
		"no id":           func(r *pending.Request) { r.ID = "" },
		"no session":      func(r *pending.Request) { r.Session = "" },
		"no kind":         func(r *pending.Request) { r.Kind = "" },
		"no approval":     func(r *pending.Request) { r.Approval = nil },
		"no rejection":    func(r *pending.Request) { r.Approval.Options = []frames.Outcome{frames.AllowedOnce} },
		"no hash":         func(r *pending.Request) { r.Approval.Hash = "" },
		"no canonical":    func(r *pending.Request) { r.Approval.Canonical = nil },
		"no deadline":     func(r *pending.Request) { r.ExpiresAt = time.Time{} },
		"wrong kind":      func(r *pending.Request) { r.Kind = pending.KindQuestion },
		"also a question": func(r *pending.Request) { r.Questions = question("q").Questions },
	} {
		t.Run(name, func(t *testing.T) {
			r := approval("r1")
			breakIt(&r)
			s, err := pending.New(pending.Config{}).Ask(t.Context(), r, &recorder{}, func(context.Context) error {
				t.Error("it was opened")
				return nil
			})
			if _, ok := errors.AsType[*pending.InvalidRequestError](err); !ok || s.Outcome.Allows() {
				t.Errorf("Ask = %s, %v; want an InvalidRequestError", s.Outcome, err)
			}
		})
	}
}

// An id is used once, also after it was settled.
func TestIDsAreUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		again := func(state string) {
			s, err := tab.Ask(t.Context(), approval("r1"), rec, opened)
			if _, ok := errors.AsType[*pending.InvalidRequestError](err); !ok || s.Outcome != frames.Unavailable {
				t.Errorf("%s: Ask = %s, %v; want unavailable, InvalidRequestError", state, s.Outcome, err)
			}
		}
		again("open")
		tab.CancelSession(t.Context(), "s1", frames.CauseAbort)
		<-done
		again("settled")
	})
}

// Beyond the bounds nothing is asked, and the agent is told why.
func TestOpenRequestsAreBounded(t *testing.T) {
	for name, cfg := range map[string]pending.Config{"all": {MaxOpen: 3}, "one session": {MaxOpenEach: 3}} {
		synctest.Test(t, func(t *testing.T) {
			tab, rec := pending.New(cfg), &recorder{}
			for i := range 3 {
				ask(t.Context(), tab, approval(frames.RequestID(fmt.Sprint(i))), rec)
			}
			synctest.Wait()
			s, err := tab.Ask(t.Context(), approval("one too many"), rec, opened)
			if !errors.Is(err, pending.ErrFull) || s.Outcome != frames.Unavailable {
				t.Errorf("%s: Ask = %s, %v; want unavailable, ErrFull", name, s.Outcome, err)
			}
			other := ask(t.Context(), tab, in(approval("other"), "s2", "t1"), rec)
			synctest.Wait()
			if full := len(other) == 1; full != (cfg.MaxOpen == 3) {
				t.Errorf("%s: another session's request was refused: %v", name, full)
			}
			tab.CancelSession(t.Context(), "s1", frames.CauseAbort)
			ask(t.Context(), tab, approval("room again"), rec)
			synctest.Wait()
			if n := len(tab.Open("s1")); n != 1 {
				t.Errorf("%s: %d open after the others ended and one was asked, want 1", name, n)
			}
			_ = tab.Shutdown(t.Context())
		})
	}
}
