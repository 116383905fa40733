package mux

import (
	"context"

	"github.com/muxhost/muxhost/frames"
)

// Subscribe starts or replaces subscriptions. respond builds the response from
// the results, in the order of the request and then the rest of each tree; it is
// sent before every frame that the call causes, and nothing of a replaced
// subscription follows it. When no entry succeeds and the host is not asked for,
// respond is not called, nothing changes, and the first entry's error is
// returned. A nil response sends none.
//
// Subscribe blocks until the control queue has room. respond is called without any
// lock; the connection sends nothing until it returns. The base of a trimmed log is
// read when it is sent; where it cannot be read the subscription ends with
// `session/unsubscribed` and reason "storage-failed".
func (c *Conn) Subscribe(ctx context.Context, req SubscribeRequest, respond func([]SubscribeResult) []byte) error {
	if err := c.Room(ctx); err != nil {
		return err
	}
	s, err := c.hub.subscribe(c, req)
	if err != nil {
		return err
	}
	return s.answer(respond)
}

// want is one session that a call subscribes.
type want struct {
	t        *topic // nil when the entry failed
	since    *frames.Seq
	delivery *Delivery // nil: that of the cursor or the tree, or the default
	tree     bool      // follow its descendants, present and future
	child    bool      // came with a tree: announced first
	result   SubscribeResult
}

// started is one subscription that was made, for encoding after the locks.
type started struct {
	t       *topic
	added   []byte // `host/session-added`, for descendants
	frame   frames.SessionSubscribed
	pending [][]byte
}

// subscription is one call on its way.
type subscription struct {
	c       *Conn
	place   *call
	results []SubscribeResult
	host    [][]byte
	started []started
}

// subscribe does the whole call under the hub's lock, so that it is one cut.
func (h *Hub) subscribe(c *Conn, req SubscribeRequest) (*subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &subscription{c: c}
	wants := h.plan(c, req)
	ok := req.Host
	for _, w := range wants {
		s.results = append(s.results, w.result)
		ok = ok || w.result.Err == nil
	}
	if !ok {
		return nil, firstError(wants)
	}
	var err error
	if s.place, err = c.keepPlace(); err != nil {
		return nil, err
	}
	if req.Host {
		c.host = true
		h.hosts[c] = struct{}{}
		s.host = h.hostBaseline(c)
	}
	for _, w := range wants {
		if w.result.Err == nil {
			s.started = append(s.started, h.start(c, w))
		}
	}
	return s, nil
}

func firstError(wants []want) error {
	if len(wants) == 0 {
		return ErrNoSession
	}
	return wants[0].result.Err
}

// plan turns a request into the list of sessions that it means, each once.
func (h *Hub) plan(c *Conn, req SubscribeRequest) []want {
	named := map[frames.SessionID]struct{}{}
	out := make([]want, 0, len(req.Sessions))
	for _, e := range req.Sessions {
		if _, again := named[e.SessionID]; again {
			continue
		}
		named[e.SessionID] = struct{}{}
		out = append(out, h.check(c, e, req.Delivery))
	}
	for _, w := range out[:len(out):len(out)] {
		if !w.tree {
			continue
		}
		for _, t := range h.descendants(w.t.sid) {
			if _, again := named[t.sid]; again {
				continue
			}
			named[t.sid] = struct{}{}
			e := SubscribeEntry{SessionID: t.sid}
			if w.since != nil {
				e.Since = new(frames.Seq)
			}
			d := h.check(c, e, req.Delivery)
			if d.delivery == nil && c.subs[t.sid] == nil {
				d.delivery = w.deliveryFor(c)
			}
			d.child = true
			out = append(out, d)
		}
	}
	h.markChildren(c, out)
	return out
}

// deliveryFor returns the delivery that a tree's new members take over.
func (w *want) deliveryFor(c *Conn) *Delivery {
	if w.delivery != nil {
		return w.delivery
	}
	if cur := c.subs[w.t.sid]; cur != nil {
		return &cur.delivery
	}
	return nil
}

// markChildren finds the named sessions that a tree of the same call holds.
func (h *Hub) markChildren(c *Conn, wants []want) {
	roots := map[frames.SessionID]struct{}{}
	for _, w := range wants {
		if w.tree {
			roots[w.t.sid] = struct{}{}
		}
	}
	if len(roots) == 0 {
		return
	}
	for i, w := range wants {
		if w.t == nil || w.child {
			continue
		}
		for sid := range h.ancestors(w.t) {
			if _, in := roots[sid]; in && sid != w.t.sid {
				wants[i].child = true
			}
		}
	}
}

