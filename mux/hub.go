package mux

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Hub carries what sessions publish to the connections that subscribe to them.
// All methods are safe for concurrent use and none but [Hub.Shutdown] blocks.
type Hub struct {
	cfg Config
	log Log
	wg  sync.WaitGroup // one writer for each connection

	topics sync.Map // frames.SessionID → *topic; changed under mu

	mu       sync.Mutex // the outermost lock; guards the fields below and what topics and conns say it guards
	closed   bool
	order    uint64
	live     map[*topic]struct{}
	noticed  map[*topic]struct{} // have open notices
	children map[frames.SessionID][]*topic
	conns    map[*Conn]struct{}
	hosts    map[*Conn]struct{}                      // subscribed to the host
	watchers map[frames.SessionID]map[*Conn]struct{} // follow this tree
}

// NewHub returns a hub that reads the durable past from log.
func NewHub(cfg Config, log Log) *Hub {
	return &Hub{
		cfg: cfg.withDefaults(), log: log,
		live: map[*topic]struct{}{}, noticed: map[*topic]struct{}{},
		children: map[frames.SessionID][]*topic{},
		conns:    map[*Conn]struct{}{}, hosts: map[*Conn]struct{}{},
		watchers: map[frames.SessionID]map[*Conn]struct{}{},
	}
}

func (h *Hub) topic(sid frames.SessionID) *topic {
	if t, ok := h.topics.Load(sid); ok {
		return t.(*topic)
	}
	return nil
}

// Add makes a session known: every stored one at start, later every created one.
// A live one is announced to host subscribers; to those who follow the tree of
// an ancestor it is announced, live or not, and they are subscribed to it from
// 0 on. Adding a known session renews its summary, First and Live.
func (h *Hub) Add(s Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sid := s.Summary.SessionID
	if t := h.topic(sid); t != nil {
		h.renew(t, s)
		return
	}
	h.order++
	t := &topic{
		sid: sid, order: h.order, overhead: len(frames.AppendSessionEvent(nil, sid, nil)),
		summary: s.Summary, subs: map[*Conn]*cursor{},
		first: max(s.First, 1), head: s.Summary.Head,
	}
	t.status = statusOf(s.Summary)
	h.topics.Store(sid, t)
	if p := s.Summary.ParentSessionID; p != "" {
		h.children[p] = append(h.children[p], t)
	}
	h.setLive(t, s.Live)
	h.follow(t)
}

// statusOf returns the status that a summary tells of.
func statusOf(s frames.Session) frames.SessionStatus {
	st := frames.SessionStatus{SessionID: s.SessionID, State: s.State, Pending: s.Pending, PendingBelow: s.PendingBelow}
	st.State = cmp.Or(st.State, frames.StateIdle)
	return st
}

func (h *Hub) renew(t *topic, s Session) {
	t.summary, t.added = s.Summary, nil
	t.mu.Lock()
	t.first = max(s.First, 1)
	t.mu.Unlock()
	h.setLive(t, s.Live)
}

// Trimmed tells that the log of sid now starts at first.
func (h *Hub) Trimmed(sid frames.SessionID, first frames.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topic(sid); t != nil {
		t.mu.Lock()
		t.first = max(t.first, first)
		t.mu.Unlock()
	}
}

// SetLive says that a session has become live, which is announced to host
// subscribers, or cold, which takes it from the host baseline and tells them
// `host/session-removed` with reason "closed". Unknown sessions are ignored.
func (h *Hub) SetLive(sid frames.SessionID, live bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topic(sid); t != nil {
		h.setLive(t, live)
	}
}

func (h *Hub) setLive(t *topic, live bool) {
	if t.live == live {
		return
	}
	t.live = live
	if live {
		h.live[t] = struct{}{}
		h.toHosts(t, h.addedFrame(t))
		return
	}
	delete(h.live, t)
	h.toHosts(t, h.encode(frames.SessionRemoved{SessionID: t.sid, Reason: "closed"}))
}

// Remove forgets a session: its subscriptions end with `session/unsubscribed`
// and reason, its subscribers and the host's are told `host/session-removed`,
// its open notices are forgotten. Unknown sessions are ignored.
func (h *Hub) Remove(sid frames.SessionID, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic(sid)
	if t == nil {
		return
	}
	removed := h.encode(frames.SessionRemoved{SessionID: sid, Reason: reason})
	ended := h.encode(frames.SessionUnsubscribed{SessionID: sid, Reason: reason})
	told := h.audience(t)
	for c, cur := range t.subs {
		h.detach(cur)
		_ = c.enqueue(ended)
	}
	for c := range told {
		_ = c.enqueue(removed)
	}
	for c := range h.watchers[sid] {
		delete(c.trees, sid)
	}
	delete(h.watchers, sid)
	for _, n := range t.notices {
		n.forget()
	}
	t.gone, t.notices = true, nil
	delete(h.live, t)
	delete(h.noticed, t)
	h.topics.Delete(sid)
	h.orphan(t)
}

