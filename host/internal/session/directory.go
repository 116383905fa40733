package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// entry is what the directory knows of a session, live or cold. The manager's
// mutex guards its fields.
type entry struct {
	id         frames.SessionID
	sum        frames.Session // State, Pending and PendingBelow are not kept here
	first      frames.Seq
	grown      int64 // bytes of the events appended since the host started
	policy     *frames.Policy
	own        *frames.Policy // see record
	budget     *frames.Budget
	warned     []string // limits of the budget that were warned of
	spent      expense  // what it used
	spentBelow expense  // what its descendants used
	parent     *entry   // nil for a root, and where the parent was deleted
	children   []*entry
	counted    bool // in its tree, before it was in the directory

	works   *works              // tasks since it woke; nil while cold
	actor   *actor              // nil while cold
	turn    *turn               // the running turn
	hush    *mark               // what last called off requests outside of turns
	kids    map[*child]struct{} // started here, and their end is not told
	closing int                 // calls that close or delete it, or wait to
	door    chan struct{}       // capacity 1; full while one of them does
	// births counts children being made. Added to under the mutex, while
	// nobody closes the session.
	births sync.WaitGroup
	// cold counts status frames being published for the cold session; an actor
	// waits for them before it publishes. Added to under the mutex, while cold.
	cold sync.WaitGroup
}

// entry returns what the directory knows of a session that is cold.
func (r *record) entry(sid frames.SessionID, head store.Head) *entry {
	return &entry{
		id: sid, sum: r.summary(sid, head), first: head.First, policy: r.Policy, own: r.Own,
		budget: r.Budget, warned: r.Warned, spent: expense{r.spending(nil), r.Turns},
		spentBelow: expense{r.Left.used, r.Left.Turns},
	}
}

// MaxList is the largest page of a list; DefaultList the usual one.
const (
	MaxList     = 1000
	DefaultList = 100
)

// directory holds all sessions, ordered by age. Its owner locks.
type directory struct {
	byID  map[frames.SessionID]*entry
	order []*entry                   // oldest first
	trees map[frames.SessionID]*tree // by root
}

func older(a, b *entry) int {
	return cmp.Or(a.sum.CreatedAt.Compare(b.sum.CreatedAt.Time), cmp.Compare(a.id, b.id))
}

// add puts e in its place; parents come before children.
func (d *directory) add(e *entry) {
	d.byID[e.id] = e
	at, _ := slices.BinarySearchFunc(d.order, e, older)
	d.order = slices.Insert(d.order, at, e)
	d.link(e)
}

// link ties e to its parent and counts it in its tree.
func (d *directory) link(e *entry) {
	if p := d.byID[e.sum.ParentSessionID]; p != nil {
		e.parent = p
		p.children = append(p.children, e)
	}
	all := e.total()
	for _, p := range e.ancestors() {
		p.spentBelow = expense{p.spentBelow.plus(all.used), p.spentBelow.turns + all.turns}
	}
	if !e.counted {
		e.counted = true
		d.treeOf(e.sum.RootSessionID).sessions++
	}
}

func (d *directory) remove(e *entry) {
	delete(d.byID, e.id)
	d.order = slices.DeleteFunc(d.order, func(o *entry) bool { return o == e })
	if e.parent != nil {
		e.parent.children = slices.DeleteFunc(e.parent.children, func(o *entry) bool { return o == e })
	}
	for _, c := range e.children {
		c.parent = nil
	}
	d.shrink(e.sum.RootSessionID)
}

// below returns e's descendants, parents first.
func (e *entry) below() []*entry {
	out := slices.Clone(e.children)
	for i := 0; i < len(out); i++ {
		out = append(out, out[i].children...)
	}
	return out
}

// ancestors returns e's ancestors, nearest first.
func (e *entry) ancestors() []*entry {
	var out []*entry
	for p := e.parent; p != nil; p = p.parent {
		out = append(out, p)
	}
	return out
}

// in reports whether e is root or below it.
func (e *entry) in(root frames.SessionID) bool {
	for ; e != nil; e = e.parent {
		if e.id == root {
			return true
		}
	}
	return false
}

