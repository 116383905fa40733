package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// maxHeld bounds the messages kept of sessions that are not known yet. When there are
// more the oldest go; a request among them is answered as one that nobody answered.
const maxHeld = 256

// parcel is a message of the agent on its way to a session's lane.
type parcel struct {
	in      acprpc.Inbound
	session string // the agent's id of it, "" if it names none
	child   string // a subagent that it announces
	job     func(*link)
}

// router knows whose the agent's sessions are. What an agent says of a session goes to
// that session alone: an approval that went to another one could be answered there.
type router struct {
	mu      sync.Mutex // guards what follows; taken alone
	links   []*link
	owners  map[string]*link // of the agent's sessions, subagents among them
	left    map[string]bool  // sessions whose owner has left
	opening int              // links whose session has no id yet
	served  int              // links that there were
	held    []parcel         // of sessions that are not known yet
	// flushing is not nil while held messages are handed on; later ones wait for them.
	flushing chan struct{}
	noted    bool
	note     string // what the first link is to be told
}

func (r *router) init() { r.owners, r.left = map[string]*link{}, map[string]bool{} }

// all returns the links that there are.
func (r *router) all() []*link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.links)
}

// resolve says to whom a message goes, or that it must wait. mu is held.
func (r *router) resolve(p parcel) (to []*link, wait bool) {
	switch l := r.owners[p.session]; {
	case l != nil:
		if p.child != "" && r.owners[p.child] == nil {
			r.owners[p.child] = l
			delete(r.left, p.child)
		}
		return []*link{l}, false
	case r.left[p.session]:
		return nil, false
	case p.session == "" && p.in.ID != nil && !r.sole():
		return nil, false // nobody's, and what is being opened may wait for its answer
	case r.opening > 0 || r.served == 0:
		return nil, true
	case r.sole() || p.session == "" && p.in.ID == nil:
		return r.links, false
	}
	return nil, false
}

// sole reports whether there is one link and never was another, so that sessions that
// nobody knows can only be its own. mu is held.
func (r *router) sole() bool { return len(r.links) == 1 && r.served == 1 && r.opening == 0 }

// change changes the routes by f, and hands on what was held for that.
func (e *engine) change(f func(r *router)) {
	r := &e.routes
	r.mu.Lock()
	for r.flushing != nil {
		busy := r.flushing
		r.mu.Unlock()
		<-busy
		r.mu.Lock()
	}
	f(r)
	held, out := r.held, map[int][]*link{}
	r.held = nil
	for i, p := range held {
		if to, wait := r.resolve(p); wait {
			r.held = append(r.held, p)
		} else {
			out[i] = slices.Clone(to)
		}
	}
	done := make(chan struct{})
	r.flushing = done
	r.mu.Unlock()
	for i, p := range held {
		if to, ok := out[i]; ok {
			e.deliver(p, to)
		}
	}
	r.mu.Lock()
	r.flushing = nil
	r.mu.Unlock()
	close(done)
}

// receive hands a message of the agent to the lane of its session. It runs where the
// agent's output is read, so it must not wait for an answer of the agent.
func (e *engine) receive(in acprpc.Inbound) {
	p := e.read(in)
	r := &e.routes
	r.mu.Lock()
	for r.flushing != nil {
		busy := r.flushing
		r.mu.Unlock()
		<-busy
		r.mu.Lock()
	}
	to, wait := r.resolve(p)
	var dropped []parcel
	if wait {
		r.held = append(r.held, p)
		over := max(0, len(r.held)-maxHeld)
		dropped, r.held = r.held[:over], r.held[over:]
	} else {
		to = slices.Clone(to)
	}
	r.mu.Unlock()
	for _, old := range dropped {
		e.settle(old.in)
	}
	if !wait {
		e.deliver(p, to)
	}
}

// deliver puts a message into lanes. A request that nobody takes is answered.
func (e *engine) deliver(p parcel, to []*link) {
	taken := false
	for _, l := range to {
		l.hear()
		taken = l.lane.put(func() { p.job(l) }) || taken
	}
	if taken {
		return
	}
	e.settle(p.in)
	if len(to) == 0 {
		e.stray(p)
	}
}

// settle answers a request, if it is one, as one that nobody answered.
func (e *engine) settle(in acprpc.Inbound) {
	if in.ID != nil {
		e.conn.GiveUpAll(func(open acprpc.Inbound) bool { return bytes.Equal(open.ID, in.ID) })
	}
}

// stray tells of a message that belongs to no session here.
func (e *engine) stray(p parcel) {
	r := &e.routes
	r.mu.Lock()
	left := r.left[p.session]
	r.mu.Unlock()
	text := fmt.Sprintf("%s sent %s for a session that is not open here (%.64q)", e.opt.Name, p.in.Method, p.session)
	e.log.add([]byte("muxhost: " + text + "\n"))
	if asks := unanswered(p.in) != nil; p.in.ID == nil || left || !asks {
		return
	}
	for _, l := range r.all() {
		l.lane.put(func() { l.s.Background.Failed(text + "; nothing was allowed") })
	}
}

