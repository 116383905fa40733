package pending

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Scope says where a grant holds.
type Scope string

// The scopes of a grant.
const (
	// ScopeSession covers the session tree in which it was given.
	ScopeSession Scope = "session"
	// ScopeProject covers every session in the same cwd.
	ScopeProject Scope = "project"
)

// Bounds of grants.
const (
	DefaultGrantFor = 8 * time.Hour
	MaxGrantFor     = 30 * 24 * time.Hour
	// MaxGrants is how many grants may hold at once.
	MaxGrants = 10_000
	// MaxGrantInput bounds the canonical input of a grant, in bytes.
	MaxGrantInput = 64 << 10
)

// GrantRequest says what an allowed-always is to cover.
type GrantRequest struct {
	// Scope defaults to ScopeSession.
	Scope Scope
	// For is how long it holds; 0 means DefaultGrantFor, at most MaxGrantFor.
	For time.Duration
	// Below is the session whose tree it covers, the one that asked or one above it,
	// for who sees no more; "" means the root.
	Below frames.SessionID
}

// Grant is a stored "always": it allows calls of exactly one tool with exactly
// one input, by one agent in one cwd.
type Grant struct {
	ID    frames.GrantID `json:"id"`
	Agent string         `json:"agent"`
	Tool  string         `json:"tool"`
	Cwd   string         `json:"cwd"`
	// Input is the canonical input, whole. It is not to be changed.
	Input []byte `json:"input"`
	Scope Scope  `json:"scope"`
	// Root is the session whose tree a grant of ScopeSession covers, and in which
	// any other was given.
	Root      frames.SessionID `json:"root"`
	CreatedAt time.Time        `json:"createdAt"`
	ExpiresAt time.Time        `json:"expiresAt"`
	By        *frames.By       `json:"by,omitempty"`
	// Used counts the calls it allowed; after a crash it may lag behind.
	Used int64 `json:"used"`
	// RevokedAt is zero unless the grant was revoked.
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// Holds reports whether g is neither expired nor revoked.
func (g *Grant) Holds(now time.Time) bool { return g.RevokedAt.IsZero() && now.Before(g.ExpiresAt) }

// GrantStore keeps grants. Save stores a grant by its ID, over an earlier state;
// when it returns nil the grant is durable. Calls of Save do not overlap.
type GrantStore interface {
	Load(ctx context.Context) ([]Grant, error)
	Save(ctx context.Context, g Grant) error
}

// Grants are the stored "always" answers, indexed by exactly what they cover.
// All methods are safe for concurrent use.
type Grants struct {
	disk    GrantStore // nil: there are none
	now     func() time.Time
	newID   func() string
	timeout time.Duration
	// turn holds the right to write to disk: each save writes the newest state,
	// so that none is overwritten by an older one.
	turn chan struct{}

	// mu guards the maps and the grants in them.
	mu    sync.Mutex
	byID  map[frames.GrantID]*Grant
	byKey map[grantKey][]*Grant
	dirty map[frames.GrantID]struct{} // could not be saved; tried again
}

// grantKey finds grants; the input is compared whole afterwards.
type grantKey struct {
	agent, tool, cwd string
	input            [sha256.Size]byte
}

func newGrants(cfg Config) *Grants {
	return &Grants{
		disk: cfg.Grants, now: cfg.Now, newID: cfg.NewID, timeout: cfg.RecordTimeout,
		turn:  make(chan struct{}, 1),
		byID:  make(map[frames.GrantID]*Grant),
		byKey: make(map[grantKey][]*Grant),
		dirty: make(map[frames.GrantID]struct{}),
	}
}

func randomID() string { return rand.Text() }

// Load reads the stored grants. It is called once, before the first Ask.
func (gs *Grants) Load(ctx context.Context) error {
	if gs.disk == nil {
		return nil
	}
	all, err := gs.disk.Load(ctx)
	if err != nil {
		return fmt.Errorf("load grants: %w", err)
	}
	now := gs.now()
	for _, g := range all {
		if g.Holds(now) {
			gs.activate(g)
		}
	}
	return nil
}

// Match returns a grant that allows this call now: one that holds for exactly
// this agent, tool, cwd and canonical input, in the tree of one of the sessions of
// line or in the whole project. It does not know the rules: [Judge] comes first, and
// a call that it denies is denied.
func (gs *Grants) Match(agent, tool, cwd string, canonical []byte, line []frames.SessionID, now time.Time) (Grant, bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.byKey[keyOf(agent, tool, cwd, canonical)] {
		covers := g.Scope == ScopeProject || g.Scope == ScopeSession && slices.Contains(line, g.Root)
		if covers && g.Holds(now) && bytes.Equal(g.Input, canonical) {
			return *g, true
		}
	}
	return Grant{}, false
}

// Use counts one call that the grant allowed, and stores the count. An error
// means that the count may be lost in a crash; the call stays allowed. It blocks
// on the disk: call it after the allow has been placed.
func (gs *Grants) Use(ctx context.Context, id frames.GrantID) error {
	if !gs.change(id, func(g *Grant) { g.Used++ }) {
		return &GrantNotFoundError{ID: id}
	}
	return gs.save(ctx, id)
}

// Revoke ends a grant at once and stores that. An error of the store means that
// the grant may come back with a restart: revoke it again. Any later save tries
// it, too. Error: *GrantNotFoundError.
func (gs *Grants) Revoke(ctx context.Context, id frames.GrantID) error {
	now := gs.now()
	known := gs.change(id, func(g *Grant) {
		if g.RevokedAt.IsZero() {
			g.RevokedAt = now
		}
	})
	if !known {
		return &GrantNotFoundError{ID: id}
	}
	return gs.save(ctx, id)
}

// change changes a grant, which is to be saved then; false if there is none.
func (gs *Grants) change(id frames.GrantID, how func(*Grant)) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.byID[id]
	if g == nil {
		return false
	}
	how(g)
	gs.dirty[id] = struct{}{}
	return true
}

