package client

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// Reasons to take a connection up again.
var (
	errGap           = errors.New("client: the host left out a durable event")
	errCursorExpired = errors.New("client: the host ended a subscription whose cursor expired")
)

// cursor is what is remembered of one subscribed session.
type cursor struct {
	have     frames.Seq // last durable event taken
	epoch    frames.Epoch
	delivery *rpc.Delivery
	// explicit sessions were named by the user, others are in a tree.
	explicit, tree bool
	// fresh is a subscription of the user's whose `session/subscribed` is due:
	// it says where the cursor stands.
	fresh bool
	// parts of a base are to come, after which have is base. A connection that
	// breaks before is resumed from 0, since nothing stands for what was trimmed.
	parts int
	base  frames.Seq
}

// book remembers the subscriptions. The reader moves the cursors.
type book struct {
	mu       sync.Mutex
	cursors  map[frames.SessionID]*cursor          // guarded by mu
	parents  map[frames.SessionID]frames.SessionID // guarded by mu
	left     map[frames.SessionID]bool             // guarded by mu: taken out of a tree
	host     bool                                  // guarded by mu
	delivery *rpc.Delivery                         // guarded by mu: of the host subscription
}

func newBook() *book {
	return &book{
		cursors: make(map[frames.SessionID]*cursor),
		parents: make(map[frames.SessionID]frames.SessionID),
		left:    make(map[frames.SessionID]bool),
	}
}

// verdict says what becomes of a frame.
type verdict struct {
	session frames.SessionID
	pass    bool // to the consumer
	reset   bool // after a Reset of the session
}

// take moves the cursors by one frame. An error means that the connection must be
// taken up again.
func (b *book) take(f frames.Frame) (verdict, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f := f.(type) {
	case *frames.Heartbeat:
		return verdict{}, nil
	case *frames.SessionAdded:
		b.parents[f.SessionID] = f.Session.ParentSessionID
	case *frames.SessionRemoved:
		if f.Reason == "deleted" {
			delete(b.parents, f.SessionID)
		}
	case *frames.SessionSubscribed:
		return b.subscribed(f)
	case *frames.SessionBase:
		return b.part(f)
	case *frames.SessionEvent:
		return b.event(f)
	case *frames.SessionLive:
		return verdict{pass: b.cursors[f.SessionID] != nil}, nil
	case *frames.SessionLagging:
		return verdict{pass: b.cursors[f.SessionID] != nil}, nil
	case *frames.SessionUnsubscribed:
		if f.Reason == "cursor-expired" {
			return verdict{}, fmt.Errorf("%w: session %s", errCursorExpired, f.SessionID)
		}
		delete(b.cursors, f.SessionID)
	}
	return verdict{pass: true}, nil
}

// subscribed opens a subscription: of a session born in a tree, or of one that
// the user or the resume asked for.
func (b *book) subscribed(f *frames.SessionSubscribed) (verdict, error) {
	v := verdict{session: f.SessionID, pass: true}
	start := f.Since
	if start == 0 && f.First > 1 {
		start = f.First - 1 // the base stands for what was trimmed
	}
	cur := b.cursors[f.SessionID]
	switch {
	case cur == nil && b.left[f.SessionID]:
		return verdict{}, nil
	case cur == nil:
		cur = &cursor{have: start, delivery: b.inherited(f.SessionID)}
		b.cursors[f.SessionID] = cur
	case cur.epoch != "" && cur.epoch != f.Epoch:
		v.reset = true
		cur.have = start
	case cur.fresh:
		cur.have = start
	case (f.Base != nil || f.BaseParts > 0) && cur.have > 0 && start != cur.have:
		v.reset = true // the base replaces what was folded
		cur.have = start
	case start > cur.have && f.Since == 0:
		cur.have = start
	case start > cur.have:
		return verdict{}, fmt.Errorf("%w: session %s resumed at %d, want %d", errGap, f.SessionID, start, cur.have)
	}
	cur.epoch, cur.fresh, cur.parts = f.Epoch, false, f.BaseParts
	if cur.parts > 0 {
		cur.base, cur.have = cur.have, 0
	}
	return v, nil
}

