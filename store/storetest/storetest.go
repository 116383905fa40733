// Package storetest is the suite that every engine of package store passes. It
// looks only through the interface, so what it does not check an engine may
// choose.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// row is one sentence of the contract.
type row struct {
	name string
	test func(t *testing.T, s store.Store)
}

// Run checks an engine. open returns a new, empty store for each row; it
// registers what has to be cleaned up itself. Run closes the store.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, rows := range [][]row{appendRows, readRows, tailRows, trimRows, deleteRows, rowRows, sizeRows, closeRows, modelRows} {
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				s := open(t)
				r.test(t, s)
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
	}
}

const sid = frames.SessionID("0190-a")

// events returns n events whose ids start with name.
func events(name string, n int) []store.Event {
	evs := make([]store.Event, n)
	for i := range evs {
		evs[i] = event(fmt.Sprintf("%s-%d", name, i))
	}
	return evs
}

// event returns an event whose content follows from its id.
func event(id string) store.Event {
	return store.Event{
		ID: id, Type: "test/event", Time: time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC),
		Data: []byte(`{"id":"` + id + `"}`),
	}
}

// mustAppend appends at the present head.
func mustAppend(t *testing.T, s store.Store, sid frames.SessionID, evs []store.Event, rows ...store.Row) store.Head {
	t.Helper()
	head, err := s.Append(t.Context(), sid, mustHead(t, s, sid), evs, rows...)
	if err != nil {
		t.Fatalf("Append(%s, %d events): %v", sid, len(evs), err)
	}
	return head
}

func mustHead(t *testing.T, s store.Store, sid frames.SessionID) store.Head {
	t.Helper()
	head, err := s.Head(t.Context(), sid)
	if err != nil {
		t.Fatalf("Head(%s): %v", sid, err)
	}
	return head
}

// readAll reads page by page to the head.
func readAll(t *testing.T, s store.Store, sid frames.SessionID, after frames.Seq) []store.Event {
	t.Helper()
	var out []store.Event
	for {
		page, err := s.Read(t.Context(), sid, after, 0, 0)
		if err != nil {
			t.Fatalf("Read(%s, after %d): %v", sid, after, err)
		}
		if len(page) == 0 {
			return out
		}
		out = append(out, page...)
		after = page[len(page)-1].Seq
	}
}

// wantEvents compares got with want, numbered from first.
func wantEvents(t *testing.T, got, want []store.Event, first frames.Seq) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d events, want %d: got %s, want %s", len(got), len(want), ids(got), ids(want))
	}
	for i, g := range got {
		w := want[i]
		if g.Seq != first+frames.Seq(i) || g.ID != w.ID || g.Type != w.Type || !g.Time.Equal(w.Time) || !bytes.Equal(g.Data, w.Data) {
			t.Fatalf("event %d: got %+v, want %+v as seq %d", i, g, w, first+frames.Seq(i))
		}
	}
}

func ids(evs []store.Event) string {
	var out []string
	for _, e := range evs {
		out = append(out, fmt.Sprintf("%d:%s", e.Seq, e.ID))
	}
	return strings.Join(out, " ")
}

// wantErr checks that err is target.
func wantErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got error %v, want %v", what, err, target)
	}
}

// wantConflict checks that err is a conflict that names the head.
func wantConflict(t *testing.T, what string, err error, head store.Head) {
	t.Helper()
	c, ok := errors.AsType[*store.ConflictError](err)
	if !ok {
		t.Fatalf("%s: got error %v, want a *ConflictError", what, err)
	}
	if c.Actual != head {
		t.Errorf("%s: conflict names %+v, want %+v", what, c.Actual, head)
	}
}

func wantRow(t *testing.T, s store.Store, table, key, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), table, key)
	if err != nil {
		t.Fatalf("Get(%s, %s): %v", table, key, err)
	}
	if got == nil || string(got) != want {
		t.Errorf("Get(%s, %s) = %q (nil: %v), want %q", table, key, got, got == nil, want)
	}
}

func wantNoRow(t *testing.T, s store.Store, table, key string) {
	t.Helper()
	if got, err := s.Get(t.Context(), table, key); err != nil || got != nil {
		t.Errorf("Get(%s, %s) = %q, %v; want none", table, key, got, err)
	}
}