// announce tells everybody, once, what concerns the agent as a whole.
func (e *engine) announce(text string) {
	r := &e.routes
	r.mu.Lock()
	first, links := !r.noted, slices.Clone(r.links)
	r.noted = true
	if first && len(links) == 0 {
		r.note = text
	}
	r.mu.Unlock()
	if !first {
		return
	}
	for _, l := range links {
		l.lane.put(func() { l.s.Background.Failed(text) })
	}
}

// read decodes a message as far as its route. What the host does not offer is refused
// at once.
func (e *engine) read(in acprpc.Inbound) parcel {
	p := parcel{in: in, session: acprpc.SessionOf(in), job: func(l *link) { l.note(in) }}
	switch in.Method {
	case "session/update":
		var m struct {
			Update json.RawMessage `json:"update"`
		}
		if json.Unmarshal(in.Params, &m) == nil && in.ID == nil {
			u := decodeUpdate(m.Update)
			if strings.HasPrefix(u.kind, "subagent_") {
				p.child = readChild(u).id
			}
			p.job = func(l *link) { l.update(p.session, u) }
			return p
		}
	case "session/request_permission":
		var m permission
		if in.ID != nil && json.Unmarshal(in.Params, &m) == nil {
			p.job = func(l *link) { l.permit(in, m) }
			return p
		}
	case "elicitation/create":
		var m elicitation
		if in.ID != nil && json.Unmarshal(in.Params, &m) == nil {
			m.raw = in.Params
			p.job = func(l *link) { l.elicit(in, m) }
			return p
		}
	default:
		if in.ID != nil {
			e.conn.Reject(in.ID, acprpc.CodeNoMethod, "this host does not offer "+in.Method)
		}
	}
	if in.ID != nil {
		e.conn.Reject(in.ID, acprpc.CodeBadParams, "the params are not as the protocol says")
	}
	return p
}

// attach adds a conversation whose session has no id yet.
func (e *engine) attach(l *link) {
	var note string
	e.change(func(r *router) {
		r.links = append(r.links, l)
		r.served++
		r.opening++
		l.opening = true
		note, r.note = r.note, ""
	})
	if note != "" {
		l.s.Background.Failed(note)
	}
}

// opened says that the session of l is open, or will not be.
func (e *engine) opened(l *link) {
	e.change(func(r *router) { r.settled(l) })
}

func (r *router) settled(l *link) {
	if l.opening {
		l.opening = false
		r.opening--
	}
}

// claim makes l the owner of one of the agent's sessions, unless another one owns it.
// Messages for it then go into its lane.
func (e *engine) claim(id string, l *link) (mine bool) {
	e.change(func(r *router) {
		if o := r.owners[id]; o == nil || o == l {
			r.owners[id], mine = l, true
			delete(r.left, id)
		}
	})
	return mine
}

// disclaim takes that back for a session that could not be opened.
func (e *engine) disclaim(id string, l *link) {
	e.change(func(r *router) {
		if r.owners[id] == l {
			delete(r.owners, id)
		}
	})
}

// another reports whether one of the agent's sessions belongs to another conversation.
func (e *engine) another(id string, l *link) bool {
	e.routes.mu.Lock()
	defer e.routes.mu.Unlock()
	o := e.routes.owners[id]
	return o != nil && o != l
}

// detach removes a conversation. What the agent still says of its sessions goes to
// nobody, and what it asks in them is answered.
func (e *engine) detach(l *link) {
	mine := e.asksOf(l)
	e.change(func(r *router) {
		r.settled(l)
		r.links = slices.DeleteFunc(r.links, func(o *link) bool { return o == l })
		for id, o := range r.owners {
			if o == l {
				delete(r.owners, id)
				r.left[id] = true
			}
		}
	})
	e.conn.GiveUpAll(mine)
}

// asksOf tells requests that belong to l, subagents' among them, and those of sessions
// that nobody knows where they can only be its own.
func (e *engine) asksOf(l *link) func(acprpc.Inbound) bool {
	r := &e.routes
	r.mu.Lock()
	defer r.mu.Unlock()
	sole := r.sole()
	mine, others := map[string]bool{}, map[string]bool{}
	for id, o := range r.owners {
		if o == l {
			mine[id] = true
		} else {
			others[id] = true
		}
	}
	return func(in acprpc.Inbound) bool {
		id := acprpc.SessionOf(in)
		return mine[id] || sole && !others[id]
	}
}

// alone reports whether l is the only conversation of the agent.
func (e *engine) alone(l *link) bool {
	links := e.routes.all()
	return len(links) == 1 && links[0] == l
}
