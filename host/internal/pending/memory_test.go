package pending_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// known reports how the table says a request ended, "" if it does not know it.
func known(t *testing.T, tab *pending.Table, id frames.RequestID) frames.Outcome {
	t.Helper()
	e, ok := errors.AsType[*pending.NotPendingError](tab.Answer(t.Context(), reply(id, frames.Rejected, "late"), nil))
	if !ok {
		t.Fatalf("%s is pending", id)
	}
	if e.Settled == nil {
		return ""
	}
	return e.Settled.Outcome
}

// Settled requests are remembered while they are among the latest or young, and
// within a bound whatever their age.
func TestSettledRequestsAreRememberedWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{Keep: 3, KeepFor: time.Hour}), &recorder{}
		settle := func(from, to int) {
			for i := from; i < to; i++ {
				done := ask(t.Context(), tab, approval(frames.RequestID(fmt.Sprint(i))), rec)
				synctest.Wait()
				tab.CancelSession(t.Context(), "s1", frames.CauseAbort)
				<-done
			}
		}
		want := func(when string, from, to int, o frames.Outcome) {
			for i := from; i < to; i++ {
				if got := known(t, tab, frames.RequestID(fmt.Sprint(i))); got != o {
					t.Errorf("%s: request %d is known as %q, want %q", when, i, got, o)
				}
			}
		}
		settle(0, 10)
		want("young", 0, 10, frames.Cancelled)
		time.Sleep(time.Hour + 1)
		want("old, and nothing new", 0, 10, frames.Cancelled)
		settle(10, 11)
		want("old", 0, 8, "")
		want("among the latest", 8, 11, frames.Cancelled)
		settle(11, 100)
		want("beyond the bound", 8, 40, "")
		want("young", 40, 100, frames.Cancelled)
	})
}

// What a session restores from its log is told to late answers; what the table
// knows itself is not overwritten.
func TestRestoredSettlementsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		allowed := pending.Settlement{Outcome: frames.AllowedOnce, Cause: frames.CauseReply, By: &frames.By{ClientID: "phone"}}
		tab.Restore("s1", "old", allowed)
		if got := known(t, tab, "old"); got != frames.AllowedOnce {
			t.Errorf("restored request ended %q", got)
		}
		a := reply("old", frames.Rejected, "late")
		a.Session = "s2"
		if e, ok := errors.AsType[*pending.NotPendingError](tab.Answer(t.Context(), a, nil)); !ok || e.Settled != nil {
			t.Errorf("another session is told %v", e)
		}
		done := ask(t.Context(), tab, approval("open"), rec)
		synctest.Wait()
		tab.Restore("s1", "open", allowed)
		tab.CancelSession(t.Context(), "s1", frames.CauseAbort)
		tab.Restore("s1", "open", allowed)
		if got := <-done; got.Outcome != frames.Cancelled || known(t, tab, "open") != frames.Cancelled {
			t.Errorf("Ask = %s, known as %s; want cancelled", got.Outcome, known(t, tab, "open"))
		}
	})
}

// A late answer is told outcome, cause, client, grant and time, not the texts.
func TestLateAnswerIsToldNoTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		rec := &recorder{before: func(context.Context, pending.Settlement) error { return nil }}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		a := reply("r1", frames.Rejected, "phone")
		a.Feedback = "private"
		if err := tab.Answer(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		<-done
		e, ok := errors.AsType[*pending.NotPendingError](tab.Answer(t.Context(), a, nil))
		if !ok || e.Settled.Feedback != "" || e.Settled.By.ClientID != "phone" || e.Settled.At.IsZero() {
			t.Errorf("late answer is told %+v", e.Settled)
		}
	})
}
