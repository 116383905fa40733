package storetest

import (
	"fmt"
	"testing"

	"github.com/muxhost/muxhost/store"
)

// RunReopen checks that an engine keeps everything when it is closed and opened
// again. open opens the store in dir, which is empty the first time.
func RunReopen(t *testing.T, open func(t *testing.T, dir string) store.Store) {
	t.Run("ReopenKeepsEverything", func(t *testing.T) { reopenKeepsEverything(t, open) })
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("RandomCallsAcrossReopen/seed=%d", seed), func(t *testing.T) {
			randomCallsAcrossReopen(t, open, seed)
		})
	}
}

// Heads with epochs, events, trims, tombstones and rows are the same afterwards,
// and a repeat of the last append still is one.
func reopenKeepsEverything(t *testing.T, open func(t *testing.T, dir string) store.Store) {
	dir := t.TempDir()
	s := open(t, dir)
	at := mustAppend(t, s, sid, events("a", 100))
	head := mustAppend(t, s, sid, events("b", 100), store.Row{Table: store.TableSession, Key: string(sid), Value: []byte("r")})
	if err := s.Trim(t.Context(), sid, 42); err != nil {
		t.Fatal(err)
	}
	head.First = 42
	gone := mustAppend(t, s, "0190-gone", events("g", 3))
	if err := s.Delete(t.Context(), "0190-gone", gone); err != nil {
		t.Fatal(err)
	}
	restored, err := s.Restore(t.Context(), "0190-r", "epoch-r", 7, events("r", 5))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		s = open(t, dir)
		if got := mustHead(t, s, sid); got != head {
			t.Errorf("head after reopening %+v, want %+v", got, head)
		}
		if got := mustHead(t, s, "0190-r"); got != restored {
			t.Errorf("restored head after reopening %+v, want %+v", got, restored)
		}
		wantEvents(t, readAll(t, s, sid, 41), append(events("a", 100)[41:], events("b", 100)...), 42)
		wantEvents(t, readAll(t, s, "0190-r", 6), events("r", 5), 7)
		wantRow(t, s, store.TableSession, string(sid), "r")
		_, err := s.Append(t.Context(), "0190-gone", store.Head{}, events("x", 1))
		wantErr(t, "Append to a deleted session", err, store.ErrDeleted)
		if again, err := s.Append(t.Context(), sid, at, events("b", 100)); err != nil || again != head {
			t.Errorf("repeated append after reopening: %+v, %v; want %+v", again, err, head)
		}
		if list, err := s.List(t.Context(), "", "", 0); err != nil || len(list) != 2 || list[0].Head != head {
			t.Errorf("List after reopening: %+v, %v", list, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// Random calls with reopenings between them agree with the model.
func randomCallsAcrossReopen(t *testing.T, open func(t *testing.T, dir string) store.Store, seed uint64) {
	dir, m := t.TempDir(), newModel(seed)
	for range 8 {
		s := open(t, dir)
		m.check(t, s)
		for range 150 {
			m.step(t, s)
		}
		m.check(t, s)
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
}
