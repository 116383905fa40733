package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

var sizeRows = []row{
	{"SizeCountsTheKeptData", sizeCountsTheKeptData},
	{"SizeOfNothingIsZero", sizeOfNothing},
}

// Size is the sum of what Read returns, also after trims, and one log's alone.
func sizeCountsTheKeptData(t *testing.T, s store.Store) {
	for i := range 5 {
		evs := events(fmt.Sprint("a", i), 70)
		evs[3].Data = bytes.Repeat([]byte("x"), 40<<10)
		mustAppend(t, s, sid, evs)
		mustAppend(t, s, "0190-other", events(fmt.Sprint("o", i), 70))
	}
	for _, before := range []frames.Seq{0, 1, 70, 71, 200, 349, 1000} {
		if err := s.Trim(t.Context(), sid, before); err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for _, e := range readAll(t, s, sid, max(before, 1)-1) {
			want += int64(len(e.Data))
		}
		if before == 1000 {
			want = int64(len(readAll(t, s, sid, 349)[0].Data))
		}
		wantSize(t, s, sid, want)
	}
}

// A log that is not there, is empty or was deleted has no bytes.
func sizeOfNothing(t *testing.T, s store.Store) {
	wantSize(t, s, sid, 0)
	h := mustAppend(t, s, sid, []store.Event{{ID: "empty", Type: "t"}})
	wantSize(t, s, sid, 0)
	if err := s.Delete(t.Context(), sid, h); err != nil {
		t.Fatal(err)
	}
	wantSize(t, s, sid, 0)
}

func wantSize(t *testing.T, s store.Store, sid frames.SessionID, want int64) {
	t.Helper()
	if got, err := s.Size(t.Context(), sid); err != nil || got != want {
		t.Errorf("Size(%s) = %d, %v; want %d", sid, got, err, want)
	}
}

// RunSnapshot checks an engine that can copy itself. open returns a new, empty
// store; load opens what Snapshot wrote.
func RunSnapshot(t *testing.T, open func(t *testing.T) store.Snapshotter, load func(t *testing.T, snapshot []byte) store.Store) {
	t.Run("SnapshotIsEverythingAcknowledged", func(t *testing.T) { snapshotIsEverything(t, open(t), load) })
	t.Run("SnapshotWhileWrittenToIsOneMoment", func(t *testing.T) { snapshotIsOneMoment(t, open(t), load) })
	t.Run("SnapshotEndsWithItsContext", func(t *testing.T) { snapshotEnds(t, open(t)) })
}

// What was acknowledged before is in the snapshot: heads, events, rows, tombstones.
func snapshotIsEverything(t *testing.T, s store.Snapshotter, load func(*testing.T, []byte) store.Store) {
	mustAppend(t, s, sid, events("a", 200), store.Row{Table: store.TableSession, Key: string(sid), Value: []byte("r")})
	if err := s.Trim(t.Context(), sid, 42); err != nil {
		t.Fatal(err)
	}
	gone := mustAppend(t, s, "0190-gone", events("g", 1))
	if err := s.Delete(t.Context(), "0190-gone", gone); err != nil {
		t.Fatal(err)
	}
	head := mustHead(t, s, sid)
	var b bytes.Buffer
	if n, err := s.Snapshot(t.Context(), &b); err != nil || n != int64(b.Len()) {
		t.Fatalf("Snapshot = %d, %v; want %d bytes", n, err, b.Len())
	}
	mustAppend(t, s, sid, events("later", 1))
	c := load(t, b.Bytes())
	if got := mustHead(t, c, sid); got != head {
		t.Errorf("head in the snapshot %+v, want %+v", got, head)
	}
	wantEvents(t, readAll(t, c, sid, 41), events("a", 200)[41:], 42)
	wantRow(t, c, store.TableSession, string(sid), "r")
	_, err := c.Append(t.Context(), "0190-gone", store.Head{}, events("x", 1))
	wantErr(t, "Append to a deleted session of the snapshot", err, store.ErrDeleted)
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// Each event of two logs is stored with a row that counts them; every snapshot
// taken meanwhile has as many events as its row says, and writers go on.
func snapshotIsOneMoment(t *testing.T, s store.Snapshotter, load func(*testing.T, []byte) store.Store) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	sids := []frames.SessionID{"0190-a", "0190-b"}
	for _, id := range sids {
		wg.Go(func() {
			var h store.Head
			for i := 1; ; i++ {
				var err error
				row := store.Row{Table: store.TableSession, Key: string(id), Value: fmt.Append(nil, i)}
				if h, err = s.Append(t.Context(), id, h, events(fmt.Sprint(id, i), 1), row); err != nil {
					t.Errorf("Append while a snapshot is taken: %v", err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 5 {
		before := mustHead(t, s, sids[0]).Seq
		var b bytes.Buffer
		if _, err := s.Snapshot(t.Context(), &b); err != nil {
			t.Fatalf("Snapshot: %v", err)
		}
		c := load(t, b.Bytes())
		for _, id := range sids {
			n := frames.Seq(len(readAll(t, c, id, 0)))
			if h := mustHead(t, c, id); n != h.Seq || id == sids[0] && n < before {
				t.Errorf("the snapshot has %d events of %s; its head is %d, before it was %d", n, id, h.Seq, before)
			}
			if n > 0 {
				wantRow(t, c, store.TableSession, string(id), fmt.Sprint(n))
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A snapshot whose context ended is given up, and the store goes on.
func snapshotEnds(t *testing.T, s store.Snapshotter) {
	mustAppend(t, s, sid, events("a", 100))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Snapshot(ctx, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), ctx.Err() }))
	wantErr(t, "Snapshot whose context ends", err, context.Canceled)
	if _, err := s.Snapshot(t.Context(), io.Discard); err != nil {
		t.Errorf("the next Snapshot: %v", err)
	}
	mustAppend(t, s, sid, events("b", 1))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
