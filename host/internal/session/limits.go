package session

import (
	"fmt"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// tree is what the sessions of one tree share. The manager's mutex guards it.
type tree struct {
	sessions int // made, and being made
	rate     bucket
}

// treeOf returns the tree of a root, which may be gone by now.
func (d *directory) treeOf(root frames.SessionID) *tree {
	t := d.trees[root]
	if t == nil {
		t = &tree{}
		d.trees[root] = t
	}
	return t
}

// shrink takes one session from the tree of a root.
func (d *directory) shrink(root frames.SessionID) {
	if t := d.trees[root]; t != nil {
		if t.sessions--; t.sessions == 0 {
			delete(d.trees, root)
		}
	}
}

// bucket is a token bucket that holds one minute's tokens. The zero bucket is
// full.
type bucket struct{ full time.Time } // when it is full again

// take takes a token, or returns how long to wait for one.
func (b *bucket) take(now time.Time, perMinute int) (wait time.Duration) {
	each := time.Minute / time.Duration(perMinute)
	full := b.full
	if full.Before(now) {
		full = now
	}
	full = full.Add(each)
	if wait = full.Sub(now) - each*time.Duration(perMinute); wait > 0 {
		return wait
	}
	b.full = full
	return 0
}

// admit gives a session that is about to be made its place in a tree: it takes
// the lineage from the parent, and refuses what goes beyond the limits of trees.
// Creates, spawns and forks pass here before anything is stored; what was
// admitted before is only checked again. Whoever makes no session of it after all
// calls withdraw. mu is held.
func (m *Manager) admit(b *birth) error {
	if m.draining {
		return ErrDraining
	}
	p, err := m.inherit(b)
	if err != nil || b.admitted {
		return err
	}
	if p != nil {
		if err := m.room(p); err != nil {
			return err
		}
	}
	m.dir.treeOf(b.rec.Root).sessions++
	b.admitted = true
	return nil
}

// withdraw gives back the place of a session that is not made. mu is held.
func (m *Manager) withdraw(b *birth) {
	if b.admitted {
		b.admitted = false
		m.dir.shrink(b.rec.Root)
	}
}

// inherit takes the lineage from the parent, which it returns: nil for a root. mu
// is held.
func (m *Manager) inherit(b *birth) (*entry, error) {
	r := b.rec
	if r.Parent == "" {
		r.Root = b.id
		return nil, nil //nolint:nilnil // a root has no parent
	}
	p := m.dir.byID[r.Parent]
	switch {
	case p == nil:
		return nil, &ParamError{"parentSessionId", "there is no such session: list the sessions"}
	case p.closing > 0:
		return nil, ErrClosing
	case p.sum.Depth+1 > m.cfg.MaxDepth:
		return nil, &ParamError{"parentSessionId", fmt.Sprintf("the tree is %d levels deep, want at most %d", p.sum.Depth+1, m.cfg.MaxDepth)}
	}
	r.Root, r.Depth = p.sum.RootSessionID, p.sum.Depth+1
	return p, nil
}

// room refuses a new child of p where its tree is full, has no budget left or
// grows too fast. mu is held.
func (m *Manager) room(p *entry) error {
	t := m.dir.treeOf(p.sum.RootSessionID)
	if t.sessions >= m.cfg.MaxTree {
		return &ParamError{"parentSessionId", fmt.Sprintf("the tree has %d sessions, want at most %d: delete some", t.sessions, m.cfg.MaxTree)}
	}
	if err := p.covered(true); err != nil {
		return err
	}
	if wait := t.rate.take(time.Now(), m.cfg.SpawnRate); wait > 0 {
		return &RateError{PerMinute: m.cfg.SpawnRate, Wait: wait}
	}
	return nil
}