// check resolves one entry against the log as it stands.
func (h *Hub) check(c *Conn, e SubscribeEntry, d *Delivery) want {
	w := want{since: e.Since, delivery: d, result: SubscribeResult{SessionID: e.SessionID}}
	t := h.topic(e.SessionID)
	if t == nil || !h.visible(c, t) {
		w.result.Err = ErrNoSession
		return w
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	epoch := t.summary.Epoch
	w.result.Head, w.result.Epoch = t.head, epoch
	since := t.head
	if e.Since != nil {
		since = *e.Since
	} else if cur := c.subs[t.sid]; cur != nil {
		since = cur.seq
	}
	everything := e.Since != nil && since == 0
	bad := func(kind CursorKind) {
		w.result.Err = &CursorError{Kind: kind, First: t.first, Head: t.head, Epoch: epoch}
	}
	switch {
	case e.Epoch != "" && e.Epoch != epoch, !everything && since+1 < t.first:
		bad(CursorExpired)
	case since > t.head:
		bad(CursorAhead)
	default:
		w.t, w.tree = t, e.Tree
	}
	return w
}

// start makes one subscription under the hub's lock.
func (h *Hub) start(c *Conn, w want) started {
	t := w.t
	delivery := w.delivery
	old := c.subs[t.sid]
	if delivery == nil && old != nil {
		delivery = &old.delivery
	}
	if delivery == nil {
		delivery = new(Delivery)
	}
	if w.tree {
		h.watch(c, t, *delivery)
	} else if _, watched := c.trees[t.sid]; watched {
		c.trees[t.sid] = *delivery
	}
	delete(c.left, t.sid)
	f, cur := h.attach(c, t, w.since, *delivery)
	c.touch(cur) // the kept place holds it back
	s := started{t: t, frame: f}
	if w.child {
		s.added = h.addedFrame(t)
	}
	s.pending = t.repeat(c)
	return s
}

// attach puts a new cursor in place of c's old one and returns the cut that it
// starts from. Nothing of the cursor leaves before it is touched. The caller
// holds the hub's lock.
func (h *Hub) attach(c *Conn, t *topic, since *frames.Seq, d Delivery) (frames.SessionSubscribed, *cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := t.head
	old := c.subs[t.sid]
	if old != nil {
		t.kill(old)
		from = old.seq
	}
	if since != nil {
		from = *since
	}
	f := frames.SessionSubscribed{
		SessionID: t.sid, Since: from, Head: t.head, First: t.first, Epoch: t.summary.Epoch,
		State: t.status.State, Pending: len(t.notices),
	}
	t.open(h.cfg.RingBytes)
	cur := &cursor{t: t, c: c, delivery: d, filter: filterOf(d), armed: -1, seq: max(from, t.first-1)}
	c.subs[t.sid], t.subs[c] = cur, cur
	return f, cur
}

// detach ends one subscription. The caller holds the hub's lock.
func (h *Hub) detach(cur *cursor) {
	t := cur.t
	delete(cur.c.subs, t.sid)
	delete(t.subs, cur.c)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kill(cur)
	if len(t.subs) == 0 {
		t.ring, t.armed = nil, nil
	}
}

// drop ends the subscription of cur, unless it was replaced, and says so.
func (h *Hub) drop(cur *cursor, f frames.SessionUnsubscribed) {
	b := h.encode(f)
	h.mu.Lock()
	defer h.mu.Unlock()
	if cur.c.subs[cur.t.sid] != cur {
		return
	}
	h.detach(cur)
	_ = cur.c.enqueue(b)
}

// answer builds the call's messages and lets them go.
func (s *subscription) answer(respond func([]SubscribeResult) []byte) error {
	filled := false
	defer func() {
		if !filled { // nothing may pass an unfilled place
			s.c.Close(codeInternal, "the response could not be built")
		}
	}()
	var msgs []message
	if r := respond(s.results); r != nil {
		msgs = append(msgs, message{b: r})
	}
	msgs = appendMessages(msgs, s.host...)
	for _, st := range s.started {
		m, err := subscribed(st.t, st.frame)
		if err != nil {
			return err
		}
		if st.added != nil {
			msgs = append(msgs, message{b: st.added})
		}
		msgs = appendMessages(append(msgs, m), st.pending...)
	}
	s.c.fill(s.place, msgs)
	filled = true
	return nil
}

// subscribed makes the message that opens a subscription; one from 0 of a trimmed
// log brings the base.
func subscribed(t *topic, f frames.SessionSubscribed) (message, error) {
	if f.Since == 0 && f.First > 1 {
		return message{base: &baseline{t, f}}, nil
	}
	b, err := frames.EncodeFrame(f)
	return message{b: b}, err
}

func appendMessages(msgs []message, frames ...[]byte) []message {
	for _, b := range frames {
		msgs = append(msgs, message{b: b})
	}
	return msgs
}
