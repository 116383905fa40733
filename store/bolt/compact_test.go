package bolt

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// A compacted database is smaller, and has all that the old one has, epochs too.
func TestCompactKeepsEverything(t *testing.T) {
	path := large(t)
	s, err := Open(path, Options{hooks: unsynced})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // written and deleted: space that is no longer used
		row := store.Row{Table: "t", Key: "big", Value: make([]byte, 1<<20)}
		if err := errors.Join(s.Put(t.Context(), row), s.Put(t.Context(), store.Row{Table: "t", Key: "big"})); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Delete(t.Context(), "gone", store.Head{}), s.Close()); err != nil {
		t.Fatal(err)
	}
	old, _ := reopened(t, path)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	events, rows := 0, 0
	count := Visit{Event: func(_ frames.SessionID, _ store.Event) { events++ }, Row: func(store.Row) { rows++ }}
	if err := Compact(t.Context(), path, path+".small", count); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path+".small", path); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil || after.Size()*2 > before.Size() || events < 3000 || rows != 1 {
		t.Errorf("%d bytes became %d, %d events and %d rows seen: %v", before.Size(), after.Size(), events, rows, err)
	}
	got, why := reopened(t, path)
	if why != "" || len(got) != len(old) || got["s-003"] != old["s-003"] {
		t.Errorf("epochs %v became %v (%q)", old, got, why)
	}
	readsRight(t, path, "compacted")
	s, err = Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := s.Head(t.Context(), "gone"); err != nil || !h.Deleted {
		t.Errorf("the tombstone became %+v, %v", h, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A damaged database is not compacted, and stays as it is; nothing is left behind.
func TestCompactRefusesDamage(t *testing.T) {
	path := large(t)
	change(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketChunks).Delete(chunkKey("s-001", 1))
	})
	err := Compact(t.Context(), path, path+".small", Visit{})
	if _, ok := errors.AsType[*DamagedError](err); !ok {
		t.Errorf("Compact = %v, want a *DamagedError", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Compact(ctx, large(t), path+".small", Visit{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Compact with an ended context = %v", err)
	}
	if _, err := os.Stat(path + ".small"); err == nil {
		t.Error("a file was left")
	}
}

// Who holds the lock keeps others from opening.
func TestAcquireKeepsOthersOut(t *testing.T) {
	path, _ := filled(t)
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); err == nil {
		t.Error("opened in spite of the lock")
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	reopened(t, path)
}