// orphan takes t from its parent's children.
func (h *Hub) orphan(t *topic) {
	p := t.summary.ParentSessionID
	rest := slices.DeleteFunc(h.children[p], func(x *topic) bool { return x == t })
	if len(rest) == 0 {
		delete(h.children, p)
		return
	}
	h.children[p] = rest
}

// Publish makes u visible to everyone who is subscribed to sid. Durable events
// are on disk already. It never blocks and does no I/O. An update of events
// alone costs the same for any number of subscribers, but for waking those that
// wait. Updates of one session must come from one goroutine at a time; unknown
// sessions are ignored.
func (h *Hub) Publish(sid frames.SessionID, u Update) {
	t := h.topic(sid)
	if t == nil {
		h.cfg.Logger.Debug("mux: an update of an unknown session", "session", sid)
		return
	}
	if len(u.Notices) == 0 && u.Status == nil && u.Summary == nil {
		t.mu.Lock()
		t.publish(&u)
		t.mu.Unlock()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.gone {
		return
	}
	t.mu.Lock()
	t.publish(&u)
	t.mu.Unlock()
	for _, n := range u.Notices {
		h.notify(t, n)
	}
	h.restate(t, &u)
}

// restate tells of a new status and a new summary.
func (h *Hub) restate(t *topic, u *Update) {
	if u.Summary != nil {
		t.summary, t.added = *u.Summary, nil
		h.toAll(h.readers(t), h.encode(frames.SessionUpdated{SessionID: t.sid, Session: *u.Summary}))
	}
	if u.Status != nil {
		t.status = *u.Status
		t.statused = h.encode(t.status)
		h.toAll(h.audience(t), t.statused)
	}
}

// Broadcast sends one encoded frame to every connection. The bytes are kept.
func (h *Hub) Broadcast(frame []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.toAll(h.conns, frame)
}

// Head returns the last durable seq published for sid, false if it is unknown.
func (h *Hub) Head(sid frames.SessionID) (frames.Seq, bool) {
	t := h.topic(sid)
	if t == nil {
		return 0, false
	}
	return t.note().head, true
}

// ClientInfo describes one connection.
type ClientInfo struct {
	ID        frames.ClientID
	Label     string
	Addr      string
	Connected time.Time
	Host      bool // subscribed to the host
	Sessions  int  // subscribed sessions
	Queued    int  // bytes in the control queue
	Sent      int64
}

// Clients returns the connections, oldest first.
func (h *Hub) Clients() []ClientInfo {
	h.mu.Lock()
	out := make([]ClientInfo, 0, len(h.conns))
	for c := range h.conns {
		out = append(out, ClientInfo{
			ID: c.opts.ID, Label: c.opts.Label, Addr: c.peer, Connected: c.born,
			Host: c.host, Sessions: len(c.subs), Queued: c.heldBytes(), Sent: c.sent.Load(),
		})
	}
	h.mu.Unlock()
	slices.SortFunc(out, func(a, b ClientInfo) int {
		return cmp.Or(a.Connected.Compare(b.Connected), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Shutdown closes every connection with 1001 after what is queued and published
// has been sent, and waits for their goroutines. When ctx ends first it returns
// its error; they still end by themselves. Later Accepts are refused.
func (h *Hub) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	conns := make([]*Conn, 0, len(h.conns))
	for c := range h.conns {
		conns = append(conns, c)
	}
	h.mu.Unlock()
	for _, c := range conns {
		c.Close(codeGoingAway, "the host is going down")
	}
	for _, c := range conns {
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	h.wg.Wait()
	return nil
}

func (h *Hub) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// enter registers c and starts its writer; false when the hub takes none.
func (h *Hub) enter(c *Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.conns[c] = struct{}{}
	h.wg.Go(c.run)
	return true
}

// leave forgets everything of c.
func (h *Hub) leave(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cur := range c.subs {
		h.detach(cur)
	}
	for sid := range c.trees {
		h.unwatch(c, sid)
	}
	for n := range c.open {
		delete(n.sent, c)
	}
	clear(c.open)
	delete(h.hosts, c)
	delete(h.conns, c)
}

// encode encodes a frame of the hub's own making, which cannot fail but for a
// programming error; the nil it then returns is not sent.
func (h *Hub) encode(f frames.Frame) []byte {
	b, err := frames.EncodeFrame(f)
	if err != nil {
		h.cfg.Logger.Debug("mux: a frame cannot be encoded", "type", f.FrameType(), "err", err)
		return nil
	}
	return b
}

// addedFrame returns `host/session-added` of t, as it stands.
func (h *Hub) addedFrame(t *topic) []byte {
	s := t.summary
	s.State, s.Pending, s.PendingBelow, s.Head = t.status.State, t.status.Pending, t.status.PendingBelow, t.note().head
	if was := t.summary; t.added == nil || was.Head != s.Head || was.State != s.State ||
		was.Pending != s.Pending || was.PendingBelow != s.PendingBelow {
		t.summary = s
		t.added = h.encode(frames.SessionAdded{SessionID: t.sid, Session: s})
	}
	return t.added
}

// statusFrame returns `host/session-status` of t, as it stands.
func (h *Hub) statusFrame(t *topic) []byte {
	if t.statused == nil {
		t.statused = h.encode(t.status)
	}
	return t.statused
}
