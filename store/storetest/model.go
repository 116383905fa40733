package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

var modelRows = []row{
	{"RandomCallsAgreeWithTheModel", func(t *testing.T, s store.Store) {
		m := newModel(2026)
		for range 1500 {
			m.step(t, s)
		}
		m.check(t, s)
	}},
}

// model is the naive store that random calls are compared with.
type model struct {
	rnd  *rand.Rand
	n    int // names events and values
	logs map[frames.SessionID]*modelLog
	rows map[string]string // "table/key"
}

type modelLog struct {
	head    store.Head
	evs     []store.Event // from head.First on
	deleted bool
}

func newModel(seed uint64) *model {
	return &model{rnd: rand.New(rand.NewPCG(seed, 1)), logs: map[frames.SessionID]*modelLog{}, rows: map[string]string{}}
}

func (m *model) session() (frames.SessionID, *modelLog) {
	id := frames.SessionID(fmt.Sprintf("m-%d", m.rnd.IntN(9)))
	if m.logs[id] == nil {
		m.logs[id] = &modelLog{}
	}
	return id, m.logs[id]
}

// step makes one random call and compares its answer.
func (m *model) step(t *testing.T, s store.Store) {
	t.Helper()
	m.n++
	switch p := m.rnd.IntN(100); {
	case p < 55:
		m.append(t, s)
	case p < 75:
		m.read(t, s)
	case p < 85:
		m.trim(t, s)
	case p < 86:
		m.delete(t, s)
	default:
		m.put(t, s)
	}
}

// batch returns up to 40 events; a few are large.
func (m *model) batch() []store.Event {
	evs := events(fmt.Sprint("n", m.n), 1+m.rnd.IntN(1+m.rnd.IntN(40)))
	for i := range evs {
		if m.rnd.IntN(20) == 0 {
			evs[i].Data = make([]byte, m.rnd.IntN(20<<10))
			for j := range evs[i].Data {
				evs[i].Data[j] = byte(j * m.n)
			}
		}
	}
	return evs
}

func (m *model) row() store.Row {
	table := []string{store.TableSession, store.TablePrompt, "free"}[m.rnd.IntN(3)]
	key := fmt.Sprintf("m-%d/%d", m.rnd.IntN(9), m.rnd.IntN(4))
	r := store.Row{Table: table, Key: key, Value: fmt.Append(nil, m.n)}
	if m.rnd.IntN(4) == 0 {
		r.Value = nil
	}
	return r
}

func (m *model) keep(rows ...store.Row) {
	for _, r := range rows {
		delete(m.rows, r.Table+"/"+r.Key)
		if r.Value != nil {
			m.rows[r.Table+"/"+r.Key] = string(r.Value)
		}
	}
}

func (m *model) append(t *testing.T, s store.Store) {
	t.Helper()
	id, l := m.session()
	at, evs, rows := l.head, m.batch(), []store.Row{m.row(), m.row()}[m.rnd.IntN(3)%2:]
	stale := m.rnd.IntN(10) == 0 && !l.deleted
	if stale {
		at.Rev, at.Seq = at.Rev+1000, at.Seq+1000
	}
	head, err := s.Append(t.Context(), id, at, evs, rows...)
	switch {
	case l.deleted:
		wantErr(t, "Append to a deleted session", err, store.ErrDeleted)
		return
	case stale:
		wantConflict(t, "stale Append", err, l.head)
		return
	case err != nil:
		t.Fatalf("step %d: Append(%s, %d events): %v", m.n, id, len(evs), err)
	}
	want := store.Head{Seq: l.head.Seq + frames.Seq(len(evs)), First: max(l.head.First, 1), Epoch: head.Epoch, Rev: head.Rev, LastID: evs[len(evs)-1].ID}
	if head != want || l.head.Epoch != "" && head.Epoch != l.head.Epoch {
		t.Fatalf("step %d: Append returned %+v, want %+v", m.n, head, want)
	}
	l.head, l.evs = head, append(l.evs, evs...)
	m.keep(rows...)
}