// part takes one part of a base. The cursor stands behind it with the last.
func (b *book) part(f *frames.SessionBase) (verdict, error) {
	cur := b.cursors[f.SessionID]
	if cur == nil {
		return verdict{}, nil
	}
	if cur.parts == 0 || f.Part != f.Parts-cur.parts {
		return verdict{}, fmt.Errorf("%w: session %s, part %d of %d of its base came with %d to come", errGap, f.SessionID, f.Part, f.Parts, cur.parts)
	}
	if cur.parts--; cur.parts == 0 {
		cur.have = cur.base
	}
	return verdict{pass: true}, nil
}

// event passes each durable event once and in order.
func (b *book) event(f *frames.SessionEvent) (verdict, error) {
	cur := b.cursors[f.SessionID]
	if cur == nil {
		return verdict{}, nil
	}
	e, err := frames.DecodeEvent(f.Event)
	if err != nil {
		return verdict{}, fmt.Errorf("the host sent an event that cannot be read: %w", err)
	}
	switch {
	case e.Seq == 0 && e.After <= cur.have:
		return verdict{pass: true}, nil
	case e.Seq == 0:
		return verdict{}, fmt.Errorf("%w: session %s, a live event after %d, the last was %d", errGap, f.SessionID, e.After, cur.have)
	case e.Seq <= cur.have:
		return verdict{}, nil
	case e.Seq > cur.have+1:
		return verdict{}, fmt.Errorf("%w: session %s, got %d after %d", errGap, f.SessionID, e.Seq, cur.have)
	}
	cur.have = e.Seq
	return verdict{pass: true}, nil
}

// inherited is the delivery of the nearest subscribed tree above sid.
func (b *book) inherited(sid frames.SessionID) *rpc.Delivery {
	if _, root := b.treeAbove(sid); root != nil {
		return root.delivery
	}
	return nil
}

// treeAbove finds the nearest subscribed tree that sid is in, not as its root.
func (b *book) treeAbove(sid frames.SessionID) (frames.SessionID, *cursor) {
	for range len(b.parents) {
		if sid = b.parents[sid]; sid == "" {
			break
		}
		if cur := b.cursors[sid]; cur != nil && cur.tree {
			return sid, cur
		}
	}
	return "", nil
}

// accept remembers what the user subscribed, when the response is read.
func (b *book) accept(p rpc.SubscribeParams, results rpc.SubscribeResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Host {
		b.host = true
		b.delivery = cmp.Or(p.Delivery, b.delivery)
	}
	named := make(map[frames.SessionID]rpc.SubscribeSession, len(p.Sessions))
	replay := false // descendants that were not named start at 0
	for _, s := range p.Sessions {
		named[s.SessionID] = s
		replay = replay || (s.Tree || p.Tree) && s.Since != nil
	}
	for _, r := range results {
		if r.Error == nil {
			s, ok := named[r.SessionID]
			b.acceptOne(p, s, ok, replay, r)
		}
	}
}

func (b *book) acceptOne(p rpc.SubscribeParams, s rpc.SubscribeSession, named, replay bool, r rpc.Subscribed) {
	cur := b.cursors[r.SessionID]
	known := cur != nil
	if !known {
		cur = &cursor{have: r.Head}
		b.cursors[r.SessionID] = cur
	}
	cur.fresh = true
	if r.Epoch != "" {
		cur.epoch = r.Epoch
	}
	cur.delivery = cmp.Or(p.Delivery, cur.delivery)
	delete(b.left, r.SessionID)
	switch {
	case named:
		cur.explicit, cur.tree = true, s.Tree || p.Tree
		if s.Since != nil {
			cur.have = *s.Since
		}
	case replay:
		cur.have = 0
	}
}

