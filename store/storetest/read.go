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

var readRows = []row{
	{"ReadPages", readPages},
	{"ReadBoundsBytes", readBoundsBytes},
	{"ReadBytesAreTheCallers", readBytesAreTheCallers},
	{"ReadYourWritesUnderLoad", readYourWritesUnderLoad},
	{"ListPages", listPages},
}

var tailRows = []row{
	{"TailNoGapNoDup", tailNoGapNoDup},
	{"TailWaits", tailWaits},
	{"TailEndsWithItsContext", tailEndsWithItsContext},
	{"TailEndsWithTheSession", tailEndsWithTheSession},
	{"TailFromTrimmedEnds", tailFromTrimmedEnds},
}

// Pages follow each other without gap or repeat, at most limit long, and end
// empty at the head.
func readPages(t *testing.T, s store.Store) {
	var want []store.Event
	for i := range 60 {
		evs := events(fmt.Sprint("p", i), 1+i%17)
		mustAppend(t, s, sid, evs)
		want = append(want, evs...)
	}
	for _, limit := range []int{0, 1, 7, 64, 10000} {
		var got []store.Event
		for after := frames.Seq(0); ; {
			page, err := s.Read(t.Context(), sid, after, limit, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if most := max(limit, 1); limit > 0 && len(page) > most || limit == 0 && len(page) > store.DefaultLimit {
				t.Fatalf("limit %d: a page of %d", limit, len(page))
			}
			if len(page) == 0 {
				break
			}
			got, after = append(got, page...), page[len(page)-1].Seq
		}
		wantEvents(t, got, want, 1)
	}
	for _, after := range []frames.Seq{frames.Seq(len(want)), frames.Seq(len(want)) + 5} {
		if page, err := s.Read(t.Context(), sid, after, 0, 0); err != nil || len(page) != 0 {
			t.Errorf("Read after %d: %d events, %v; want none", after, len(page), err)
		}
	}
	if page, err := s.Read(t.Context(), "0190-none", 0, 0, 0); err != nil || len(page) != 0 {
		t.Errorf("Read of no session: %d events, %v; want none", len(page), err)
	}
}

// A page stays about maxBytes long, but has at least one event.
func readBoundsBytes(t *testing.T, s store.Store) {
	evs := events("a", 40)
	for i := range evs {
		evs[i].Data = make([]byte, 1000)
	}
	mustAppend(t, s, sid, evs)
	for _, c := range []struct{ maxBytes, least, most int }{{1, 1, 1}, {3000, 2, 3}, {10_000, 8, 10}, {0, 40, 40}} {
		page, err := s.Read(t.Context(), sid, 0, 100, c.maxBytes)
		if err != nil || len(page) < c.least || len(page) > c.most {
			t.Errorf("maxBytes %d: %d events of 1000 bytes, %v; want %d to %d", c.maxBytes, len(page), err, c.least, c.most)
		}
	}
}

// Scribbling over what Read, Get, Scan and List returned changes nothing.
func readBytesAreTheCallers(t *testing.T, s store.Store) {
	mustAppend(t, s, sid, events("a", 3), store.Row{Table: store.TableSession, Key: string(sid), Value: []byte("record")})
	evs := readAll(t, s, sid, 0)
	for _, e := range evs {
		clear(e.Data)
		_ = append(e.Data, "overrun"...)
	}
	wantEvents(t, readAll(t, s, sid, 0), events("a", 3), 1)
	v, _ := s.Get(t.Context(), store.TableSession, string(sid))
	clear(v)
	rows, _ := s.Scan(t.Context(), store.TableSession, "", "", 0)
	clear(rows[0].Value)
	list, _ := s.List(t.Context(), "", "", 0)
	clear(list[0].Record)
	wantRow(t, s, store.TableSession, string(sid), "record")
}

// An event whose Append returned is in every Read that starts afterwards.
func readYourWritesUnderLoad(t *testing.T, s store.Store) {
	const writers, each = 8, 40
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			me := frames.SessionID(fmt.Sprintf("ryw-%d", w))
			var head store.Head
			for n := range each {
				h, err := s.Append(t.Context(), me, head, events(fmt.Sprint("n", n), 1))
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				page, err := s.Read(t.Context(), me, head.Seq, 0, 0)
				if err != nil || len(page) != 1 || page[0].Seq != h.Seq {
					t.Errorf("%s: Read after %d returned %s, %v; want seq %d", me, head.Seq, ids(page), err, h.Seq)
					return
				}
				if got, err := s.Head(t.Context(), me); err != nil || got != h {
					t.Errorf("%s: Head = %+v, %v; want %+v", me, got, err, h)
				}
				head = h
			}
		})
	}
	wg.Wait()
}

