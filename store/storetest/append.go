package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

var appendRows = []row{
	{"AppendNumbersFromOne", appendNumbersFromOne},
	{"BatchIsAtomicAndContiguous", batchIsAtomicAndContiguous},
	{"StaleHeadConflicts", staleHeadConflicts},
	{"RetryOfSameEventSucceeds", retryOfSameEventSucceeds},
	{"EventsWithoutAnIDAreNeverARetry", eventsWithoutAnIDAreNeverARetry},
	{"RaceExactlyOneWins", raceExactlyOneWins},
	{"ManySessionsAtOnce", manySessionsAtOnce},
	{"TooLargeStoresNothing", tooLargeStoresNothing},
	{"BadNamesStoreNothing", badNamesStoreNothing},
	{"CancelledBeforeItsTurnStoresNothing", cancelledBeforeItsTurnStoresNothing},
	{"SlicesAreNotKept", slicesAreNotKept},
	{"RestoreKeepsEpochAndNumbers", restoreKeepsEpochAndNumbers},
	{"RestoreNeedsAnEmptySession", restoreNeedsAnEmptySession},
}

// The first append gets seq 1 and an epoch, the next goes on from there.
func appendNumbersFromOne(t *testing.T, s store.Store) {
	if h := mustHead(t, s, sid); h != (store.Head{}) {
		t.Fatalf("head of a session that does not exist: %+v, want the zero Head", h)
	}
	h1 := mustAppend(t, s, sid, events("a", 1))
	if h1.Seq != 1 || h1.First != 1 || h1.Epoch == "" || h1.LastID != "a-0" || h1.Deleted || h1.Fence != 0 {
		t.Errorf("first head %+v, want seq 1, first 1, an epoch, last id a-0", h1)
	}
	h2 := mustAppend(t, s, sid, events("b", 2))
	if h2.Seq != 3 || h2.First != 1 || h2.Epoch != h1.Epoch || h2.LastID != "b-1" || h2.Rev == h1.Rev {
		t.Errorf("second head %+v after %+v, want seq 3, the same epoch, another rev", h2, h1)
	}
	if h := mustHead(t, s, sid); h != h2 {
		t.Errorf("Head = %+v, want what Append returned, %+v", h, h2)
	}
	other := mustAppend(t, s, "0190-b", events("c", 1))
	if other.Seq != 1 || other.Epoch == h1.Epoch {
		t.Errorf("another session's head %+v, want seq 1 and its own epoch", other)
	}
	wantEvents(t, readAll(t, s, sid, 0), append(events("a", 1), events("b", 2)...), 1)
}

// A full batch is stored as one, with every field as it was.
func batchIsAtomicAndContiguous(t *testing.T, s store.Store) {
	evs := events("a", store.MaxBatch)
	if h := mustAppend(t, s, sid, evs); h.Seq != store.MaxBatch {
		t.Errorf("head %d after a batch of %d", h.Seq, store.MaxBatch)
	}
	wantEvents(t, readAll(t, s, sid, 0), evs, 1)
	_, err := s.Append(t.Context(), sid, store.Head{}, events("b", 3))
	wantErr(t, "batch at a stale head", err, store.ErrConflict)
	wantEvents(t, readAll(t, s, sid, 0), evs, 1)
}

// An append at any head but the present one stores nothing and names the head.
func staleHeadConflicts(t *testing.T, s store.Store) {
	h1 := mustAppend(t, s, sid, events("a", 1))
	h2 := mustAppend(t, s, sid, events("b", 1))
	for _, at := range []store.Head{{}, h1, {Seq: 9, Rev: 9 << 20}} {
		_, err := s.Append(t.Context(), sid, at, events("x", 1))
		wantConflict(t, fmt.Sprintf("append at %+v", at), err, h2)
	}
	_, err := s.Append(t.Context(), "0190-none", h2, events("x", 1))
	wantConflict(t, "append beyond an empty session", err, store.Head{})
	if got := readAll(t, s, sid, 0); len(got) != 2 {
		t.Errorf("after conflicts there are %s, want 2 events", ids(got))
	}
}

