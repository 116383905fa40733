package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

var rowRows = []row{
	{"RowsComeWithTheAppendOrNotAtAll", rowsComeWithTheAppend},
	{"PutIsAllOrNothing", putIsAllOrNothing},
	{"ScanPages", scanPages},
}

var closeRows = []row{
	{"CloseEndsEverything", closeEndsEverything},
	{"CloseWaitsForWrites", closeWaitsForWrites},
}

// Rows are stored with their events; a refused append stores none of them.
func rowsComeWithTheAppend(t *testing.T, s store.Store) {
	row := func(v string) []store.Row {
		return []store.Row{{Table: "a", Key: "k", Value: []byte(v)}, {Table: "b", Key: "k", Value: []byte(v)}}
	}
	mustAppend(t, s, sid, events("a", 1), row("1")...)
	wantRow(t, s, "a", "k", "1")
	wantRow(t, s, "b", "k", "1")
	_, err := s.Append(t.Context(), sid, store.Head{}, events("x", 1), row("2")...)
	wantErr(t, "stale append", err, store.ErrConflict)
	_, err = s.Append(t.Context(), sid, mustHead(t, s, sid), events("y", 1), append(row("2"), store.Row{Table: "a"})...)
	if err == nil {
		t.Error("append with a bad row succeeded")
	}
	wantRow(t, s, "a", "k", "1")
	wantRow(t, s, "b", "k", "1")
	mustAppend(t, s, sid, events("b", 1), store.Row{Table: "a", Key: "k"}, store.Row{Table: "b", Key: "k", Value: []byte("3")})
	wantNoRow(t, s, "a", "k")
	wantRow(t, s, "b", "k", "3")
}

// Put stores all its rows or none; nil deletes, empty is a value, and of two
// rows with one key the later counts.
func putIsAllOrNothing(t *testing.T, s store.Store) {
	ctx := t.Context()
	if err := s.Put(ctx, store.Row{Table: "t", Key: "a", Value: []byte("1")}, store.Row{Table: "t", Key: "e", Value: []byte{}}); err != nil {
		t.Fatal(err)
	}
	wantRow(t, s, "t", "e", "")
	if err := s.Put(ctx, store.Row{Table: "t", Key: "a", Value: []byte("2")}, store.Row{Table: "", Key: "b"}); err == nil {
		t.Error("Put with a bad row succeeded")
	}
	wantRow(t, s, "t", "a", "1")
	if err := s.Put(ctx, store.Row{Table: "t", Key: "a", Value: []byte("2")}, store.Row{Table: "t", Key: "a"}, store.Row{Table: "t", Key: "never"}); err != nil {
		t.Fatal(err)
	}
	wantNoRow(t, s, "t", "a")
	wantNoRow(t, s, "no table", "a")
}

// Scan pages by prefix in the order of keys.
func scanPages(t *testing.T, s store.Store) {
	var want []string
	for i := range 300 {
		key := fmt.Sprintf("p/%03d", 299-i)
		if i%50 == 0 {
			if err := s.Put(t.Context(), store.Row{Table: "t", Key: fmt.Sprint("q", i), Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Put(t.Context(), store.Row{Table: "t", Key: key, Value: []byte(key)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		want = append(want, fmt.Sprintf("p/%03d", i))
	}
	var got []string
	for after := ""; ; {
		page, err := s.Scan(t.Context(), "t", "p/", after, 70)
		if err != nil || len(page) > 70 {
			t.Fatalf("Scan: %d, %v", len(page), err)
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			if r.Table != "t" || string(r.Value) != r.Key {
				t.Errorf("Scan: %+v", r)
			}
			got = append(got, r.Key)
		}
		after = got[len(got)-1]
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Scan = %v, want %v", got, want)
	}
	if page, err := s.Scan(t.Context(), "t", "", "", 0); err != nil || len(page) != store.DefaultLimit {
		t.Errorf("Scan without a limit: %d rows, %v; want %d", len(page), err, store.DefaultLimit)
	}
}

// After Close every call gets ErrClosed, and waiting tails end with it.
func closeEndsEverything(t *testing.T, s store.Store) {
	h := mustAppend(t, s, sid, events("a", 1))
	tl, err := s.Tail(t.Context(), sid, 1)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := tl.Next(t.Context())
		wantErr(t, "Next", err, store.ErrClosed)
	})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	wg.Wait()
	ctx := t.Context()
	_, err = s.Append(ctx, sid, h, events("b", 1))
	wantErr(t, "Append", err, store.ErrClosed)
	_, err = s.Head(ctx, sid)
	wantErr(t, "Head", err, store.ErrClosed)
	_, err = s.Read(ctx, sid, 0, 0, 0)
	wantErr(t, "Read", err, store.ErrClosed)
	_, err = s.Tail(ctx, sid, 0)
	wantErr(t, "Tail", err, store.ErrClosed)
	wantErr(t, "Trim", s.Trim(ctx, sid, 1), store.ErrClosed)
	wantErr(t, "Delete", s.Delete(ctx, sid, h), store.ErrClosed)
	_, err = s.List(ctx, "", "", 0)
	wantErr(t, "List", err, store.ErrClosed)
	_, err = s.Restore(ctx, "0190-b", "", 1, events("r", 1))
	wantErr(t, "Restore", err, store.ErrClosed)
	_, err = s.Get(ctx, "t", "k")
	wantErr(t, "Get", err, store.ErrClosed)
	wantErr(t, "Put", s.Put(ctx, store.Row{Table: "t", Key: "k", Value: []byte("v")}), store.ErrClosed)
	_, err = s.Scan(ctx, "t", "", "", 0)
	wantErr(t, "Scan", err, store.ErrClosed)
}

// Close during writes: each write either succeeded or got ErrClosed.
func closeWaitsForWrites(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	var first sync.WaitGroup
	for w := range 8 {
		first.Add(1)
		wg.Go(func() {
			me := frames.SessionID(fmt.Sprintf("cw-%d", w))
			var head store.Head
			for n := 0; ; n++ {
				h, err := s.Append(t.Context(), me, head, events(fmt.Sprint("n", n), 1))
				if n == 0 {
					first.Done()
				}
				if err != nil {
					wantErr(t, "Append during Close", err, store.ErrClosed)
					return
				}
				head = h
			}
		})
	}
	first.Wait()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	wg.Wait()
}
