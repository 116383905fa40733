package pending_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// Of fifty clients that answer at once one wins, and the others are told that
// one's outcome and name; the agent hears one answer.
func TestOneOfFiftyAnswersWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		errs := make([]error, 50)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				o := []frames.Outcome{frames.AllowedOnce, frames.Rejected}[i%2]
				errs[i] = tab.Answer(t.Context(), reply("r1", o, frames.ClientID(fmt.Sprint(i))), nil)
			})
		}
		wg.Wait()
		got := <-done
		winners := 0
		for i, err := range errs {
			if err == nil {
				winners++
				if got.By == nil || got.By.ClientID != frames.ClientID(fmt.Sprint(i)) {
					t.Errorf("client %d was accepted, the agent was told of %v", i, got.By)
				}
				continue
			}
			e, ok := errors.AsType[*pending.NotPendingError](err)
			if !ok || e.Settled == nil || e.Settled.Outcome != got.Outcome || e.Settled.Cause != frames.CauseReply || *e.Settled.By != *got.By {
				t.Errorf("client %d: %v, want NotPending with %v", i, err, got.Settlement)
			}
		}
		if winners != 1 || len(rec.all()) != 1 {
			t.Errorf("%d winners, %d recorded; want one", winners, len(rec.all()))
		}
	})
}

// An allow takes effect, is acknowledged and is published only once it is on
// disk; who comes late meanwhile waits for that.
func TestAllowWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		stored := make(chan struct{})
		rec := &recorder{before: func(context.Context, pending.Settlement) error { <-stored; return nil }}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		var wg sync.WaitGroup
		var won, lost error
		placed, returned := false, false
		wg.Go(func() {
			won = tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), func() { placed = true })
		})
		synctest.Wait()
		wg.Go(func() { lost = tab.Answer(t.Context(), reply("r1", frames.Rejected, "desk"), nil); returned = true })
		synctest.Wait()
		if len(done) != 0 || placed || returned {
			t.Errorf("before the disk: agent told %v, placed %v, late answer returned %v", len(done), placed, returned)
		}
		if n := len(tab.Open("s1")); n != 0 {
			t.Errorf("%d open, want none: somebody has won it", n)
		}
		wg.Go(func() {
			err := tab.Answer(t.Context(), pending.Answer{Session: "s1", ID: "r1", Kind: pending.KindApproval, Outcome: "nonsense"}, nil)
			if _, ok := errors.AsType[*pending.NotPendingError](err); !ok {
				t.Errorf("a late answer that does not fit = %v, want NotPending", err)
			}
		})
		synctest.Wait()
		close(stored)
		wg.Wait()
		got := <-done
		e, ok := errors.AsType[*pending.NotPendingError](lost)
		if won != nil || !placed || got.Outcome != frames.AllowedOnce {
			t.Errorf("Answer = %v, placed %v, Ask = %s", won, placed, got.Outcome)
		}
		if !ok || e.Settled.Outcome != frames.AllowedOnce || e.Settled.By.ClientID != "phone" {
			t.Errorf("late answer = %v, want allowed-once by phone", lost)
		}
	})
}

// A late answer that waits goes when its client does.
func TestLateAnswerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		rec := &recorder{before: func(ctx context.Context, _ pending.Settlement) error { time.Sleep(10 * time.Second); return nil }}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		var wg sync.WaitGroup
		wg.Go(func() { _ = tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tab.Answer(ctx, reply("r1", frames.Rejected, "desk"), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Answer = %v, want its context's error", err)
		}
		wg.Wait()
		<-done
	})
}

// The winner's answer stands though its client goes away while it is stored.
func TestAnswerSurvivesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		rec := &recorder{before: func(ctx context.Context, _ pending.Settlement) error { time.Sleep(time.Second); return ctx.Err() }}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := tab.Answer(ctx, reply("r1", frames.AllowedOnce, "phone"), nil); err != nil {
			t.Errorf("Answer = %v", err)
		}
		if got := <-done; got.Outcome != frames.AllowedOnce {
			t.Errorf("Ask = %s, want allowed-once", got.Outcome)
		}
	})
}

