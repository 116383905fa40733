package mux

import (
	"iter"
	"maps"
	"slices"

	"github.com/muxhost/muxhost/frames"
)

// notify does what n says. Under the hub's lock no one attaches meanwhile, so a
// notice is either in a baseline or sent after it, never both and never neither.
func (h *Hub) notify(t *topic, n Notice) {
	told := h.audience(t)
	i := slices.IndexFunc(t.notices, func(o *notice) bool { return o.key == n.Key })
	switch n.Kind {
	case Pass:
		h.toAll(told, n.Frame)
	case Raise:
		o := &notice{key: n.Key, frame: n.Frame, sent: map[*Conn]struct{}{}}
		if i >= 0 {
			t.notices[i].forget()
			t.notices[i] = o
		} else {
			t.notices = append(t.notices, o)
			h.noticed[t] = struct{}{}
		}
		for c := range told {
			o.tell(c)
			_ = c.enqueue(n.Frame)
		}
	case Settle:
		if i >= 0 {
			o := t.notices[i]
			for c := range o.sent {
				told[c] = struct{}{}
			}
			o.forget()
			t.notices = slices.Delete(t.notices, i, i+1)
		}
		if len(t.notices) == 0 {
			delete(h.noticed, t)
		}
		h.toAll(told, n.Frame)
	}
}

// tell notes that c is sent n, and so is owed its end.
func (n *notice) tell(c *Conn) {
	n.sent[c] = struct{}{}
	c.open[n] = struct{}{}
}

func (n *notice) forget() {
	for c := range n.sent {
		delete(c.open, n)
	}
}

// audience returns who hears of t: its subscribers and the host's, each once.
func (h *Hub) audience(t *topic) map[*Conn]struct{} {
	out := make(map[*Conn]struct{}, len(t.subs)+len(h.hosts))
	for c := range t.subs {
		out[c] = struct{}{}
	}
	for c := range h.hosts {
		if h.visible(c, t) {
			out[c] = struct{}{}
		}
	}
	return out
}

// readers returns who was told of t by `host/session-added`: the host's
// subscribers, and of its own those who follow a tree that it is in.
func (h *Hub) readers(t *topic) map[*Conn]struct{} {
	out := map[*Conn]struct{}{}
	for c := range h.hosts {
		if h.visible(c, t) {
			out[c] = struct{}{}
		}
	}
	for p := range h.ancestors(t) {
		for c := range h.watchers[p] {
			if t.subs[c] != nil {
				out[c] = struct{}{}
			}
		}
	}
	return out
}

func (h *Hub) toHosts(t *topic, frame []byte) {
	for c := range h.hosts {
		if h.visible(c, t) && frame != nil {
			_ = c.enqueue(frame)
		}
	}
}

// toAll queues frame for each of conns. An error means that the connection has
// ended, which it tells by itself.
func (h *Hub) toAll(conns map[*Conn]struct{}, frame []byte) {
	if frame == nil {
		return
	}
	for c := range conns {
		_ = c.enqueue(frame)
	}
}

// ancestors yields t's own id and those of the sessions above it.
func (h *Hub) ancestors(t *topic) iter.Seq[frames.SessionID] {
	return func(yield func(frames.SessionID) bool) {
		seen := map[frames.SessionID]struct{}{}
		for sid := t.sid; sid != ""; {
			if _, again := seen[sid]; again || !yield(sid) {
				return
			}
			seen[sid] = struct{}{}
			p := h.topic(sid)
			if p == nil {
				return
			}
			sid = p.summary.ParentSessionID
		}
	}
}

// visible reports whether c may know of t. A limit to a session that is deleted
// shows nothing, not even what stood below it.
func (h *Hub) visible(c *Conn, t *topic) bool {
	if c.opts.Trees == nil {
		return true
	}
	for sid := range h.ancestors(t) {
		if slices.Contains(c.opts.Trees, sid) && (sid == t.sid || h.topic(sid) != nil) {
			return true
		}
	}
	return false
}

// descendants returns the sessions below root, parents before their children.
func (h *Hub) descendants(root frames.SessionID) []*topic {
	var out []*topic
	seen := map[frames.SessionID]struct{}{root: {}}
	add := func(sid frames.SessionID) {
		for _, t := range h.children[sid] {
			if _, again := seen[t.sid]; !again {
				seen[t.sid] = struct{}{}
				out = append(out, t)
			}
		}
	}
	add(root)
	for i := 0; i < len(out); i++ {
		add(out[i].sid)
	}
	return out
}

// hostBaseline returns what a new host subscriber is told, from
// `host/subscribed` to `host/live`.
func (h *Hub) hostBaseline(c *Conn) [][]byte {
	out := [][]byte{h.encode(frames.HostSubscribed{})}
	byOrder := func(a, b *topic) int { return int(int64(a.order) - int64(b.order)) }
	for _, t := range slices.SortedFunc(maps.Keys(h.live), byOrder) {
		if h.visible(c, t) {
			out = append(out, h.addedFrame(t), h.statusFrame(t))
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(h.noticed), byOrder) {
		if h.visible(c, t) {
			out = append(out, t.repeat(c)...)
		}
	}
	return append(out, h.encode(frames.HostLive{}))
}

// repeat returns the frames of everything open in t, oldest first, for c.
func (t *topic) repeat(c *Conn) [][]byte {
	out := make([][]byte, 0, len(t.notices))
	for _, n := range t.notices {
		n.tell(c)
		out = append(out, n.frame)
	}
	return out
}
