package rpc

import (
	"context"
	"sync"
)

// laneKey names a FIFO of calls: those of a session, or those of a method.
type laneKey struct{ method, session string }

// lanes hold the calls that wait for an earlier one of their lane. A lane exists
// while a call holds it. Their number and length are bounded by the calls in
// flight of the connection.
type lanes struct {
	mu      sync.Mutex
	waiting map[laneKey][]*call // guarded by mu
}

// enter reports whether c holds its lane now; otherwise c waits in it.
func (l *lanes) enter(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, held := l.waiting[c.lane]
	if held {
		l.waiting[c.lane] = append(queue, c)
		return false
	}
	if l.waiting == nil {
		l.waiting = make(map[laneKey][]*call)
	}
	l.waiting[c.lane] = nil
	return true
}

// next hands the lane on: to the call returned, or to nobody.
func (l *lanes) next(k laneKey) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.waiting[k]
	if len(queue) == 0 {
		delete(l.waiting, k)
		return nil
	}
	c := queue[0]
	queue[0] = nil
	l.waiting[k] = queue[1:]
	return c
}

// dispatch runs c in its lane. It blocks while too many calls are in flight, so
// that a client which sends more is not read; calls of mux.* run at once.
func (c *conn) dispatch(cl *call) {
	if cl.method.inline {
		cl.run(c.ctx)
		return
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		cl.drop()
		return
	}
	cl.lane = cl.inv.lane(cl.method.Name)
	if c.lanes.enter(cl) {
		c.wg.Go(func() { c.serveLane(cl) })
	}
}

// serveLane runs cl and the calls after it, as long as nobody else was given the
// lane by [Started].
func (c *conn) serveLane(cl *call) {
	for cl != nil {
		cl.holds.Store(true)
		c.runSlot(cl)
		if !cl.holds.CompareAndSwap(true, false) {
			return
		}
		cl = c.lanes.next(cl.lane)
	}
}

func (c *conn) runSlot(cl *call) {
	defer func() { <-c.slots }()
	if c.ctx.Err() != nil {
		cl.drop()
		return
	}
	ctx := context.WithValue(c.ctx, callKey{}, cl)
	switch {
	case cl.method.Changes:
		cl.runChange(ctx)
	case cl.method.Bulk:
		cl.pass()
		cl.runBulk(ctx)
	default:
		cl.pass()
		cl.run(ctx)
	}
}

// callKey is the context key of the *call.
type callKey struct{}

// Started tells that the method behind ctx has taken its place: the next call of
// its session starts while this one goes on. Calling it again, after the method
// returned or outside a method does nothing. It does not block.
func Started(ctx context.Context) {
	if cl, ok := ctx.Value(callKey{}).(*call); ok {
		cl.pass()
	}
}

// pass hands the lane of cl to the next call, which runs beside it.
func (cl *call) pass() {
	if !cl.holds.CompareAndSwap(true, false) {
		return
	}
	c := cl.conn
	if next := c.lanes.next(cl.lane); next != nil {
		c.wg.Go(func() { c.serveLane(next) })
	}
}