// Repeating a call after its success returns the same head, stores nothing
// twice, and does so even when others have appended since.
func retryOfSameEventSucceeds(t *testing.T, s store.Store) {
	evs := events("a", 3)
	h0 := mustHead(t, s, sid)
	h1 := mustAppend(t, s, sid, evs, store.Row{Table: "t", Key: "k", Value: []byte("1")})
	if err := s.Put(t.Context(), store.Row{Table: "t", Key: "k", Value: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again, err := s.Append(t.Context(), sid, h0, evs, store.Row{Table: "t", Key: "k", Value: []byte("1")})
		if err != nil || again != h1 {
			t.Fatalf("repeated append: %+v, %v; want %+v", again, err, h1)
		}
		wantRow(t, s, "t", "k", "2")
		mustAppend(t, s, sid, events(fmt.Sprint("b", mustHead(t, s, sid).Seq), 2))
	}
	_, err := s.Append(t.Context(), sid, h0, append(events("a", 2), event("other")))
	wantErr(t, "a repeat with another last event", err, store.ErrConflict)
	_, err = s.Append(t.Context(), sid, h0, append([]store.Event{event("other")}, evs[1:]...))
	wantErr(t, "a repeat with another first event", err, store.ErrConflict)
	if h := mustHead(t, s, sid); h.Seq != 7 {
		t.Errorf("head %d after repeats, want 7", h.Seq)
	}
}

// Events without an id cannot be told apart, so the second append conflicts.
func eventsWithoutAnIDAreNeverARetry(t *testing.T, s store.Store) {
	e := event("")
	h := mustAppend(t, s, sid, []store.Event{e})
	_, err := s.Append(t.Context(), sid, store.Head{}, []store.Event{e})
	wantConflict(t, "an append without ids at a stale head", err, h)
}

// Of four writers at the same head exactly one wins, sixty times over.
func raceExactlyOneWins(t *testing.T, s store.Store) {
	const writers, rounds = 4, 60
	for round := range rounds {
		at := mustHead(t, s, sid)
		var wg sync.WaitGroup
		errs := make([]error, writers)
		for w := range writers {
			wg.Go(func() {
				_, errs[w] = s.Append(t.Context(), sid, at, events(fmt.Sprintf("r%dw%d", round, w), 2))
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				wantErr(t, "a loser", err, store.ErrConflict)
			}
		}
		if won != 1 {
			t.Fatalf("round %d: %d of %d writers won: %v", round, won, writers, errs)
		}
	}
	if h := mustHead(t, s, sid); h.Seq != 2*rounds || len(readAll(t, s, sid, 0)) != 2*rounds {
		t.Errorf("head %d, want %d", h.Seq, 2*rounds)
	}
}

// Sessions written at once do not disturb each other; one's conflict fails
// nobody else.
func manySessionsAtOnce(t *testing.T, s store.Store) {
	const sessions, each = 24, 20
	name := func(i int) frames.SessionID { return frames.SessionID(fmt.Sprintf("many-%02d", i)) }
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			var head store.Head
			for n := range each {
				if _, err := s.Append(t.Context(), name(i), store.Head{Rev: 1 << 40}, events("stale", 1)); !errors.Is(err, store.ErrConflict) {
					t.Errorf("%s: stale append: %v, want a conflict", name(i), err)
				}
				h, err := s.Append(t.Context(), name(i), head, events(fmt.Sprintf("%s-%d", name(i), n), 1))
				if err != nil {
					t.Errorf("%s: append %d: %v", name(i), n, err)
					return
				}
				head = h
			}
		})
	}
	wg.Wait()
	for i := range sessions {
		var want []store.Event
		for n := range each {
			want = append(want, events(fmt.Sprintf("%s-%d", name(i), n), 1)...)
		}
		wantEvents(t, readAll(t, s, name(i), 0), want, 1)
	}
}

// What is over a limit is refused whole; what is exactly at it is stored.
func tooLargeStoresNothing(t *testing.T, s store.Store) {
	big, over := event("big"), event("over")
	big.Data, over.Data = make([]byte, store.MaxEvent), make([]byte, store.MaxEvent+1)
	_, err := s.Append(t.Context(), sid, store.Head{}, []store.Event{event("a"), over})
	wantErr(t, "event over the limit", err, store.ErrTooLarge)
	_, err = s.Append(t.Context(), sid, store.Head{}, events("a", store.MaxBatch+1))
	wantErr(t, "batch over the limit", err, store.ErrTooLarge)
	_, err = s.Append(t.Context(), sid, store.Head{}, events("a", 1), store.Row{Table: "t", Key: "k", Value: make([]byte, store.MaxRow+1)})
	wantErr(t, "row over the limit", err, store.ErrTooLarge)
	if h := mustHead(t, s, sid); h != (store.Head{}) {
		t.Errorf("head %+v after refusals, want none", h)
	}
	mustAppend(t, s, sid, []store.Event{big})
	wantEvents(t, readAll(t, s, sid, 0), []store.Event{big}, 1)
}

