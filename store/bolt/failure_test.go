package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

var errDisk = fmt.Errorf("write: %w", syscall.EIO)

// A full database refuses with ErrFull, reads on, and the same handle writes on
// when there is space again.
func TestFullDatabaseWritesOnWhenThereIsSpace(t *testing.T) {
	s := openIn(t, t.TempDir(), Options{MaxSize: 1 << 20, bounds: small, hooks: hooks{opened: func(db *bbolt.DB) { db.AllocSize = 4096 }}})
	big := func(n int) store.Event {
		return store.Event{ID: fmt.Sprint("big", n), Type: "t", Data: make([]byte, 20<<10)}
	}
	var head store.Head
	var err error
	n := 0
	for ; n < 200; n++ {
		var h store.Head
		if h, err = s.Append(t.Context(), "full", head, []store.Event{big(n)}, store.Row{Table: "t", Key: "n", Value: fmt.Append(nil, n)}); err != nil {
			break
		}
		head = h
	}
	if !errors.Is(err, store.ErrFull) || n < 5 {
		t.Fatalf("append %d: %v, want ErrFull", n, err)
	}
	if h, err := s.Head(t.Context(), "full"); err != nil || h != head {
		t.Errorf("Head = %+v, %v; want %+v", h, err, head)
	}
	if v, err := s.Get(t.Context(), "t", "n"); err != nil || string(v) != fmt.Sprint(n-1) {
		t.Errorf("row = %s, %v; want that of the last success, %d", v, err, n-1)
	}
	s.db.MaxSize = 8 << 20 // no commit is under way
	again, err := s.Append(t.Context(), "full", head, []store.Event{big(n)})
	if err != nil || again.Seq != head.Seq+1 {
		t.Fatalf("append with space again: %+v, %v", again, err)
	}
	if evs, err := s.Read(t.Context(), "full", 0, 1000, 1<<30); err != nil || len(evs) != int(again.Seq) {
		t.Errorf("Read: %d events, %v; want %d", len(evs), err, again.Seq)
	}
}

// A commit that failed and left nothing gives ErrUnknown; nothing of it shows,
// and the repeat succeeds on the same handle.
func TestFailedCommitLeavesNothing(t *testing.T) {
	var broken atomic.Bool
	s := openIn(t, t.TempDir(), Options{bounds: small, hooks: hooks{commit: func(tx *bbolt.Tx) error {
		if broken.Load() {
			return errors.Join(errDisk, tx.Rollback())
		}
		return tx.Commit()
	}}})
	var head store.Head
	var err error
	for n := range 150 {
		broken.Store(n%3 == 1)
		h, err := appendOne(t, s, "io", head)
		if broken.Load() {
			if !errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrFull) {
				t.Fatalf("append %d: %v, want ErrUnknown", n, err)
			}
			if now, err := s.Head(t.Context(), "io"); err != nil || now != head {
				t.Fatalf("Head after a failed append = %+v, %v; want %+v", now, err, head)
			}
			continue
		}
		if err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
		head = h
	}
	if err = verifyAcked(t, s, map[frames.SessionID]int{"io": 100}); err != nil {
		t.Error(err)
	}
}

// A commit that reports failure and shows all the same makes the store
// read-only: nothing may be built on it. Its session is in doubt, others read
// on, and opening again resolves the doubt: the repeat of the call succeeds.
func TestVisibleButFailedCommitStopsWriting(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	s, err := Open(filepath.Join(dir, "db"), Options{hooks: hooks{commit: func(tx *bbolt.Tx) error {
		err := tx.Commit()
		if broken.Load() {
			return errDisk
		}
		return err
	}}})
	if err != nil {
		t.Fatal(err)
	}
	h1, err1 := appendOne(t, s, "doubt", store.Head{})
	h2, err2 := appendOne(t, s, "other", store.Head{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if _, err := appendOne(t, s, "doubt", h1); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("append: %v, want ErrUnknown", err)
	}
	broken.Store(false)
	if _, err := s.Head(t.Context(), "doubt"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("Head of the session in doubt: %v, want ErrUnknown", err)
	}
	if evs, err := s.Read(t.Context(), "doubt", 0, 0, 0); err != nil || len(evs) != 1 {
		t.Errorf("Read of the session in doubt: %d events, %v; want the one that is sure", len(evs), err)
	}
	if h, err := s.Head(t.Context(), "other"); err != nil || h != h2 {
		t.Errorf("Head of another session: %+v, %v", h, err)
	}
	_, err = appendOne(t, s, "other", h2)
	if _, ok := errors.AsType[*ReadOnlyError](err); !ok || !errors.Is(err, syscall.EIO) {
		t.Errorf("append afterwards: %v, want a *ReadOnlyError", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir, Options{})
	if h, err := appendOne(t, s, "doubt", h1); err != nil || h.Seq != 2 {
		t.Errorf("the repeat after opening again: %+v, %v; want seq 2", h, err)
	}
	if h, err := s.Head(t.Context(), "doubt"); err != nil || h.Seq != 2 {
		t.Errorf("Head after it: %+v, %v; want seq 2", h, err)
	}
}

// A panic inside bbolt answers everybody and makes the store read-only.
func TestPanicMakesTheStoreReadOnly(t *testing.T) {
	var broken atomic.Bool
	s := openIn(t, t.TempDir(), Options{hooks: hooks{commit: func(tx *bbolt.Tx) error {
		if broken.Load() {
			panic("page 7 already freed")
		}
		return tx.Commit()
	}}})
	h, err := appendOne(t, s, "p", store.Head{})
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := s.Put(t.Context(), store.Row{Table: "t", Key: "k", Value: []byte("v")}); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Put: %v, want ErrCorrupt", err)
			}
		})
	}
	wg.Wait()
	broken.Store(false)
	if _, err := appendOne(t, s, "p", h); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("append afterwards: %v, want ErrCorrupt", err)
	}
	if evs, err := s.Read(t.Context(), "p", 0, 0, 0); err != nil || len(evs) != 1 {
		t.Errorf("Read afterwards: %d events, %v; want 1", len(evs), err)
	}
}