// List returns the grants that hold, newest first.
func (gs *Grants) List() []Grant {
	now := gs.now()
	gs.mu.Lock()
	defer gs.mu.Unlock()
	out := []Grant{}
	for _, g := range gs.byID {
		if g.Holds(now) {
			out = append(out, *g)
		}
	}
	slices.SortFunc(out, func(a, b Grant) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Get returns a grant by its id, also one that has ended a short while ago.
func (gs *Grants) Get(id frames.GrantID) (Grant, bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.byID[id]; g != nil {
		return *g, true
	}
	return Grant{}, false
}

// admit returns why a grant may not be given, nil if it may.
func (gs *Grants) admit(r *GrantRequest, canonical []byte) error {
	if gs.disk == nil {
		return &InvalidAnswerError{"outcome", "allowed-once or rejected: this host keeps no grants"}
	}
	if r == nil {
		r = &GrantRequest{}
	}
	switch {
	case r.Scope != "" && r.Scope != ScopeSession && r.Scope != ScopeProject:
		return &InvalidAnswerError{"grant.scope", fmt.Sprintf("%q or %q", ScopeSession, ScopeProject)}
	case r.For < 0 || r.For > MaxGrantFor:
		return &InvalidAnswerError{"grant.forMs", fmt.Sprintf("0 (8 hours) to %d (30 days)", MaxGrantFor.Milliseconds())}
	case len(canonical) > MaxGrantInput:
		return &InvalidAnswerError{"outcome", fmt.Sprintf("allowed-once or rejected: a grant holds at most %d bytes of input", MaxGrantInput)}
	case !gs.room():
		return &InvalidAnswerError{"outcome", fmt.Sprintf("allowed-once: %d grants hold already, revoke some", MaxGrants)}
	}
	return nil
}

// room reports whether one more grant may hold; it forgets those that have
// ended, if it comes to that.
func (gs *Grants) room() bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.byID) < MaxGrants {
		return true
	}
	now := gs.now()
	for id, g := range gs.byID {
		if _, unsaved := gs.dirty[id]; !g.Holds(now) && !unsaved {
			gs.forget(g)
		}
	}
	return len(gs.byID) < MaxGrants
}