// Empty batches, bad session ids and nameless rows are errors that store nothing.
func badNamesStoreNothing(t *testing.T, s store.Store) {
	for _, bad := range []frames.SessionID{"", "a/b", "a\x00b"} {
		if _, err := s.Append(t.Context(), bad, store.Head{}, events("a", 1)); err == nil {
			t.Errorf("Append to session %q succeeded", bad)
		}
	}
	if _, err := s.Append(t.Context(), sid, store.Head{}, nil); err == nil {
		t.Error("Append of no events succeeded")
	}
	if _, err := s.Append(t.Context(), sid, store.Head{}, events("a", 1), store.Row{Table: "t"}); err == nil {
		t.Error("Append with a row without a key succeeded")
	}
	if h := mustHead(t, s, sid); h != (store.Head{}) {
		t.Errorf("head %+v after refusals, want none", h)
	}
}

// A context that ended before the call's turn leaves nothing behind.
func cancelledBeforeItsTurnStoresNothing(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Append(ctx, sid, store.Head{}, events("a", 1), store.Row{Table: "t", Key: "k", Value: []byte("v")})
	if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("Append with a cancelled context: %v, want context.Canceled and not ErrUnknown", err)
	}
	wantErr(t, "Put", s.Put(ctx, store.Row{Table: "t", Key: "k", Value: []byte("v")}), context.Canceled)
	if h := mustHead(t, s, sid); h != (store.Head{}) {
		t.Errorf("head %+v, want none", h)
	}
	wantNoRow(t, s, "t", "k")
}

// The caller may reuse its slices once Append has returned.
func slicesAreNotKept(t *testing.T, s store.Store) {
	evs, value := events("a", 2), []byte("value")
	mustAppend(t, s, sid, evs, store.Row{Table: "t", Key: "k", Value: value})
	clear(evs[0].Data)
	clear(value)
	evs[1] = event("x")
	wantEvents(t, readAll(t, s, sid, 0), events("a", 2), 1)
	wantRow(t, s, "t", "k", "value")
}

// A restored log has the given epoch and numbers, and goes on from its end.
func restoreKeepsEpochAndNumbers(t *testing.T, s store.Store) {
	evs := events("r", store.MaxBatch+50)
	h, err := s.Restore(t.Context(), sid, "old-epoch", 101, evs)
	last := frames.Seq(100 + len(evs))
	if err != nil || h.Seq != last || h.First != 101 || h.Epoch != "old-epoch" || h.LastID != evs[len(evs)-1].ID {
		t.Fatalf("Restore = %+v, %v; want %d … %d of old-epoch", h, err, 101, last)
	}
	if again, err := s.Restore(t.Context(), sid, "old-epoch", 101, evs); err != nil || again != h {
		t.Errorf("repeated Restore = %+v, %v; want %+v", again, err, h)
	}
	wantEvents(t, readAll(t, s, sid, 100), evs, 101)
	if h2 := mustAppend(t, s, sid, events("a", 1)); h2.Seq != last+1 || h2.Epoch != "old-epoch" || h2.First != 101 {
		t.Errorf("append after restore: %+v", h2)
	}
	minted, err := s.Restore(t.Context(), "0190-b", "", 1, events("m", 1))
	if err != nil || minted.Epoch == "" {
		t.Errorf("Restore without an epoch: %+v, %v; want a minted one", minted, err)
	}
}

// Restore never replaces what is there.
func restoreNeedsAnEmptySession(t *testing.T, s store.Store) {
	h := mustAppend(t, s, sid, events("a", 2))
	_, err := s.Restore(t.Context(), sid, "e", 1, events("r", 2))
	wantConflict(t, "Restore over a log", err, h)
	wantEvents(t, readAll(t, s, sid, 0), events("a", 2), 1)
	if err := s.Delete(t.Context(), sid, h); err != nil {
		t.Fatal(err)
	}
	_, err = s.Restore(t.Context(), sid, "e", 1, events("r", 2))
	wantErr(t, "Restore of a deleted session", err, store.ErrDeleted)
	if _, err := s.Restore(t.Context(), "0190-b", "e", 0, events("r", 1)); err == nil {
		t.Error("Restore from seq 0 succeeded")
	}
}
