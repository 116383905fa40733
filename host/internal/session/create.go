package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/store"
)

// birth is a session about to be made.
type birth struct {
	id    frames.SessionID
	rec   *record
	by    *frames.By
	call  frames.CallID
	once  request      // as which it was asked for
	first func(*actor) // the session's first step after its creation

	admitted bool // it is counted in its tree; guarded by the manager's mutex
}

// Create makes a session. With a RequestID that was used before it returns the
// session made then, or [ErrRequestConflict] if that was asked for otherwise.
func (m *Manager) Create(ctx context.Context, c CreateArgs, placed func(frames.Session)) error {
	once, done, err := m.reserve(ctx, c.RequestID, c.asked())
	if err != nil {
		return err
	}
	defer done()
	if s, ok, err := m.created(ctx, once); err != nil || ok {
		return place(placed, s, err)
	}
	b, err := m.conceive(c)
	if err != nil {
		return err
	}
	b.once = once
	_, err = m.bear(b, func(s frames.Session) { _ = place(placed, s, nil) })
	return err
}

// maxName bounds ids that clients choose, in bytes.
const maxName = 256

func place(placed func(frames.Session), s frames.Session, err error) error {
	if err == nil && placed != nil {
		placed(s)
	}
	return err
}

// find makes a session known that is stored though the call that made it was told
// that this was unknown. One that was deleted has no record.
func (m *Manager) find(ctx context.Context, sid frames.SessionID) (frames.Session, bool, error) {
	b, err := m.cfg.Store.Get(ctx, store.TableSession, string(sid))
	if err != nil {
		return frames.Session{}, false, &StorageError{err}
	}
	if b == nil {
		return frames.Session{}, false, nil
	}
	r, err := readRecord(sid, b)
	if err != nil {
		return frames.Session{}, false, &StorageError{err}
	}
	head, err := m.cfg.Store.Head(ctx, sid)
	if err != nil {
		return frames.Session{}, false, &StorageError{err}
	}
	e := r.entry(sid, head)
	m.mu.Lock()
	m.dir.add(e)
	s := m.summary(e)
	m.mu.Unlock()
	m.cfg.Publisher.Add(s, e.first, false)
	return s, true, nil
}

// conceive checks the arguments of a new session.
func (m *Manager) conceive(c CreateArgs) (*birth, error) {
	r := &record{
		Agent: cmp.Or(c.Agent, m.cfg.DefaultAgent), Title: frames.ValidText(c.Title), Parent: c.Parent, Origin: frames.OriginUser,
		Labels: c.Labels, Config: c.Config, Policy: c.Policy, Budget: c.Budget,
	}
	if m.cfg.Drivers[r.Agent] == nil {
		return nil, &UnavailableError{r.Agent, fmt.Errorf("this host has no such agent: ask host.describe for those it has")}
	}
	if err := checkSettings(c.Policy, c.Title, c.Labels); err != nil {
		return nil, err
	}
	if err := checkBudget(c.Budget); err != nil {
		return nil, err
	}
	var err error
	if r.Cwd, err = canonicalDir(c.Cwd); err != nil {
		return nil, err
	}
	if r.Policy, err = m.withRules(c.Policy, r.Agent, r.Cwd); err != nil {
		return nil, err
	}
	r.Own = ownOf(c.Policy, r.Policy)
	if c.Config != nil {
		if err := frames.CheckJSON(c.Config, frames.JSONLimits{Bytes: maxConfig}); err != nil {
			return nil, &ParamError{"config", fmt.Sprintf("want JSON of at most %d bytes: %v", maxConfig, err)}
		}
	}
	return &birth{id: frames.SessionID(m.cfg.NewID()), rec: r, by: c.By}, nil
}

// maxConfig bounds config and options; maxTitle and maxLabels what people name
// sessions with. In bytes.
const (
	maxConfig = 32 << 10
	maxTitle  = 1 << 10
	maxLabels = 16 << 10
)

