package mux

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// writer is the goroutine that writes one socket. A pass
//
//  1. notes for each cursor with something to send where its session ends now,
//  2. takes the control queue,
//  3. writes first the control queue and then, of each cursor, at most up to
//     what was noted.
//
// So a response that was queued before an event was published is never written
// after it: if the event was noted in 1, the response is taken in 2 at the
// latest. And nothing of a subscription follows the response that ended it: a
// cursor gives its bytes in 3, after 2, and only while it is alive; a response
// that ends it later is taken by a later pass.
type writer struct {
	c      *Conn
	ctx    context.Context //nolint:containedctx // of reads of the log; the connection's
	out    outbox
	active []*cursor // have something to send
	spare  []*cursor
	todo   []message // taken from the control queue
	base   *sending  // of todo[0], whose first frames have left; nil: none have
	pieces []piece
	paged  bool // one page of the log was written in this pass
	wrote  time.Time
	pinged time.Time
	pings  int
}

// run writes until the connection ends, and then ends it.
func (c *Conn) run() {
	now := time.Now()
	w := &writer{c: c, ctx: c.ctx, wrote: now, pinged: now}
	w.out = outbox{gate: c.gate, arm: w.arm, max: c.hub.cfg.WriteChunk}
	timer := time.NewTimer(w.nextTick(now))
	defer timer.Stop()
	for c.end.Load() == nil {
		more, err := w.pass()
		if err != nil {
			c.fail(writeFailed(err))
			break
		}
		if more {
			continue
		}
		select {
		case <-c.wake:
		case <-timer.C:
			w.tick(time.Now())
			timer.Reset(w.nextTick(time.Now()))
		}
	}
	w.finish()
}

func writeFailed(err error) *ending {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &ending{code: codeSlow, reason: "too slow; resume from your cursor", err: ErrSlow}
	}
	return &ending{err: err}
}

// arm sets the deadline of one write. If the connection ends meanwhile, its
// deadline wins: whoever ends it stores the reason before it sets that.
func (w *writer) arm() {
	_ = w.c.gate.SetWriteDeadline(time.Now().Add(w.c.hub.cfg.WriteTimeout))
	if e := w.c.end.Load(); e != nil {
		by := e.by
		if by.IsZero() {
			by = longAgo
		}
		_ = w.c.gate.SetWriteDeadline(by)
	}
}

// pass sends one round and reports whether there is more to send at once.
func (w *writer) pass() (more bool, err error) {
	w.collect()
	blocked, err := w.control()
	if err == nil && !blocked {
		err = w.events()
	}
	if err == nil {
		err = w.out.done()
	}
	if n := w.out.sent; n > 0 {
		w.c.sent.Add(n)
		w.out.sent = 0
		w.wrote = time.Now()
	}
	return len(w.todo) > 0 || len(w.active) > 0 && !blocked, err
}

// collect takes in the cursors that publishes have woken and notes where every
// active one's session ends: steps 1 of the pass.
func (w *writer) collect() {
	w.c.mu.Lock()
	w.active = append(w.active, w.c.q.dirty...)
	clear(w.c.q.dirty)
	w.c.q.dirty = w.c.q.dirty[:0]
	w.c.mu.Unlock()
	for _, cur := range w.active {
		cur.noted = cur.t.note()
	}
}

// control writes the control queue, of a base one part in a pass. blocked means
// that no event may leave yet: a subscription call has kept a place and not filled
// it, or parts of a base are left.
func (w *writer) control() (blocked bool, err error) {
	c := w.c
	c.mu.Lock()
	w.todo, blocked = c.q.take(w.todo)
	pong, ping := c.q.pong, c.q.ping
	c.q.pong, c.q.ping = nil, false
	c.mu.Unlock()
	if ping {
		if err := w.out.frame(finPong, pong); err != nil {
			return blocked, err
		}
	}
	if len(w.todo) == 0 {
		return blocked, nil
	}
	n, bytes, calls := 0, 0, 0
	for ; n < len(w.todo); n++ {
		m := &w.todo[n]
		more := false
		if m.base != nil {
			more, err = w.baseline(m.base)
		} else {
			err = w.out.message(m.b)
		}
		if err != nil {
			return blocked, err
		}
		if more {
			blocked = true
			break
		}
		if m.call {
			calls += m.cost()
		} else {
			bytes += m.cost()
		}
	}
	err = w.out.flush()
	c.written(bytes, calls)
	w.done(n)
	return blocked, err
}

// done drops the first n messages of todo.
func (w *writer) done(n int) {
	rest := copy(w.todo, w.todo[n:])
	clear(w.todo[rest:])
	w.todo = w.todo[:rest]
	if rest == 0 && cap(w.todo) > 64 {
		w.todo = nil
	}
}

// events serves the active cursors in turn, about one write's worth in all.
// Those that were not reached come first in the next pass.
func (w *writer) events() error {
	w.paged = false
	start := w.out.sent + int64(w.out.pending())
	served, rest := w.spare[:0], w.active
	for len(rest) > 0 && w.out.sent+int64(w.out.pending())-start < int64(w.out.max) {
		more, err := w.serve(rest[0])
		if err != nil {
			return err
		}
		if more {
			served = append(served, rest[0])
		}
		rest = rest[1:]
	}
	if len(rest) == 0 && len(served) > 1 {
		served = append(served[1:], served[0])
	}
	n := copy(w.active, rest)
	clear(w.active[n:])
	w.active = append(w.active[:n], served...)
	clear(served)
	w.spare = served[:0]
	return nil
}