// forget drops what the user unsubscribed: sessions, and the trees below them.
func (b *book) forget(p rpc.UnsubscribeParams) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Host {
		b.host, b.delivery = false, nil
	}
	for _, sid := range p.Sessions {
		if _, root := b.treeAbove(sid); root != nil {
			b.left[sid] = true
		}
		cur := b.cursors[sid]
		if cur != nil && cur.tree {
			b.forgetBelow(sid)
		}
		delete(b.cursors, sid)
	}
}

// forgetBelow drops the descendants of a tree that are in it and no other way.
func (b *book) forgetBelow(root frames.SessionID) {
	for sid, cur := range b.cursors {
		if above, _ := b.treeAbove(sid); above == root && !cur.explicit {
			delete(b.cursors, sid)
		}
	}
	for sid := range b.left {
		if above, _ := b.treeAbove(sid); above == root {
			delete(b.left, sid)
		}
	}
}

// restart makes sid start anew: its log was replaced or trimmed.
func (b *book) restart(sid frames.SessionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cur := b.cursors[sid]; cur != nil {
		cur.have, cur.epoch, cur.parts = 0, "", 0
	}
}

// remove drops a session that is gone.
func (b *book) remove(sid frames.SessionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.cursors, sid)
}

// params returns the calls that subscribe everything again, from its cursor, and
// the sessions to leave out of their trees.
func (b *book) params() (calls []rpc.SubscribeParams, left []frames.SessionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.host {
		calls = append(calls, rpc.SubscribeParams{Host: true, Delivery: b.delivery})
	}
	at := make(map[frames.SessionID]int, len(b.cursors)) // the call that names a session
	for _, sid := range b.topDown() {
		cur := b.cursors[sid]
		i := 0 // a call that resumes a tree must not come after one that names its members
		if root, _ := b.treeAbove(sid); root != "" {
			i = at[root]
		}
		for i < len(calls) && (!sameDelivery(calls[i].Delivery, cur.delivery) || len(calls[i].Sessions) >= maxNamed) {
			i++
		}
		if i == len(calls) {
			calls = append(calls, rpc.SubscribeParams{Delivery: cur.delivery})
		}
		calls[i].Sessions, at[sid] = append(calls[i].Sessions, cur.entry(sid)), i
	}
	return calls, slices.Sorted(maps.Keys(b.left))
}

// topDown returns the subscribed sessions, by the number of subscribed trees that
// they are in and then by id: a tree's root comes before its members.
func (b *book) topDown() []frames.SessionID {
	depth := make(map[frames.SessionID]int, len(b.cursors))
	for sid := range b.cursors {
		for above, _ := b.treeAbove(sid); above != "" && depth[sid] <= len(b.cursors); above, _ = b.treeAbove(above) {
			depth[sid]++
		}
	}
	return slices.SortedFunc(maps.Keys(b.cursors), func(a, c frames.SessionID) int {
		return cmp.Or(cmp.Compare(depth[a], depth[c]), cmp.Compare(a, c))
	})
}

// again returns the call that subscribes one session from its cursor, and names
// the descendants of a tree, which would start at 0 otherwise.
func (b *book) again(sid frames.SessionID) (rpc.SubscribeParams, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cur := b.cursors[sid]
	if cur == nil {
		return rpc.SubscribeParams{}, false
	}
	p := rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{cur.entry(sid)}, Delivery: cur.delivery}
	for below, c := range b.cursors {
		if above, _ := b.treeAbove(below); cur.tree && above == sid && len(p.Sessions) < maxNamed {
			p.Sessions = append(p.Sessions, c.entry(below))
		}
	}
	return p, true
}

// maxNamed bounds the sessions of one call, which is one message.
const maxNamed = 2000

func (cur *cursor) entry(sid frames.SessionID) rpc.SubscribeSession {
	return rpc.SubscribeSession{SessionID: sid, Since: new(cur.have), Epoch: cur.epoch, Tree: cur.tree}
}

func sameDelivery(a, b *rpc.Delivery) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
