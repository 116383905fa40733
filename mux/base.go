package mux

import (
	"context"
	"weak"

	"github.com/muxhost/muxhost/frames"
)

// baseline is one `session/subscribed` that comes with a base, in a control queue.
// The base is read when it is its turn, so that a queue holds none and who stops
// reading pins at most the one under way, which all who read it share.
type baseline struct {
	t     *topic
	frame frames.SessionSubscribed
}

// baselineCost is what a baseline counts in a queue.
const baselineCost = 512

// sending is the base that a writer is sending.
type sending struct {
	base *frames.Base
	part int // the next
}

// baseOf returns the base of t, which stands for at least what is before first,
// and reads it if nobody holds it. Who comes while it is read waits for that.
func (h *Hub) baseOf(ctx context.Context, t *topic, first frames.Seq) (*frames.Base, error) {
	for {
		t.mu.Lock()
		have, reading := t.base.Value(), t.reading
		if have != nil && t.baseFirst >= first {
			t.mu.Unlock()
			return have, nil
		}
		if reading == nil {
			t.reading = make(chan struct{})
			first = t.first
		}
		t.mu.Unlock()
		if reading == nil {
			return h.readBase(ctx, t, first)
		}
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// readBase reads the base of t, whose log began at first, and shares it.
func (h *Hub) readBase(ctx context.Context, t *topic, first frames.Seq) (*frames.Base, error) {
	raw, err := h.log.Base(ctx, t.sid)
	b := frames.NewBase(raw)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.base, t.baseFirst = weak.Make(b), first
	}
	close(t.reading)
	t.reading = nil
	return b, err
}

// baseline sends the next frame of b: `session/subscribed`, and then part by part
// what does not fit into it. more means that parts are left. Where the base cannot
// be read the subscription ends.
func (w *writer) baseline(b *baseline) (more bool, err error) {
	if w.base == nil {
		base, err := w.c.hub.baseOf(w.ctx, b.t, b.frame.First)
		if w.ctx.Err() != nil {
			return false, context.Cause(w.ctx)
		}
		if err != nil {
			w.c.hub.cfg.Logger.Debug("mux: a base cannot be read", "session", b.t.sid, "err", err)
			w.c.hub.end(w.c, b.t, frames.SessionUnsubscribed{SessionID: b.t.sid, Reason: "storage-failed"})
			return false, w.encoded(b.frame)
		}
		f := base.Begin(b.frame)
		if f.BaseParts > 0 {
			w.base = &sending{base: base}
		}
		return f.BaseParts > 0, w.encoded(f)
	}
	p := w.base.base.Part(b.t.sid, w.base.part)
	if w.base.part++; w.base.part == p.Parts {
		w.base = nil
	}
	return w.base != nil, w.encoded(p)
}

// end ends c's subscription of t, if it has one, and says so.
func (h *Hub) end(c *Conn, t *topic, f frames.SessionUnsubscribed) {
	b := h.encode(f)
	h.mu.Lock()
	defer h.mu.Unlock()
	if cur := c.subs[t.sid]; cur != nil && cur.t == t {
		h.detach(cur)
		_ = c.enqueue(b)
	}
}