// checkSettings checks what session.create and session.configure have in
// common.
func checkSettings(p *frames.Policy, title string, labels map[string]string) error {
	if p != nil {
		if err := pending.CheckPolicy(*p); err != nil {
			return &ParamError{"policy", err.Error()}
		}
		if b, err := json.Marshal(p); err != nil || len(b) > maxInput {
			return &ParamError{"policy", fmt.Sprintf("its rules take %d bytes as JSON, want at most %d", len(b), maxInput)}
		}
	}
	if len(title) > maxTitle {
		return &ParamError{"title", fmt.Sprintf("want at most %d bytes, got %d", maxTitle, len(title))}
	}
	size := 0
	for k, v := range labels {
		size += len(k) + len(v) + 8
	}
	if size > maxLabels {
		return &ParamError{"labels", fmt.Sprintf("want at most %d bytes in all, got %d", maxLabels, size)}
	}
	return nil
}

// canonicalDir returns the directory without symlinks.
func canonicalDir(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", &ParamError{"cwd", fmt.Sprintf("want an absolute path, got %q", dir)}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", &ParamError{"cwd", fmt.Sprintf("want a directory that exists: %v: make it first", err)}
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", &ParamError{"cwd", fmt.Sprintf("want a directory, %q is none", dir)}
	}
	return real, nil
}

// knownDir returns the name under which the sessions of a directory are stored;
// the directory may be gone. An empty name stays empty.
func knownDir(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	if !filepath.IsAbs(dir) {
		return "", &ParamError{"cwd", fmt.Sprintf("want an absolute path, got %q", dir)}
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	return filepath.Clean(dir), nil
}

// bear makes the session: its first event and record are stored, then placed is
// called, then it is announced. It returns the session's actor.
func (m *Manager) bear(b *birth, placed func(frames.Session)) (*actor, error) {
	e := &entry{id: b.id}
	born, err := m.adopt(b)
	if err != nil {
		return nil, err
	}
	defer born()
	a := newActor(m, e)
	a.born, a.loaded, a.quiet = true, true, true
	if b.first != nil {
		a.first = func() { b.first(a) }
	}
	c := b.commit(e.id)
	c.then = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		e.sum = a.rec.summary(e.id, a.head)
		e.counted, b.admitted = b.admitted, false
		m.dir.add(e)
		e.actor = a
	}
	var s frames.Session
	c.placed = func() {
		s, _ = m.Get(e.id)
		placed(s)
	}
	if err := a.commit(c); err != nil {
		return nil, err
	}
	m.cfg.Publisher.Add(s, e.first, true)
	a.quiet = false
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wg.Go(a.run)
	return a, nil
}

// adopt gives a new session its place in a tree, and counts it among the births
// that Shutdown, and whoever closes the parent, waits for until born is called.
func (m *Manager) adopt(b *birth) (born func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.admit(b); err != nil {
		m.withdraw(b)
		return nil, err
	}
	b.rec.CreatedAt = now()
	m.births.Add(1)
	p := m.dir.byID[b.rec.Parent]
	if p != nil {
		p.births.Add(1)
	}
	return func() {
		m.mu.Lock()
		m.withdraw(b)
		m.mu.Unlock()
		if p != nil {
			p.births.Done()
		}
		m.births.Done()
	}, nil
}

// commit is the first step of a session.
func (b *birth) commit(sid frames.SessionID) *commit {
	r := b.rec
	c := &commit{by: b.by, next: r}
	c.add(frames.SessionCreated{
		Agent: r.Agent, Cwd: r.Cwd, Title: r.Title, ParentSessionID: r.Parent, RootSessionID: r.Root, Depth: r.Depth,
		Origin: r.Origin, CallID: b.call, Config: r.Config, Policy: r.Policy, Budget: r.Budget, Labels: r.Labels,
	})
	c.rows = append(c.rows, b.once.rows(sid)...)
	return c
}
