package pending

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Config sets up a [Table]. The zero value works, without grants.
type Config struct {
	// Now tells the time; nil means [time.Now].
	Now func() time.Time
	// Grants keeps the stored "always" answers. With nil, allowed-always is
	// refused.
	Grants GrantStore
	// NewID mints grant ids; nil means random ones.
	NewID func() string
	// MaxOpen and MaxOpenEach bound the open requests of all sessions and of
	// one; beyond that Ask returns [ErrFull]. Default 10,000 and 1,000.
	MaxOpen     int
	MaxOpenEach int
	// RecordTimeout bounds one call of a recorder, an opened callback or the
	// grant store. Default 30 s.
	RecordTimeout time.Duration
	// Keep and KeepFor say how many settled requests are remembered: at least
	// the Keep latest, and all of the last KeepFor. Default 10,000 and 1 h.
	// Beyond 20 times Keep the oldest are forgotten whatever their age.
	Keep    int
	KeepFor time.Duration
}

// Table is the host's pending table. All methods are safe for concurrent use.
type Table struct {
	cfg    Config
	grants *Grants

	// base ends when Shutdown gives up; it cuts the recorders short.
	base context.Context //nolint:containedctx // the lifetime of the goroutines below
	stop context.CancelFunc
	// wg counts the goroutines that record what no client answered. Goroutines
	// are added under mu only, so that none is missed by Shutdown's wait.
	wg sync.WaitGroup

	// yield is called at the decision points, and gap between the check and
	// the claim with mu released: the model check sets them, nobody else.
	yield func()
	gap   func()

	// mu guards everything below and the entries' fields; it is held for map
	// operations only. The grants' mutex may be taken under it.
	mu        sync.Mutex
	next      uint64
	byID      map[frames.RequestID]*entry // open, or claimed and not yet final
	open      map[frames.SessionID]map[*entry]struct{}
	below     map[frames.SessionID]int // open requests of descendants
	openCount int
	recording map[*entry]struct{} // claimed and not yet recorded
	marks     map[turnKey]frames.Cause
	past      memory
	draining  bool
}

type turnKey struct {
	session frames.SessionID
	turn    frames.TurnID
}

// entry is one request on its way: open, claimed (somebody won), final (the
// settlement stands), recorded (the recorder is done).
type entry struct {
	req Request
	rec Recorder
	n   uint64

	opened   chan struct{} // closed when the opened callback has returned
	final    chan struct{} // closed when s is final
	recorded chan struct{} // closed when the recorder is done

	claimed bool
	seen    bool       // a client may know the request though opening it failed
	openErr error      // final once opened is closed
	s       Settlement // how it ended, once final is closed
	err     error      // for Ask: why it could not be asked or stored
}

// New returns an empty table.
func New(cfg Config) *Table {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = randomID
	}
	cfg.MaxOpen = orDefault(cfg.MaxOpen, 10_000)
	cfg.MaxOpenEach = orDefault(cfg.MaxOpenEach, 1000)
	cfg.Keep = orDefault(cfg.Keep, 10_000)
	cfg.KeepFor = orDefault(cfg.KeepFor, time.Hour)
	cfg.RecordTimeout = orDefault(cfg.RecordTimeout, 30*time.Second)
	base, stop := context.WithCancel(context.Background())
	return &Table{
		cfg: cfg, grants: newGrants(cfg), base: base, stop: stop,
		byID:      make(map[frames.RequestID]*entry),
		open:      make(map[frames.SessionID]map[*entry]struct{}),
		below:     make(map[frames.SessionID]int),
		recording: make(map[*entry]struct{}),
		marks:     make(map[turnKey]frames.Cause),
		past:      newMemory(cfg.Keep, cfg.KeepFor),
	}
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Grants returns the stored "always" answers.
func (t *Table) Grants() *Grants { return t.grants }

// Open returns what is pending in the given sessions, oldest first. A request is
// listed from before its opened callback runs, so that a list taken before
// attaching to the frames may repeat a request but never miss one, and no longer
// once somebody has won it.
func (t *Table) Open(sessions ...frames.SessionID) []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	var es []*entry
	for _, s := range sessions {
		es = append(es, t.openOf(s)...)
	}
	return requests(es)
}

