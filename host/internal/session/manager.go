package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/store"
)

// Manager owns all sessions of a host. Its methods are safe for concurrent use.
// Whoever makes one ends it with [Manager.Shutdown].
type Manager struct {
	cfg   Config
	log   *slog.Logger
	table *pending.Table
	types map[frames.EventType]frames.Class
	// io is the context of what must be finished: it is never cancelled.
	io context.Context //nolint:containedctx // the lifetime of the goroutines below
	// wg counts actors, turns, and what they started.
	wg sync.WaitGroup
	// births counts sessions being made; added to under mu, unless draining.
	births sync.WaitGroup

	// mu guards the directory, its entries, the marks of turns and what
	// follows. Nothing blocks or calls out under it, but for the pending
	// table's counts, whose mutex may be taken under it.
	mu       sync.RWMutex
	dir      directory
	draining bool
	stopping bool                     // turns are being interrupted
	stopped  bool                     // no actor starts any more
	creating map[string]chan struct{} // request ids on their way
	cards    map[frames.RequestID]frames.Frame
	keeper   *keeper       // nil: everything is kept; set once, by New
	views    views         // has its own mutex
	running  int           // turns, and requests outside of them
	quiet    chan struct{} // closed when running falls to 0 while draining
}

var _ api = (*Manager)(nil)

// New reads the sessions from the store, repairs the logs of those that were
// running when the host stopped, and makes all known to the publisher. It reads
// no other log.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if err := check(&cfg); err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, log: cfg.Logger, io: context.WithoutCancel(ctx),
		types:    map[frames.EventType]frames.Class{},
		dir:      directory{byID: map[frames.SessionID]*entry{}, trees: map[frames.SessionID]*tree{}},
		creating: map[string]chan struct{}{},
		cards:    map[frames.RequestID]frames.Frame{},
	}
	for _, t := range frames.EventTypes() {
		m.types[t.Type] = t.Class
	}
	m.table = pending.New(pending.Config{Grants: grantRows{cfg.Store}, NewID: cfg.NewID})
	if err := m.table.Grants().Load(ctx); err != nil {
		return nil, err
	}
	if err := m.dropHalves(ctx); err != nil {
		return nil, err
	}
	if err := m.loadAll(ctx); err != nil {
		return nil, err
	}
	if err := m.repairAll(ctx); err != nil {
		return nil, err
	}
	for _, e := range m.dir.order {
		cfg.Publisher.Add(m.summary(e), e.first, false)
	}
	m.startKeeper()
	return m, nil
}