// List pages by prefix in the order of ids, with heads and records.
func listPages(t *testing.T, s store.Store) {
	var want []frames.SessionID
	for i := range 25 {
		id := frames.SessionID(fmt.Sprintf("l-%02d", 24-i))
		mustAppend(t, s, id, events("a", 1+i), store.Row{Table: store.TableSession, Key: string(id), Value: []byte(id)})
	}
	for i := range 25 {
		want = append(want, frames.SessionID(fmt.Sprintf("l-%02d", i)))
	}
	mustAppend(t, s, "other", events("a", 1))
	if err := s.Delete(t.Context(), "l-07", mustHead(t, s, "l-07")); err != nil {
		t.Fatal(err)
	}
	want = append(want[:7:7], want[8:]...)
	var got []frames.SessionID
	for after := frames.SessionID(""); ; {
		page, err := s.List(t.Context(), "l-", after, 10)
		if err != nil || len(page) > 10 {
			t.Fatalf("List: %d, %v", len(page), err)
		}
		if len(page) == 0 {
			break
		}
		for _, sum := range page {
			if string(sum.Record) != string(sum.SessionID) || sum.Head != mustHead(t, s, sum.SessionID) {
				t.Errorf("List: %+v with record %q, head %+v", sum, sum.Record, mustHead(t, s, sum.SessionID))
			}
			got = append(got, sum.SessionID)
		}
		after = got[len(got)-1]
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("List = %v, want %v", got, want)
	}
	if all, err := s.List(t.Context(), "", "", 0); err != nil || len(all) != 25 || all[24].SessionID != "other" || all[24].Record != nil {
		t.Errorf("List of all: %d, %v; want 25, the last one without a record", len(all), err)
	}
}

// Five tails, started at different times, each see all of a hundred appends once.
func tailNoGapNoDup(t *testing.T, s store.Store) {
	const tails, appends = 5, 100
	var wg sync.WaitGroup
	follow := func(tl store.Tailer, from frames.Seq) {
		for want := from + 1; want <= 2*appends; want++ {
			ev, err := tl.Next(t.Context())
			if err != nil || ev.Seq != want || ev.ID != fmt.Sprintf("n%d-%d", (want-1)/2, (want-1)%2) {
				t.Errorf("tail from %d: got %d:%s, %v; want %d", from, ev.Seq, ev.ID, err, want)
				return
			}
		}
	}
	for n := range appends {
		if n%(appends/tails) == 0 {
			from := frames.Seq(n)
			tl, err := s.Tail(t.Context(), sid, from)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				defer tl.Close()
				follow(tl, from)
			})
		}
		mustAppend(t, s, sid, events(fmt.Sprint("n", n), 2))
	}
	wg.Wait()
}

// A tail of an empty log waits for its first event, and one at the head for the next.
func tailWaits(t *testing.T, s store.Store) {
	tl, err := s.Tail(t.Context(), sid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tl.Close()
	for n := range 20 {
		got := make(chan store.Event, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			ev, err := tl.Next(t.Context())
			if err != nil {
				t.Errorf("Next: %v", err)
			}
			got <- ev
		})
		mustAppend(t, s, sid, events(fmt.Sprint("n", n), 1))
		wg.Wait()
		if ev := <-got; ev.Seq != frames.Seq(n+1) {
			t.Errorf("tail got seq %d, want %d", ev.Seq, n+1)
		}
	}
}

// Next returns when its context ends, and the tail can go on afterwards.
func tailEndsWithItsContext(t *testing.T, s store.Store) {
	tl, err := s.Tail(t.Context(), sid, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := tl.Next(ctx)
		wantErr(t, "Next", err, context.Canceled)
	})
	cancel()
	wg.Wait()
	mustAppend(t, s, sid, events("a", 1))
	if ev, err := tl.Next(t.Context()); err != nil || ev.Seq != 1 {
		t.Errorf("Next after a cancelled one: %d, %v; want seq 1", ev.Seq, err)
	}
	for range 2 {
		if err := tl.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	_, err = tl.Next(t.Context())
	wantErr(t, "Next after Close", err, store.ErrClosed)
}

// Deleting the session ends its tails, waiting or not.
func tailEndsWithTheSession(t *testing.T, s store.Store) {
	h := mustAppend(t, s, sid, events("a", 1))
	tl, err := s.Tail(t.Context(), sid, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer tl.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := tl.Next(t.Context())
		wantErr(t, "Next of a deleted session", err, store.ErrDeleted)
	})
	if err := s.Delete(t.Context(), sid, h); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// A tail that fell behind a trim says so and names what is kept.
func tailFromTrimmedEnds(t *testing.T, s store.Store) {
	mustAppend(t, s, sid, events("a", 10))
	tl, err := s.Tail(t.Context(), sid, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer tl.Close()
	if err := s.Trim(t.Context(), sid, 6); err != nil {
		t.Fatal(err)
	}
	_, err = tl.Next(t.Context())
	if e, ok := errors.AsType[*store.TrimmedError](err); !ok || e.First != 6 {
		t.Errorf("Next behind a trim: %v, want ErrTrimmed with first 6", err)
	}
}