// OpenAll returns everything that is pending, oldest first.
func (t *Table) OpenAll() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return requests(t.allOpen())
}

// Counts returns how many requests are pending in the session itself and in its
// descendants.
func (t *Table) Counts(session frames.SessionID) (own, below int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open[session]), t.below[session]
}

// openOf returns the open entries of a session in any order. mu is held.
func (t *Table) openOf(session frames.SessionID) []*entry {
	es := make([]*entry, 0, len(t.open[session]))
	for e := range t.open[session] {
		es = append(es, e)
	}
	return es
}

// allOpen returns all open entries in any order. mu is held.
func (t *Table) allOpen() []*entry {
	es := make([]*entry, 0, t.openCount)
	for s := range t.open {
		es = append(es, t.openOf(s)...)
	}
	return es
}

// requests sorts es by age and returns what they ask; they count as seen from now
// on. The table's mu is held.
func requests(es []*entry) []Request {
	byAge(es)
	es = slices.Compact(es)
	rs := make([]Request, len(es))
	for i, e := range es {
		e.seen = true
		rs[i] = e.req
	}
	return rs
}

func byAge(es []*entry) {
	slices.SortFunc(es, func(a, b *entry) int { return cmp.Compare(a.n, b.n) })
}

// insert adds r as an open entry. It returns nil and the settlement if r may not
// be asked.
func (t *Table) insert(r Request, rec Recorder) (*entry, Settlement, error) {
	now := t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.draining {
		return nil, cancelled(frames.CauseShutdown, now), nil
	}
	if c, ok := t.marks[turnKey{r.Session, r.Turn}]; ok {
		return nil, cancelled(c, now), nil
	}
	if t.byID[r.ID] != nil || t.past.find(r.ID) != nil {
		return nil, unavailable(r.Kind, now), &InvalidRequestError{ID: r.ID, Want: "an id that was not used before"}
	}
	if t.openCount >= t.cfg.MaxOpen || len(t.open[r.Session]) >= t.cfg.MaxOpenEach {
		return nil, unavailable(r.Kind, now), ErrFull
	}
	t.next++
	e := &entry{
		req: r, rec: rec, n: t.next,
		opened: make(chan struct{}), final: make(chan struct{}), recorded: make(chan struct{}),
	}
	t.byID[r.ID] = e
	if t.open[r.Session] == nil {
		t.open[r.Session] = make(map[*entry]struct{})
	}
	t.open[r.Session][e] = struct{}{}
	t.openCount++
	for _, a := range r.Ancestors {
		t.below[a]++
	}
	return e, Settlement{}, nil
}

// claim makes s the settlement of e unless somebody was first. What does not
// allow is final at once. mu is held.
func (t *Table) claim(e *entry, s Settlement) bool {
	if e.claimed {
		return false
	}
	if t.gap != nil {
		t.mu.Unlock()
		t.gap()
		t.mu.Lock()
	}
	t.leaveOpen(e)
	e.claimed = true
	t.recording[e] = struct{}{}
	if !s.Outcome.Allows() {
		t.finish(e, s, nil)
	}
	return true
}

// leaveOpen takes e off the lists of what is open. mu is held.
func (t *Table) leaveOpen(e *entry) {
	if _, ok := t.open[e.req.Session][e]; !ok {
		return
	}
	delete(t.open[e.req.Session], e)
	if len(t.open[e.req.Session]) == 0 {
		delete(t.open, e.req.Session)
	}
	t.openCount--
	for _, a := range e.req.Ancestors {
		if t.below[a]--; t.below[a] == 0 {
			delete(t.below, a)
		}
	}
}

// finish makes s final and wakes whoever waits for it. mu is held.
func (t *Table) finish(e *entry, s Settlement, err error) {
	if closed(e.final) {
		return
	}
	e.s, e.err = s, err
	close(e.final)
	delete(t.byID, e.req.ID)
	t.past.add(t.cfg.Now(), past{id: e.req.ID, session: e.req.Session, kind: e.req.Kind, s: s})
}

// decided marks e as recorded.
func (t *Table) decided(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.recording, e)
	if !closed(e.recorded) {
		close(e.recorded)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// atPoint lets the model check change the schedule.
func (t *Table) atPoint() {
	if t.yield != nil {
		t.yield()
	}
}
