package storetest

import (
	"errors"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

var trimRows = []row{
	{"TrimKeepsNumbers", trimKeepsNumbers},
	{"TrimStoresRowsInTheSameStep", trimStoresRows},
}

var deleteRows = []row{
	{"DeleteIsComparedAndFinal", deleteIsComparedAndFinal},
	{"DeleteTakesRows", deleteTakesRows},
}

// Trim drops the oldest, never the last, and what stays keeps its number.
func trimKeepsNumbers(t *testing.T, s store.Store) {
	evs := events("a", 200)
	mustAppend(t, s, sid, evs[:90])
	h := mustAppend(t, s, sid, evs[90:])
	for _, c := range []struct{ before, first frames.Seq }{{0, 1}, {1, 1}, {70, 70}, {70, 70}, {50, 70}, {199, 199}, {1000, 200}} {
		if err := s.Trim(t.Context(), sid, c.before); err != nil {
			t.Fatalf("Trim(before %d): %v", c.before, err)
		}
		got := mustHead(t, s, sid)
		if got.First != c.first || got.Seq != 200 || got.Rev != h.Rev || got.LastID != h.LastID || got.Epoch != h.Epoch {
			t.Fatalf("after Trim(before %d): %+v, want first %d and the rest of %+v", c.before, got, c.first, h)
		}
		wantEvents(t, readAll(t, s, sid, c.first-1), evs[c.first-1:], c.first)
		if c.first > 1 {
			_, err := s.Read(t.Context(), sid, c.first-2, 0, 0)
			if e, ok := errors.AsType[*store.TrimmedError](err); !ok || e.First != c.first || !errors.Is(err, store.ErrTrimmed) {
				t.Errorf("Read after %d: %v, want ErrTrimmed with first %d", c.first-2, err, c.first)
			}
		}
	}
	if h2, err := s.Append(t.Context(), sid, h, events("b", 1)); err != nil || h2.Seq != 201 || h2.First != 200 {
		t.Errorf("append with the head from before the trim: %+v, %v; want seq 201", h2, err)
	}
	if err := s.Trim(t.Context(), "0190-none", 5); err != nil {
		t.Errorf("Trim of no session: %v", err)
	}
}

// The rows of a trim are stored with it, also when there is nothing to drop.
func trimStoresRows(t *testing.T, s store.Store) {
	mustAppend(t, s, sid, events("a", 10))
	for _, v := range []string{"fold", "fold again"} {
		if err := s.Trim(t.Context(), sid, 5, store.Row{Table: store.TableBase, Key: string(sid), Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
		wantRow(t, s, store.TableBase, string(sid), v)
	}
	if err := s.Trim(t.Context(), sid, 7, store.Row{Table: "t"}); err == nil {
		t.Error("Trim with a row without a key succeeded")
	}
	if h := mustHead(t, s, sid); h.First != 5 {
		t.Errorf("first %d after a refused trim, want 5", h.First)
	}
}

// Delete needs the present head and is for ever.
func deleteIsComparedAndFinal(t *testing.T, s store.Store) {
	h1 := mustAppend(t, s, sid, events("a", 1))
	h2 := mustAppend(t, s, sid, events("b", 200))
	wantConflict(t, "Delete at a stale head", s.Delete(t.Context(), sid, h1), h2)
	wantEvents(t, readAll(t, s, sid, 200), events("b", 200)[199:], 201)
	for range 2 {
		if err := s.Delete(t.Context(), sid, h2); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		if h := mustHead(t, s, sid); !h.Deleted || h.Seq != 0 {
			t.Errorf("head after Delete: %+v, want a deleted one", h)
		}
	}
	for _, at := range []store.Head{{}, h2, mustHead(t, s, sid)} {
		_, err := s.Append(t.Context(), sid, at, events("c", 1))
		wantErr(t, "Append to a deleted session", err, store.ErrDeleted)
	}
	_, err := s.Read(t.Context(), sid, 0, 0, 0)
	wantErr(t, "Read", err, store.ErrDeleted)
	_, err = s.Tail(t.Context(), sid, 0)
	wantErr(t, "Tail", err, store.ErrDeleted)
	wantErr(t, "Trim", s.Trim(t.Context(), sid, 1), store.ErrDeleted)
	if err := s.Delete(t.Context(), "0190-never", store.Head{}); err != nil {
		t.Errorf("Delete of a session that never was: %v", err)
	}
	_, err = s.Append(t.Context(), "0190-never", store.Head{}, events("c", 1))
	wantErr(t, "Append after it", err, store.ErrDeleted)
}

// A session's rows go with it; those of others stay.
func deleteTakesRows(t *testing.T, s store.Store) {
	mine := []store.Row{
		{Table: store.TableSession, Key: string(sid), Value: []byte("1")},
		{Table: store.TablePrompt, Key: string(sid) + "/p1", Value: []byte("1")},
		{Table: store.TablePrompt, Key: string(sid) + "/p2", Value: []byte("1")},
	}
	others := []store.Row{
		{Table: store.TableSession, Key: string(sid) + "b", Value: []byte("1")},
		{Table: store.TablePrompt, Key: string(sid) + "!/p1", Value: []byte("1")},
		{Table: store.TablePrompt, Key: string(sid) + "0/p1", Value: []byte("1")},
		{Table: store.TableGrant, Key: "g", Value: []byte("1")},
	}
	h := mustAppend(t, s, sid, events("a", 1), append(mine, others...)...)
	if err := s.Delete(t.Context(), sid, h); err != nil {
		t.Fatal(err)
	}
	for _, r := range mine {
		wantNoRow(t, s, r.Table, r.Key)
	}
	for _, r := range others {
		wantRow(t, s, r.Table, r.Key, "1")
	}
}