func (m *model) read(t *testing.T, s store.Store) {
	t.Helper()
	id, l := m.session()
	after := frames.Seq(m.rnd.IntN(int(l.head.Seq) + 3))
	limit := 1 + m.rnd.IntN(100)
	got, err := s.Read(t.Context(), id, after, limit, 0)
	switch {
	case l.deleted:
		wantErr(t, "Read of a deleted session", err, store.ErrDeleted)
		return
	case after < l.head.Seq && after+1 < l.head.First:
		if e, ok := errors.AsType[*store.TrimmedError](err); !ok || e.First != l.head.First {
			t.Fatalf("step %d: Read(%s, after %d): %v, want ErrTrimmed with first %d", m.n, id, after, err, l.head.First)
		}
		return
	case err != nil:
		t.Fatalf("step %d: Read(%s, after %d): %v", m.n, id, after, err)
	case after >= l.head.Seq:
		wantEvents(t, got, nil, 0)
		return
	}
	want := l.evs[after+1-l.head.First:]
	if len(got) == 0 || len(got) > limit {
		t.Fatalf("step %d: Read(%s, after %d, limit %d) returned %d", m.n, id, after, limit, len(got))
	}
	wantEvents(t, got, want[:len(got)], after+1)
}

func (m *model) trim(t *testing.T, s store.Store) {
	t.Helper()
	id, l := m.session()
	before, r := frames.Seq(m.rnd.IntN(int(l.head.Seq)+2)), m.row()
	if m.rnd.IntN(2) == 0 {
		before = min(before, l.head.First+10)
	}
	err := s.Trim(t.Context(), id, before, r)
	if l.deleted {
		wantErr(t, "Trim of a deleted session", err, store.ErrDeleted)
		return
	}
	if err != nil {
		t.Fatalf("step %d: Trim(%s, before %d): %v", m.n, id, before, err)
	}
	if first := min(before, l.head.Seq); first > l.head.First {
		l.evs = l.evs[first-l.head.First:]
		l.head.First = first
	}
	m.keep(r)
}

func (m *model) delete(t *testing.T, s store.Store) {
	t.Helper()
	id, l := m.session()
	if err := s.Delete(t.Context(), id, l.head); err != nil {
		t.Fatalf("step %d: Delete(%s): %v", m.n, id, err)
	}
	if l.deleted {
		return // idempotent: rows put since then stay
	}
	*l = modelLog{deleted: true, head: store.Head{Deleted: true}}
	for _, table := range []string{store.TableSession, store.TablePrompt, "free"} {
		for k := range 4 {
			delete(m.rows, fmt.Sprintf("%s/%s/%d", table, id, k))
		}
	}
}

func (m *model) put(t *testing.T, s store.Store) {
	t.Helper()
	rows := []store.Row{m.row(), m.row(), m.row()}
	if err := s.Put(t.Context(), rows...); err != nil {
		t.Fatalf("step %d: Put: %v", m.n, err)
	}
	m.keep(rows...)
}

// check compares everything.
func (m *model) check(t *testing.T, s store.Store) {
	t.Helper()
	for id, l := range m.logs {
		if got := mustHead(t, s, id); got != l.head && !(l.deleted && got.Deleted) {
			t.Errorf("Head(%s) = %+v, want %+v", id, got, l.head)
		}
		if !l.deleted {
			wantEvents(t, readAll(t, s, id, max(l.head.First, 1)-1), l.evs, max(l.head.First, 1))
		}
	}
	n := 0
	for _, table := range []string{store.TableSession, store.TablePrompt, "free"} {
		rows, err := s.Scan(t.Context(), table, "", "", 1000)
		if err != nil {
			t.Fatalf("Scan(%s): %v", table, err)
		}
		n += len(rows)
		for _, r := range rows {
			if want := m.rows[table+"/"+r.Key]; string(r.Value) != want {
				t.Errorf("row %s/%s = %q, want %q", table, r.Key, r.Value, want)
			}
		}
	}
	if n != len(m.rows) {
		t.Errorf("%d rows, want %d", n, len(m.rows))
	}
}
