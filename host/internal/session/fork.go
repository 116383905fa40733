package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// ForkArgs are those of session.fork.
type ForkArgs struct {
	By      *frames.By
	Session frames.SessionID
	// At is the seq of a `turn/end`; nil is the last one.
	At *frames.Seq
	// Title is the fork's; "" is the source's.
	Title     string
	RequestID string
}

// Fork makes a session that goes on from the end of a turn of another. started is
// called once it is known what is copied, so that the source's next calls need not
// wait; placed once the fork is durable. With a RequestID that was used before it
// returns the session made then. An error leaves no session behind.
func (m *Manager) Fork(ctx context.Context, f ForkArgs, started func(), placed func(frames.Session)) error {
	if err := checkSettings(nil, f.Title, nil); err != nil {
		return err
	}
	once, done, err := m.reserve(ctx, f.RequestID, f.asked())
	if err != nil {
		return err
	}
	defer done()
	if s, ok, err := m.created(ctx, once); err != nil || ok {
		return place(placed, s, err)
	}
	at, err := m.forkPoint(ctx, f.Session, f.At)
	if _, ok := m.noticed(f.Session, err); ok { // it was trimmed meanwhile
		at, err = m.forkPoint(ctx, f.Session, f.At)
	}
	if err != nil {
		return err
	}
	b, err := m.conceiveFork(ctx, f)
	if err != nil {
		return err
	}
	b.once = once
	born, err := m.adopt(b)
	if err != nil {
		return err
	}
	defer born()
	if started != nil {
		started()
	}
	return m.bearFork(ctx, b, frames.ForkPoint{SessionID: f.Session, Seq: at}, placed)
}

// conceiveFork takes over what governs the source now: a rule that was added
// since the turn that the fork goes on from holds for the fork too.
func (m *Manager) conceiveFork(ctx context.Context, f ForkArgs) (*birth, error) {
	v, err := m.cfg.Store.Get(ctx, store.TableSession, string(f.Session))
	if err != nil {
		return nil, &StorageError{err}
	}
	if v == nil {
		return nil, ErrNoSession
	}
	src, err := readRecord(f.Session, v)
	if err != nil {
		return nil, &StorageError{err}
	}
	return &birth{id: frames.SessionID(m.cfg.NewID()), by: f.By, rec: &record{
		Agent: src.Agent, Cwd: src.Cwd, Title: cmp.Or(frames.ValidText(f.Title), src.Title),
		Titled: f.Title == "" && src.Titled, Named: f.Title == "" && src.Named,
		Parent: f.Session, Origin: frames.OriginFork,
		Labels: src.Labels, Config: src.Config, Policy: src.Policy, Own: src.Own, Budget: src.Budget,
	}}, nil
}

// bearFork copies the log and makes the fork known. Until its record is stored,
// which is the last step, the log is marked and no session: where the host stops
// in between, or anything fails, it is removed.
func (m *Manager) bearFork(ctx context.Context, b *birth, from frames.ForkPoint, placed func(frames.Session)) error {
	c, err := m.copyLog(ctx, b, from)
	for range maxTrims {
		if !errors.Is(err, errTrimmedUnder) {
			break
		}
		b.id = frames.SessionID(m.cfg.NewID()) // the old id is that of a deleted log
		c, err = m.copyLog(ctx, b, from)
	}
	if err != nil {
		return err
	}
	e := b.rec.entry(b.id, c.head)
	a := newActor(m, e)
	a.born = true
	m.mu.Lock()
	e.counted, b.admitted = b.admitted, false
	m.dir.add(e)
	e.actor = a
	s := m.summary(e)
	m.mu.Unlock()
	_ = place(placed, s, nil)
	m.cfg.Publisher.Add(s, e.first, true)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wg.Go(a.run)
	return nil
}

// errTrimmedUnder means that the source was trimmed while it was copied; maxTrims
// bounds how often it is begun anew.
var errTrimmedUnder = fmt.Errorf("session: the source was trimmed while it was forked: %w", store.ErrTrimmed)

const maxTrims = 3

// copyLog makes the fork's log and its record; on an error it removes them.
func (m *Manager) copyLog(ctx context.Context, b *birth, from frames.ForkPoint) (*copying, error) {
	c := &copying{m: m, b: b, from: from, contexts: map[frames.PromptID][]frames.ContentBlock{}}
	err := c.run(ctx)
	if err == nil {
		return c, nil
	}
	if derr := m.dropHalf(m.io, b.id); derr != nil {
		m.log.Error("a fork that failed is removed at the next start", "session", string(b.id), "error", derr)
	}
	return nil, err
}

// halfMark is the value of the dirty row of a log that is being copied.
const halfMark = "fork"

// Unfinished reports whether a row says that the log of its key is a fork's that is
// being copied. Such a log is no session, and is removed at the next start.
func Unfinished(r store.Row) bool {
	return r.Table == store.TableDirty && string(r.Value) == halfMark
}

// dropHalf removes a log that is being copied, and its rows.
func (m *Manager) dropHalf(ctx context.Context, sid frames.SessionID) error {
	head, err := m.cfg.Store.Head(ctx, sid)
	switch {
	case err != nil:
		return err
	case head.Seq == 0 && !head.Deleted: // nothing but rows
		return m.cfg.Store.Put(ctx,
			store.Row{Table: store.TableDirty, Key: string(sid)}, store.Row{Table: store.TableBase, Key: string(sid)})
	}
	return m.cfg.Store.Delete(ctx, sid, head)
}

// dropHalves removes the forks that were being copied when the host stopped.
func (m *Manager) dropHalves(ctx context.Context) error {
	after := ""
	for {
		rows, err := m.cfg.Store.Scan(ctx, store.TableDirty, "", after, 0)
		if err != nil {
			return fmt.Errorf("look for unfinished forks: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		for _, r := range rows {
			after = r.Key
			if !Unfinished(r) {
				continue
			}
			if err := m.dropHalf(ctx, frames.SessionID(r.Key)); err != nil {
				m.log.Error("an unfinished fork could not be removed yet", "session", r.Key, "error", err)
			}
		}
	}
}