// check fills in the defaults.
func check(cfg *Config) error {
	switch {
	case cfg.Store == nil || cfg.Publisher == nil || cfg.NewID == nil:
		return errors.New("session: Store, Publisher and NewID are required")
	case cfg.DefaultAgent != "" && cfg.Drivers[cfg.DefaultAgent] == nil:
		return fmt.Errorf("session: the default agent %q has no driver", cfg.DefaultAgent)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.IdleAfter = cmp.Or(cfg.IdleAfter, 5*time.Minute)
	cfg.AskTimeout = cmp.Or(cfg.AskTimeout, pending.DefaultAskTimeout)
	cfg.MaxQueue = cmp.Or(cfg.MaxQueue, 64)
	cfg.MaxDepth = cmp.Or(cfg.MaxDepth, 16)
	cfg.MaxTree = cmp.Or(cfg.MaxTree, 1000)
	cfg.SpawnRate = cmp.Or(cfg.SpawnRate, 60)
	return nil
}

// loadAll fills the directory from the store's summaries.
func (m *Manager) loadAll(ctx context.Context) error {
	var after frames.SessionID
	var all []*entry
	for {
		page, err := m.cfg.Store.List(ctx, "", after, MaxList)
		if err != nil {
			return fmt.Errorf("list the sessions: %w", err)
		}
		for _, s := range page {
			after = s.SessionID
			r, err := readRecord(s.SessionID, s.Record)
			if err != nil {
				m.log.Error("a session is left out", "session", string(s.SessionID), "error", err)
				continue
			}
			all = append(all, r.entry(s.SessionID, s.Head))
		}
		if len(page) == 0 {
			break
		}
	}
	m.dir.fill(all)
	return nil
}

// live returns the session's actor, and starts it if the session is cold.
func (m *Manager) live(sid frames.SessionID) (*actor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.dir.byID[sid]
	switch {
	case e == nil:
		return nil, ErrNoSession
	case e.actor != nil:
		return e.actor, nil
	case m.stopped:
		return nil, ErrDraining
	}
	e.actor = newActor(m, e)
	m.wg.Go(e.actor.run)
	return e.actor, nil
}

// in runs step in the session's actor, once the session is loaded and whatever
// could not be stored before is. Whatever woke the session, what was queued in it
// runs then.
func (m *Manager) in(ctx context.Context, sid frames.SessionID, step func(*actor) error) error {
	return m.inActor(ctx, sid, func(a *actor) error {
		if err := a.ready(); err != nil {
			return err
		}
		defer a.startNext()
		return step(a)
	})
}

// bare runs step in the session's actor, as it is.
func (m *Manager) bare(sid frames.SessionID, step func(*actor) error) error {
	return m.inActor(m.io, sid, step)
}

func (m *Manager) inActor(ctx context.Context, sid frames.SessionID, step func(*actor) error) error {
	for {
		a, err := m.live(sid)
		if err != nil {
			return err
		}
		if err := a.do(ctx, func() error { return step(a) }); err != errGone {
			return err
		}
	}
}

// pokeAbove tells the ancestors of e that what is pending below changed.
func (m *Manager) pokeAbove(e *entry) {
	m.mu.Lock()
	var cold []*entry
	for _, p := range e.ancestors() {
		if p.actor == nil {
			p.cold.Add(1)
			cold = append(cold, p)
			continue
		}
		select {
		case p.actor.poke <- struct{}{}:
		default:
		}
	}
	m.mu.Unlock()
	for _, p := range cold {
		m.showCold(p)
		p.cold.Done()
	}
}

// showCold publishes the status of a cold session until what was published is
// still so afterwards: others may do the same at the same time.
func (m *Manager) showCold(e *entry) {
	for {
		m.mu.RLock()
		st := m.status(e)
		m.mu.RUnlock()
		m.cfg.Publisher.Publish(e.id, Update{Status: &st})
		m.mu.RLock()
		same := m.status(e) == st
		m.mu.RUnlock()
		if same {
			return
		}
	}
}

// began and finished count a running turn. mu is held.
func (m *Manager) began(e *entry, t *turn) {
	e.turn = t
	m.running++
}

func (m *Manager) finished(e *entry) {
	e.turn = nil
	m.rests()
}

// rests says that one thing less is running. mu is held.
func (m *Manager) rests() {
	if m.running--; m.running == 0 && m.quiet != nil {
		close(m.quiet)
		m.quiet = nil
	}
}

// load reads a cold session; where the host stopped while it ran, it is
// repaired first.
func (a *actor) load() error {
	head, err := a.m.cfg.Store.Head(a.m.io, a.id)
	if err != nil {
		return &StorageError{err}
	}
	b, err := a.m.cfg.Store.Get(a.m.io, store.TableSession, string(a.id))
	if err != nil {
		return &StorageError{err}
	}
	rec, err := readRecord(a.id, b)
	if err != nil {
		return &StorageError{err}
	}
	a.head, a.rec = head, rec
	if err := a.loadContents(); err != nil {
		return err
	}
	if rec.dirty() {
		if err := a.repair(); err != nil {
			return err
		}
	}
	if err := a.review(); err != nil {
		return err
	}
	a.loaded = true
	return nil
}

// loadContents reads what the waiting prompts say.
func (a *actor) loadContents() error {
	for _, id := range a.rec.waiting() {
		p, err := a.m.prompted(a.m.io, a.id, id)
		if err != nil {
			return err
		}
		if p != nil {
			a.contents[id] = p.Content
		}
	}
	return nil
}