// An allow that cannot be stored is none: the agent gets unavailable, the caller
// a StorageError and no acknowledgement, everybody else unavailable/abort.
func TestAllowThatCannotBeStoredIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{before: func(context.Context, pending.Settlement) error { return errDisk }}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		err := tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), func() { t.Error("it was acknowledged") })
		if e, ok := errors.AsType[*pending.StorageError](err); !ok || e.ID != "r1" || !errors.Is(err, errDisk) {
			t.Errorf("Answer = %v, want a StorageError", err)
		}
		got := <-done
		if got.Outcome != frames.Unavailable || got.Cause != frames.CauseAbort || got.err == nil {
			t.Errorf("Ask = %s/%s, %v; want unavailable/abort and the error", got.Outcome, got.Cause, got.err)
		}
		if all := rec.all(); len(all) != 1 || all[0].Outcome != frames.Unavailable {
			t.Errorf("published %v, want unavailable once", all)
		}
		e, ok := errors.AsType[*pending.NotPendingError](tab.Answer(t.Context(), reply("r1", frames.Rejected, "desk"), nil))
		if !ok || e.Settled.Outcome != frames.Unavailable {
			t.Errorf("late answer = %v, want unavailable", e)
		}
	})
}

// A rejection reaches the agent at once, before and even without the disk. The
// client is not told that all is well then, but that it stands and is not stored.
func TestRejectionTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{})
		rec := &recorder{before: func(context.Context, pending.Settlement) error { time.Sleep(time.Second); return errDisk }}
		start := time.Now()
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		a := reply("r1", frames.Rejected, "phone")
		a.Feedback = "use the other one"
		err := tab.Answer(t.Context(), a, func() { t.Error("it was acknowledged") })
		if e, ok := errors.AsType[*pending.StorageError](err); !ok || !e.Stands || !errors.Is(err, errDisk) {
			t.Errorf("Answer = %v, want a StorageError that says that it stands", err)
		}
		got := <-done
		if got.err != nil || got.Outcome != frames.Rejected || got.Feedback != a.Feedback || !got.at.Equal(start) {
			t.Errorf("Ask = %v, %v after %v; want rejected at once", got.Settlement, got.err, got.at.Sub(start))
		}
	})
}

// The acknowledgement is placed once, before the decision is published.
func TestResponseIsPlacedOnceBeforeTheFrames(t *testing.T) {
	for _, o := range []frames.Outcome{frames.AllowedOnce, frames.Rejected} {
		synctest.Test(t, func(t *testing.T) {
			tab, rec := pending.New(pending.Config{}), &recorder{}
			done := ask(t.Context(), tab, approval("r1"), rec)
			synctest.Wait()
			n := 0
			err := tab.Answer(t.Context(), reply("r1", o, "phone"), func() {
				n++
				if all := rec.all(); len(all) != 0 {
					t.Errorf("%s: published %v before the response", o, all)
				}
			})
			if err != nil || n != 1 {
				t.Errorf("%s: Answer = %v, placed %d times, want once", o, err, n)
			}
			<-done
		})
	}
}

// An answer at the very deadline is too late, even if the timer has not fired.
func TestAnswerAtTheDeadlineIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ahead := time.Duration(0)
		tab := pending.New(pending.Config{Now: func() time.Time { return time.Now().Add(ahead) }})
		rec := &recorder{}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		ahead = 5 * time.Minute
		err := tab.Answer(t.Context(), reply("r1", frames.AllowedOnce, "phone"), nil)
		e, ok := errors.AsType[*pending.NotPendingError](err)
		if !ok || e.Settled == nil || e.Settled.Cause != frames.CauseTimeout {
			t.Errorf("Answer = %v, want NotPending, timeout", err)
		}
		if got := <-done; got.Outcome != frames.Rejected || !got.at.Equal(start) {
			t.Errorf("Ask = %s, want rejected", got.Outcome)
		}
	})
}

// An id that never existed, one of another session and one of another kind give
// the same error and settle nothing.
func TestUnknownAndForeignIDsLookTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		done := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		check := func(name string, change func(*pending.Answer)) {
			a := reply("r1", frames.AllowedOnce, "phone")
			change(&a)
			e, ok := errors.AsType[*pending.NotPendingError](tab.Answer(t.Context(), a, nil))
			if !ok || e.Settled != nil || e.ID != a.ID || e.Kind != a.Kind {
				t.Errorf("%s: Answer = %v, want NotPending without a settlement", name, e)
			}
		}
		never := func(a *pending.Answer) { a.ID = "never" }
		other := func(a *pending.Answer) { a.Session = "s2" }
		kind := func(a *pending.Answer) { a.Kind = pending.KindQuestion; a.Outcome = ""; a.Cancel = true }
		check("never existed", never)
		check("other session", other)
		check("other kind", kind)
		if n := len(tab.Open("s1")); n != 1 {
			t.Fatalf("%d open, want the one", n)
		}
		tab.CancelSession(t.Context(), "s1", frames.CauseAbort)
		<-done
		check("other session, settled", other)
		check("other kind, settled", kind)
	})
}

