package mux

// message is one message of a control queue: bytes, or a baseline whose base is
// read when it is its turn.
type message struct {
	b    []byte
	base *baseline
	call bool // part of a subscription call
}

func (m *message) cost() int {
	if m.base != nil {
		return baselineCost
	}
	return len(m.b)
}

// item is one place in a control queue: a message, or the place kept for
// everything a subscription call sends at once.
type item struct {
	message
	call *call
}

// call is a kept place. It is filled after the hub's lock is released; until
// then nothing behind it leaves, nor any event, so that the response and the
// baselines precede every frame the call causes.
type call struct {
	filled bool
	msgs   []message
}

// queue is what a connection has to send beside its cursors, in order. The
// connection's lock guards it.
type queue struct {
	items []item
	bytes int // of messages not yet written
	calls int // of baselines not yet written; their size is the client's doing
	pong  []byte
	ping  bool // pong holds an answer that is due
	dirty []*cursor
}

// take moves what may leave now to out, up to the first place not yet filled,
// and reports whether one is in the way.
func (q *queue) take(out []message) (_ []message, blocked bool) {
	n := 0
	for ; n < len(q.items) && (q.items[n].call == nil || q.items[n].call.filled); n++ {
		if c := q.items[n].call; c != nil {
			out = append(out, c.msgs...)
		} else {
			out = append(out, q.items[n].message)
		}
	}
	rest := copy(q.items, q.items[n:])
	clear(q.items[rest:])
	q.items = q.items[:rest]
	if rest == 0 && cap(q.items) > 64 {
		q.items = nil
	}
	return out, rest > 0
}

// enqueue places one frame in c's control queue without blocking; msg is kept
// and shared. It reports whether c took it. Over the bound c ends with 4008.
func (c *Conn) enqueue(msg []byte) error { return c.place(message{b: msg}) }

// place is enqueue for any message.
func (c *Conn) place(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.end.Load(); e != nil {
		return e.closed()
	}
	if c.q.bytes > c.hub.cfg.QueueBytes {
		c.failLocked(&ending{code: codeSlow, reason: "too slow; resume from your cursor", err: ErrSlow})
		return ErrSlow
	}
	c.q.items = append(c.q.items, item{message: m})
	c.q.bytes += m.cost()
	c.kick()
	return nil
}

// keepPlace keeps the place of a call in the queue.
func (c *Conn) keepPlace() (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.end.Load(); e != nil {
		return nil, e.closed()
	}
	p := new(call)
	c.q.items = append(c.q.items, item{call: p})
	return p, nil
}

// fill puts msgs in the kept place and lets the queue go on.
func (c *Conn) fill(p *call, msgs []message) {
	n := 0
	for i := range msgs {
		msgs[i].call = true
		n += msgs[i].cost()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.msgs, p.filled = msgs, true
	c.q.calls += n
	c.kick()
}

// touch makes the writer look at cur; cur is in no other list.
func (c *Conn) touch(cur *cursor) {
	c.mu.Lock()
	c.q.dirty = append(c.q.dirty, cur)
	c.mu.Unlock()
	c.kick()
}

// kick wakes the writer.
func (c *Conn) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// written takes what left the queue from its account and lets waiters in once
// it is below half.
func (c *Conn) written(bytes, calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.q.bytes -= bytes
	c.q.calls -= calls
	if c.room != nil && c.roomyLocked() {
		close(c.room)
		c.room = nil
	}
}

func (c *Conn) roomyLocked() bool { return c.q.bytes+c.q.calls <= c.hub.cfg.QueueBytes/2 }

// heldBytes is what c's queue holds now, in bytes of messages.
func (c *Conn) heldBytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q.bytes + c.q.calls
}