// serve lets cur send up to about one write's worth, and reports whether it has
// more.
func (w *writer) serve(cur *cursor) (more bool, err error) {
	for n := 0; n < w.out.max; {
		var s step
		w.pieces, s = cur.advance(w.pieces[:0])
		switch s {
		case stepDrop:
			cur.release()
			return false, nil
		case stepIdle:
			return false, nil
		case stepWait:
			return true, nil
		case stepPage:
			if w.paged {
				return true, nil
			}
			w.paged = true
			return w.page(cur)
		case stepLagged:
			err = w.encoded(frames.SessionLagging{SessionID: cur.t.sid})
		case stepLive:
			var k int
			k, err = w.part(cur)
			n += k
		case stepWrite:
			for _, p := range w.pieces {
				n += len(p.b)
				if err = w.piece(cur, p); err != nil {
					break
				}
			}
			clear(w.pieces)
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

func (w *writer) piece(cur *cursor, p piece) error {
	if !p.withhold {
		return w.out.ready(p.b)
	}
	e := payloadOf(p.b)
	return w.withheld(cur, e[cur.t.overhead-2:len(e)-2])
}

// withheld sends a durable event without its data.
func (w *writer) withheld(cur *cursor, event []byte) error {
	b, err := frames.Withhold(event)
	if err != nil {
		return err
	}
	return w.out.event(cur.t.sid, cur.t.overhead, b)
}

// part sends one part of the open turn and returns its size.
func (w *writer) part(cur *cursor) (int, error) {
	p, last := cur.part()
	b, err := frames.EncodeFrame(p)
	if err != nil {
		return 0, err
	}
	if err := w.out.message(b); err != nil {
		return 0, err
	}
	if last {
		cur.goLive()
	}
	return len(b), nil
}

func (w *writer) encoded(f frames.Frame) error {
	b, err := frames.EncodeFrame(f)
	if err != nil {
		return err
	}
	return w.out.message(b)
}

// page sends one page of the log, clipped to what was noted: the log may hold
// events that are not published yet.
func (w *writer) page(cur *cursor) (more bool, err error) {
	t := cur.t
	evs, err := w.c.hub.log.Read(w.ctx, t.sid, cur.seq, w.out.max)
	if w.ctx.Err() != nil {
		return false, context.Cause(w.ctx)
	}
	n, seq := 0, cur.seq
	for n < len(evs) && evs[n].Seq == seq+1 && evs[n].Seq <= cur.noted.head {
		n, seq = n+1, evs[n].Seq
	}
	if err != nil || n == 0 {
		w.giveUp(cur, err)
		return false, nil
	}
	if !cur.accept(seq) {
		return false, nil
	}
	for _, e := range evs[:n] {
		if cur.filter.withholds(e.Class) {
			err = w.withheld(cur, e.Data)
		} else {
			err = w.out.event(t.sid, t.overhead, e.Data)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// giveUp ends a subscription that the log cannot serve: what it needs was
// trimmed, or cannot be read.
func (w *writer) giveUp(cur *cursor, err error) {
	f := frames.SessionUnsubscribed{SessionID: cur.t.sid, Reason: "storage-failed"}
	if e, ok := errors.AsType[*TrimmedError](err); ok {
		w.c.hub.Trimmed(cur.t.sid, e.First) // we may be the first to notice
	}
	if first, ok := cur.expired(); ok {
		f.Reason, f.First = "cursor-expired", first
	}
	w.c.hub.cfg.Logger.Debug("mux: a subscription ended", "session", cur.t.sid, "reason", f.Reason, "err", err)
	w.c.hub.drop(cur, f)
}

// nextTick returns how long the timer may sleep.
func (w *writer) nextTick(now time.Time) time.Duration {
	next := w.pinged.Add(w.c.hub.cfg.PingInterval)
	if beat := w.wrote.Add(w.c.opts.Heartbeat); beat.Before(next) {
		next = beat
	}
	return max(next.Sub(now), time.Millisecond)
}

// tick queues a ping and a heartbeat where they are due, and ends a connection
// whose client has been silent for two pings.
func (w *writer) tick(now time.Time) {
	if now.Sub(w.pinged) >= w.c.hub.cfg.PingInterval {
		if w.c.missed.Add(1) > 2 {
			w.c.fail(&ending{code: codeSlow, reason: "two pings without an answer", err: ErrSlow})
			return
		}
		w.pinged = now
		w.pings++
		if err := w.ping(); err != nil {
			w.c.fail(writeFailed(err))
			return
		}
	}
	if now.Sub(w.wrote) < w.c.opts.Heartbeat {
		return
	}
	err := w.encoded(frames.Heartbeat{TS: frames.At(now)})
	if err == nil {
		err = w.out.done()
	}
	if err != nil {
		w.c.fail(writeFailed(err))
	}
	w.wrote = now
}

// ping does not count as written: browsers cannot see it.
func (w *writer) ping() error {
	if err := w.out.frame(finPing, strconv.AppendInt(nil, int64(w.pings), 10)); err != nil {
		return err
	}
	err := w.out.done()
	w.out.sent = 0
	return err
}

// finish flushes when there is time, leaves the hub, says goodbye and waits for
// whatever still reads the socket.
func (w *writer) finish() {
	c := w.c
	e := c.ended()
	if !e.by.IsZero() {
		w.flush(e)
	}
	c.hub.leave(c)
	c.cancel(e.closed())
	for _, cur := range w.active {
		cur.release()
	}
	if e.code != 0 {
		c.gate.close(e.code, e.reason, c.hub.cfg.CloseTimeout)
	}
	_ = c.ws.CloseNow() // waits for reads to return; its error says what e knows
	close(c.done)
}

// flush sends what is queued and published, until e.by.
func (w *writer) flush(e *ending) {
	ctx, cancel := context.WithDeadline(w.ctx, e.by)
	defer cancel()
	w.ctx = ctx
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = w.pass(); err != nil {
			return
		}
	}
}