// An answer names one id; the other request of the session stays pending.
func TestAnswerSettlesTheIDItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		first := ask(t.Context(), tab, approval("r1"), rec)
		synctest.Wait()
		second := ask(t.Context(), tab, approval("r2"), rec)
		synctest.Wait()
		if err := tab.Answer(t.Context(), reply("r2", frames.AllowedOnce, "phone"), nil); err != nil {
			t.Fatal(err)
		}
		if got := <-second; got.Outcome != frames.AllowedOnce {
			t.Errorf("r2 = %s", got.Outcome)
		}
		if open := tab.Open("s1"); len(first) != 0 || len(open) != 1 || open[0].ID != "r1" {
			t.Errorf("open %v, want r1", open)
		}
		_ = tab.Shutdown(t.Context())
	})
}

// An answer that does not fit is refused, says why, and leaves the request
// pending for the next one.
func TestRefusedAnswersLeaveTheRequestPending(t *testing.T) {
	hash := input().Hash
	long := strings.Repeat("x", pending.MaxAnswerText+1)
	cut := func(r *pending.Request) { r.Approval.Truncated = true }
	once := func(r *pending.Request) {
		r.Approval.Options = []frames.Outcome{frames.AllowedOnce, frames.Rejected}
	}
	for _, c := range []struct {
		name  string
		ask   func(*pending.Request)
		a     pending.Answer
		field string // of the InvalidAnswerError; "hash" for a HashMismatchError, "" for accepted
	}{
		{"no outcome", nil, pending.Answer{}, "outcome"},
		{"unknown outcome", nil, pending.Answer{Outcome: "ALLOWED-ONCE"}, "outcome"},
		{"an outcome that is the host's", nil, pending.Answer{Outcome: frames.Cancelled}, "outcome"},
		{"not offered", once, pending.Answer{Outcome: frames.AllowedAlways}, "outcome"},
		{"answers", nil, pending.Answer{Outcome: frames.Rejected, Answers: []frames.Answer{}}, "outcome"},
		{"cancel", nil, pending.Answer{Outcome: frames.Rejected, Cancel: true}, "outcome"},
		{"long feedback", nil, pending.Answer{Outcome: frames.Rejected, Feedback: long}, "feedback"},
		{"wrong hash", nil, pending.Answer{Outcome: frames.AllowedOnce, InputHash: strings.ToUpper(hash)}, "hash"},
		{"wrong hash, rejected", nil, pending.Answer{Outcome: frames.Rejected, InputHash: "0"}, "hash"},
		{"right hash", nil, pending.Answer{Outcome: frames.AllowedOnce, InputHash: hash}, ""},
		{"truncated, always", cut, pending.Answer{Outcome: frames.AllowedAlways, InputHash: hash}, "outcome"},
		{"truncated, once without hash", cut, pending.Answer{Outcome: frames.AllowedOnce}, "inputHash"},
		{"truncated, once with hash", cut, pending.Answer{Outcome: frames.AllowedOnce, InputHash: hash}, ""},
		{"truncated, rejected", cut, pending.Answer{Outcome: frames.Rejected}, ""},
		{"grant with once", nil, pending.Answer{Outcome: frames.AllowedOnce, Grant: &pending.GrantRequest{}}, "grant"},
		{"scope", nil, pending.Answer{Outcome: frames.AllowedAlways, Grant: &pending.GrantRequest{Scope: "host"}}, "grant.scope"},
		{"too long", nil, pending.Answer{Outcome: frames.AllowedAlways, Grant: &pending.GrantRequest{For: pending.MaxGrantFor + 1}}, "grant.forMs"},
		{"negative", nil, pending.Answer{Outcome: frames.AllowedAlways, Grant: &pending.GrantRequest{For: -1}}, "grant.forMs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := approval("r1")
			if c.ask != nil {
				c.ask(&r)
			}
			c.a.Kind = pending.KindApproval
			refused(t, r, c.a, c.field)
		})
	}
}

