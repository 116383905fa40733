package mux

import (
	"context"

	"github.com/muxhost/muxhost/frames"
)

// watch makes c follow the tree below t, with everything in it.
func (h *Hub) watch(c *Conn, t *topic, d Delivery) {
	c.trees[t.sid] = d
	set := h.watchers[t.sid]
	if set == nil {
		set = map[*Conn]struct{}{}
		h.watchers[t.sid] = set
	}
	set[c] = struct{}{}
	for _, below := range h.descendants(t.sid) {
		delete(c.left, below.sid)
	}
}

func (h *Hub) unwatch(c *Conn, root frames.SessionID) {
	delete(c.trees, root)
	delete(h.watchers[root], c)
	if len(h.watchers[root]) == 0 {
		delete(h.watchers, root)
	}
}

// follow subscribes those who follow an ancestor of the new topic t to it, from
// 0 on. Host subscribers were told of it already when it is live.
func (h *Hub) follow(t *topic) {
	var added []byte
	for sid := range h.ancestors(t) {
		for c := range h.watchers[sid] {
			_, out := c.left[t.sid]
			if out || c.subs[t.sid] != nil || sid == t.sid || !h.visible(c, t) {
				continue
			}
			if added == nil {
				added = h.addedFrame(t)
			}
			if !c.host || !t.live {
				_ = c.enqueue(added)
			}
			f, cur := h.attach(c, t, new(frames.Seq), c.trees[sid])
			if m, err := subscribed(t, f); err == nil { // which fails for no frame of ours
				_ = c.place(m)
			}
			for _, b := range t.repeat(c) {
				_ = c.enqueue(b)
			}
			c.touch(cur) // its events come after its baseline
		}
	}
}

// Unsubscribe ends subscriptions; each is told `session/unsubscribed` with reason
// "requested", after the response. Of a tree's root it ends the tree, but for
// what another followed tree holds; of a descendant it leaves that one out until
// it is named again. Sessions that are not subscribed are passed over. host ends
// the host subscription. respond is as in [Conn.Subscribe].
func (c *Conn) Unsubscribe(ctx context.Context, sessions []frames.SessionID, host bool, respond func() []byte) error {
	if err := c.Room(ctx); err != nil {
		return err
	}
	s, err := c.hub.unsubscribe(c, sessions, host)
	if err != nil {
		return err
	}
	defer func() {
		if !s.place.filled {
			c.Close(codeInternal, "the response could not be built")
		}
	}()
	var msgs []message
	if r := respond(); r != nil {
		msgs = append(msgs, message{b: r})
	}
	c.fill(s.place, appendMessages(msgs, s.host...))
	return nil
}

func (h *Hub) unsubscribe(c *Conn, sessions []frames.SessionID, host bool) (*subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	place, err := c.keepPlace()
	if err != nil {
		return nil, err
	}
	s := &subscription{c: c, place: place}
	if host {
		c.host = false
		delete(h.hosts, c)
	}
	for _, sid := range sessions {
		h.endTree(c, sid, s)
		if h.covered(c, sid) {
			c.left[sid] = struct{}{}
		}
		h.endOne(c, sid, s)
	}
	return s, nil
}

// endTree ends the tree below root, if c follows it.
func (h *Hub) endTree(c *Conn, root frames.SessionID, s *subscription) {
	if _, ok := c.trees[root]; !ok {
		return
	}
	h.unwatch(c, root)
	for _, t := range h.descendants(root) {
		if !h.covered(c, t.sid) {
			delete(c.left, t.sid)
			h.endOne(c, t.sid, s)
		}
	}
}

func (h *Hub) endOne(c *Conn, sid frames.SessionID, s *subscription) {
	cur := c.subs[sid]
	if cur == nil {
		return
	}
	h.detach(cur)
	s.host = append(s.host, h.encode(frames.SessionUnsubscribed{SessionID: sid, Reason: "requested"}))
}

// covered reports whether c follows a tree above sid.
func (h *Hub) covered(c *Conn, sid frames.SessionID) bool {
	t := h.topic(sid)
	if t == nil {
		return false
	}
	for up := range h.ancestors(t) {
		if _, ok := c.trees[up]; ok && up != sid {
			return true
		}
	}
	return false
}