// draft makes the grant of an answer.
func (gs *Grants) draft(r *Request, a Answer, now time.Time) Grant {
	want := GrantRequest{Scope: ScopeSession, For: DefaultGrantFor, Below: r.Root}
	if a.Grant != nil {
		want.Below = cmp.Or(a.Grant.Below, want.Below)
		want.Scope = cmp.Or(a.Grant.Scope, want.Scope)
		want.For = cmp.Or(a.Grant.For, want.For)
	}
	return Grant{
		ID: frames.GrantID(gs.newID()), Agent: r.Approval.Agent, Tool: r.Approval.Tool.Name,
		Cwd: r.Approval.Cwd, Input: bytes.Clone(r.Approval.Canonical), Scope: want.Scope, Root: want.Below,
		CreatedAt: now, ExpiresAt: now.Add(want.For), By: a.By,
	}
}

// activate lets a stored grant match.
func (gs *Grants) activate(g Grant) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.add(g)
}

// add enters a grant. mu is held.
func (gs *Grants) add(g Grant) {
	if gs.byID[g.ID] != nil {
		return
	}
	gs.byID[g.ID] = &g
	k := keyOf(g.Agent, g.Tool, g.Cwd, g.Input)
	gs.byKey[k] = append(gs.byKey[k], &g)
}

// void revokes a grant whose answer could not be stored. It may be on disk, even
// though saving it failed; if this cannot be saved either, later saves try it.
func (gs *Grants) void(ctx context.Context, g Grant, now time.Time) {
	g.RevokedAt = now
	gs.mu.Lock()
	gs.add(g)
	gs.dirty[g.ID] = struct{}{}
	gs.mu.Unlock()
	_ = gs.save(ctx, g.ID) // it stays dirty
}

// forget drops a grant from memory. mu is held.
func (gs *Grants) forget(g *Grant) {
	delete(gs.byID, g.ID)
	k := keyOf(g.Agent, g.Tool, g.Cwd, g.Input)
	gs.byKey[k] = slices.DeleteFunc(gs.byKey[k], func(o *Grant) bool { return o == g })
	if len(gs.byKey[k]) == 0 {
		delete(gs.byKey, k)
	}
}

// store saves a grant that does not yet match.
func (gs *Grants) store(ctx context.Context, g Grant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gs.timeout)
	defer cancel()
	select {
	case gs.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("store grant %s: %w", g.ID, context.Cause(ctx))
	}
	defer func() { <-gs.turn }()
	if err := gs.disk.Save(ctx, g); err != nil {
		return fmt.Errorf("store grant %s: %w", g.ID, err)
	}
	return nil
}

// save stores the newest state of a grant, and then tries again what could not
// be saved before.
func (gs *Grants) save(ctx context.Context, id frames.GrantID) error {
	if err := gs.saveOne(ctx, id); err != nil {
		return err
	}
	_ = gs.Flush(ctx) // what fails stays dirty
	return nil
}

// Flush saves every grant whose newest state is not on disk. It blocks on the
// disk, for each grant at most the table's RecordTimeout, and goes on if ctx
// ends.
func (gs *Grants) Flush(ctx context.Context) error {
	gs.mu.Lock()
	ids := slices.Collect(maps.Keys(gs.dirty))
	gs.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, gs.saveOne(ctx, id))
	}
	return errors.Join(errs...)
}

// saveOne stores the newest state of a grant that is dirty when its turn comes.
func (gs *Grants) saveOne(ctx context.Context, id frames.GrantID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gs.timeout)
	defer cancel()
	select {
	case gs.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("save grant %s: %w", id, context.Cause(ctx))
	}
	defer func() { <-gs.turn }()
	gs.mu.Lock()
	g, ok := gs.newest(id)
	gs.mu.Unlock()
	if !ok {
		return nil
	}
	if err := gs.disk.Save(ctx, g); err != nil {
		gs.mu.Lock()
		gs.dirty[id] = struct{}{}
		gs.mu.Unlock()
		return fmt.Errorf("save grant %s: %w", id, err)
	}
	return nil
}

// newest takes the state of a grant that is to be saved; false if another save
// has done it. mu is held.
func (gs *Grants) newest(id frames.GrantID) (Grant, bool) {
	if _, dirty := gs.dirty[id]; !dirty {
		return Grant{}, false
	}
	delete(gs.dirty, id)
	return *gs.byID[id], true
}

func keyOf(agent, tool, cwd string, canonical []byte) grantKey {
	return grantKey{agent, tool, cwd, sha256.Sum256(canonical)}
}