// refused has a answer r and looks for the error; r stays pending.
func refused(t *testing.T, r pending.Request, a pending.Answer, field string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{Grants: &disk{}}), &recorder{}
		done := ask(t.Context(), tab, r, rec)
		synctest.Wait()
		a.Session, a.ID = r.Session, r.ID
		err := tab.Answer(t.Context(), a, func() {
			if field != "" {
				t.Error("it was acknowledged")
			}
		})
		if field == "" {
			if err != nil {
				t.Errorf("Answer = %v, want nil", err)
			}
			<-done
			return
		}
		_, hash := errors.AsType[*pending.HashMismatchError](err)
		inv, bad := errors.AsType[*pending.InvalidAnswerError](err)
		if field == "hash" && !hash || field != "hash" && (!bad || inv.Field != field || inv.Want == "") {
			t.Errorf("Answer = %v, want it refused for %s", err, field)
		}
		if len(done) != 0 || len(tab.Open(r.Session)) != 1 || len(rec.all()) != 0 {
			t.Errorf("the request is not pending any more")
		}
		_ = tab.Shutdown(t.Context())
	})
}

// A question takes labels that are offered and texts where they are allowed,
// and nothing else.
func TestAnswersMustFitTheirQuestions(t *testing.T) {
	long := strings.Repeat("x", pending.MaxAnswerText+1)
	for _, c := range []struct {
		name  string
		a     pending.Answer
		field string
	}{
		{"none", pending.Answer{}, "answers"},
		{"an outcome", pending.Answer{Outcome: frames.Answered, Answers: []frames.Answer{{ID: "free", Text: "x"}}}, "outcome"},
		{"cancel and answers", pending.Answer{Cancel: true, Answers: []frames.Answer{{ID: "free", Text: "x"}}}, "cancel"},
		{"cancel", pending.Answer{Cancel: true}, ""},
		{"too many", pending.Answer{Answers: make([]frames.Answer, 4)}, "answers"},
		{"unknown id", pending.Answer{Answers: []frames.Answer{{ID: "size", Text: "x"}}}, "answers[0].id"},
		{"twice", pending.Answer{Answers: []frames.Answer{{ID: "free", Text: "x"}, {ID: "free", Text: "y"}}}, "answers[1].id"},
		{"not offered", pending.Answer{Answers: []frames.Answer{{ID: "color", Labels: []string{"green"}}}}, "answers[0].labels"},
		{"two of one", pending.Answer{Answers: []frames.Answer{{ID: "color", Labels: []string{"red", "blue"}}}}, "answers[0].labels"},
		{"same twice", pending.Answer{Answers: []frames.Answer{{ID: "many", Labels: []string{"a", "a"}}}}, "answers[0].labels"},
		{"text not allowed", pending.Answer{Answers: []frames.Answer{{ID: "color", Text: "green"}}}, "answers[0].text"},
		{"empty", pending.Answer{Answers: []frames.Answer{{ID: "color"}}}, "answers[0]"},
		{"long", pending.Answer{Answers: []frames.Answer{{ID: "free", Text: long}}}, "answers"},
		{"one label", pending.Answer{Answers: []frames.Answer{{ID: "color", Labels: []string{"red"}}}}, ""},
		{"several and text", pending.Answer{Answers: []frames.Answer{{ID: "many", Labels: []string{"b", "a"}, Text: "and c"}}}, ""},
		{"all", pending.Answer{Answers: []frames.Answer{{ID: "free", Text: "x"}, {ID: "color", Labels: []string{"red"}}, {ID: "many", Text: "c"}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.a.Kind = pending.KindQuestion
			refused(t, question("q1"), c.a, c.field)
		})
	}
}

// A question is answered once, with its answers handed to the agent; without a
// deadline it waits for ever.
func TestQuestionWaitsForItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		done := ask(t.Context(), tab, question("q1"), rec)
		time.Sleep(1000 * time.Hour)
		a := pending.Answer{Session: "s1", ID: "q1", Kind: pending.KindQuestion, Answers: []frames.Answer{{ID: "color", Labels: []string{"red"}}}}
		if err := tab.Answer(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if got.Outcome != frames.Answered || got.Cause != frames.CauseReply || len(got.Answers) != 1 || got.Answers[0].Labels[0] != "red" {
			t.Errorf("Ask = %v, want answered red", got.Settlement)
		}
		e, ok := errors.AsType[*pending.NotPendingError](tab.Answer(t.Context(), a, nil))
		if !ok || e.Kind != pending.KindQuestion || e.Settled.Outcome != frames.Answered {
			t.Errorf("second answer = %v, want NotPending, answered", e)
		}
	})
}