// matches reports whether e passes the parts of f that need no status.
func (e *entry) matches(f *Filter) bool {
	s := &e.sum
	switch {
	case f.Roots && s.ParentSessionID != "",
		f.Parent != "" && s.ParentSessionID != f.Parent,
		f.Tree != "" && !e.in(f.Tree),
		f.Cwd != "" && s.Cwd != f.Cwd,
		f.Within != nil && !slices.ContainsFunc(f.Within, e.in):
		return false
	}
	return f.Text == "" || hasText(s, f.Text)
}

// hasText looks for text in what people see of a session; case does not count.
func hasText(s *frames.Session, text string) bool {
	text = strings.ToLower(text)
	for _, v := range []string{s.Title, s.Cwd, s.Agent} {
		if strings.Contains(strings.ToLower(v), text) {
			return true
		}
	}
	for k, v := range s.Labels {
		if strings.Contains(strings.ToLower(k+"="+v), text) {
			return true
		}
	}
	return false
}

// before returns the sessions older than the cursor's, oldest first. A cursor
// names the place, not the session: that one may be deleted meanwhile.
func (d *directory) before(cursor string) ([]*entry, error) {
	if cursor == "" {
		return d.order, nil
	}
	ts, id, ok := strings.Cut(cursor, "~")
	var at frames.Time
	if err := at.UnmarshalJSON([]byte(`"` + ts + `"`)); !ok || err != nil {
		return nil, &ParamError{"cursor", fmt.Sprintf("want the next of an earlier page, got %q: list from the start", cursor)}
	}
	key := &entry{id: frames.SessionID(id), sum: frames.Session{CreatedAt: at}}
	n, _ := slices.BinarySearchFunc(d.order, key, older)
	return d.order[:n], nil
}

func (e *entry) cursor() string { return e.sum.CreatedAt.String() + "~" + string(e.id) }

// List returns the sessions that f selects, newest first, and the cursor of the
// next page, "" at the end. It reads no log.
func (m *Manager) List(f Filter) (sessions []frames.Session, next string, err error) {
	limit := min(cmp.Or(max(f.Limit, 0), DefaultList), MaxList)
	if f.Cwd, err = knownDir(f.Cwd); err != nil {
		return nil, "", err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	rest, err := m.dir.before(f.Cursor)
	if err != nil {
		return nil, "", err
	}
	sessions = make([]frames.Session, 0, min(limit, len(rest)))
	var last *entry
	for _, e := range slices.Backward(rest) {
		if !e.matches(&f) {
			continue
		}
		s := m.summary(e)
		if f.State != "" && s.State != f.State {
			continue
		}
		if len(sessions) == limit {
			return sessions, last.cursor(), nil
		}
		sessions, last = append(sessions, s), e
	}
	return sessions, "", nil
}

// Get returns the summary of a session.
func (m *Manager) Get(sid frames.SessionID) (frames.Session, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.dir.byID[sid]
	if e == nil {
		return frames.Session{}, false
	}
	return m.summary(e), true
}

// Ancestors returns the session's parents, nearest first.
func (m *Manager) Ancestors(sid frames.SessionID) []frames.SessionID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.dir.byID[sid]
	if e == nil {
		return nil
	}
	return ids(e.ancestors())
}

func ids(es []*entry) []frames.SessionID {
	out := make([]frames.SessionID, len(es))
	for i, e := range es {
		out[i] = e.id
	}
	return out
}

// summary returns e's summary with its status. mu is held.
func (m *Manager) summary(e *entry) frames.Session {
	s, st := e.sum, m.status(e)
	s.State, s.Pending, s.PendingBelow = st.State, st.Pending, st.PendingBelow
	return s
}

// status returns what e does now. mu is held.
func (m *Manager) status(e *entry) frames.SessionStatus {
	st := frames.SessionStatus{SessionID: e.id, State: frames.StateIdle}
	st.Pending, st.PendingBelow = m.table.Counts(e.id)
	if e.turn != nil {
		st.State, st.TurnID = frames.StateRunning, e.turn.id
	}
	if st.Pending > 0 {
		st.State = frames.StateRequiresAction
	}
	return st
}

// fill adds many sessions at once, in any order.
func (d *directory) fill(es []*entry) {
	d.order = slices.SortedFunc(slices.Values(es), older)
	for _, e := range es {
		d.byID[e.id] = e
	}
	for _, e := range d.order {
		d.link(e)
	}
}
