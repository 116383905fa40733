package acp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

const (
	// maxEarly bounds the messages kept of a session that is being opened.
	maxEarly = 256
	// closeCall bounds session/close at the end.
	closeCall = time.Second
)

// link is the conversation of one session of the host with an agent that may have
// others.
type link struct {
	e    *engine
	d    *driver
	opt  Options
	s    agent.Session
	conn *acprpc.Conn
	caps *initialized
	lane *lane
	mode guard

	// ctx ends with [link.leave].
	ctx     context.Context //nolint:containedctx // the lifetime of the link
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	parting sync.Once
	ending  sync.Once
	ended   chan struct{} // closed when the agent ended, or the link left it
	// spent says that the agent's session was closed: the next turn opens it again.
	spent atomic.Bool
	// told says that a turn ends with the agent, and tells of it.
	told  atomic.Bool
	heard atomic.Int64 // when the agent last said something here, Unix nanoseconds

	// offer is the door to the host's tools, nil if there is none.
	offer   agent.ToolOffer
	awaited atomic.Int64 // calls of those tools that wait

	opening bool // belongs to the router

	// What follows belongs to the lane.
	main    *thread
	threads map[string]*thread
	kids    []*thread // subagents whose session may still be opening, in order
	early   []func()  // messages from before the session was open
}

// newLink begins a conversation with a running agent. It has no session yet.
func newLink(e *engine, s agent.Session) *link {
	l := &link{
		e: e, d: e.d, opt: e.opt, s: s, conn: e.conn, caps: &e.caps,
		threads: map[string]*thread{}, ended: make(chan struct{}),
	}
	l.mode.slot, l.mode.changed = make(chan struct{}, 1), make(chan struct{})
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.hear()
	l.lane = newLane(l.opt.Quiet, l.idle)
	l.offerTools()
	e.attach(l)
	return l
}

// finish notes that nothing more comes from the agent.
func (l *link) finish() { l.ending.Do(func() { close(l.ended) }) }

// leave ends the conversation, and waits for everything of it: the agent's session is
// closed where it offers that, and what it still asks is answered. No turn may run.
func (l *link) leave(hurry <-chan struct{}) {
	l.parting.Do(func() {
		l.bye(hurry)
		l.e.detach(l)
		l.finish()
		l.lane.close()
		l.cancel()
		l.wg.Wait()
		l.closeTools()
	})
}

// bye closes the agent's session.
func (l *link) bye(hurry <-chan struct{}) {
	id := l.sessionID()
	if id != "" && l.alive() && l.caps.can("close") {
		l.closeSession(id, closeCall, hurry)
	}
}

// closeSession makes the agent close its session, and reports whether it did.
func (l *link) closeSession(id string, patience time.Duration, hurry <-chan struct{}) bool {
	l.spent.Store(true)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	_, ch := l.conn.Start("session/close", map[string]string{"sessionId": id})
	select {
	case r := <-ch:
		return r.Err == nil
	case <-timer.C:
	case <-hurry:
	}
	return false
}

// crashed tells of an agent that ended while nobody waited for it.
func (l *link) crashed() {
	if l.main == nil || l.main.turn != nil || l.told.Load() {
		return // whoever waits says it
	}
	l.s.Background.Failed(l.opt.Name + " ended (" + l.e.how + ") while no turn ran; the next one starts it again" + l.e.lastWords())
}

// storing is what events are stored with: what an agent says while its turn is
// cancelled, or at its end, is stored too.
func (l *link) storing() context.Context { return context.WithoutCancel(l.ctx) }

// alive reports whether the agent still runs and its session is open.
func (l *link) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return !l.spent.Load() && l.e.alive()
	}
}

// because wraps the error of a failure with what is known of it.
func (l *link) because(err error) error { return l.e.because(err) }

// hear counts as if the agent had said something now.
func (l *link) hear() { l.heard.Store(time.Now().UnixNano()) }

// silence is for how long the agent has said nothing.
func (l *link) silence() time.Duration { return time.Since(time.Unix(0, l.heard.Load())) }

// reply answers a request of the agent, and reports whether it had no answer yet.
func (l *link) reply(id json.RawMessage, result any) bool {
	l.hear() // the agent was not silent, it waited
	return l.conn.Reply(id, result)
}

// claim makes messages for one of the agent's sessions come here. It is false where they
// go to another link.
func (l *link) claim(id string) bool { return l.e.claim(id, l) }

// disclaim takes that back.
func (l *link) disclaim(id string) { l.e.disclaim(id, l) }

// note keeps a message that means nothing to the host.
func (l *link) note(in acprpc.Inbound) {
	if l.main == nil {
		l.hold(func() { l.note(in) })
		return
	}
	type noted struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params,omitempty"`
	}
	l.main.vendor("notification", acprpc.Marshal(noted{in.Method, in.Params}))
}

// update routes an update to its session. It may come before the answer that names
// the session.
func (l *link) update(id string, u update) {
	th := l.threads[id]
	switch {
	case th != nil && th.child != nil && th.child.lost:
		l.foreign(id, u)
		if strings.HasPrefix(u.kind, "subagent_") {
			th.subagent(u)
		}
	case th != nil:
		th.update(u)
	case l.main == nil:
		l.hold(func() { l.update(id, u) })
	case l.defers(func() { l.update(id, u) }):
	default:
		l.foreign(id, u)
	}
}

// foreign keeps an update of a session that the host does not have.
func (l *link) foreign(id string, u update) {
	l.main.vendor("foreign", acprpc.Marshal(map[string]any{"sessionId": id, "update": u.raw}))
}

// defers keeps f while a subagent's session is being opened: what waits there may say
// whose session it is.
func (l *link) defers(f func()) bool {
	l.kids = slices.DeleteFunc(l.kids, func(th *thread) bool { return !th.opening() })
	return len(l.kids) > 0 && l.kids[0].waiting(f)
}

// hold keeps a message until the session is known. When there are too many the
// oldest go: nothing that counts comes so early.
func (l *link) hold(f func()) {
	l.early = append(l.early, f)
	if over := len(l.early) - maxEarly; over > 0 {
		l.early = l.early[over:]
	}
}

// adopt makes id the main session and plays what came before.
func (l *link) adopt(id string, muted bool) {
	l.main = newThread(l, id, nil)
	l.main.muted = muted
	l.threads[id] = l.main
	early := l.early
	l.early = nil
	for _, f := range early {
		f()
	}
}

// unadopt takes back that id is the main session.
func (l *link) unadopt(ctx context.Context, id string) {
	_ = l.lane.do(ctx, func() {
		delete(l.threads, id)
		l.main = nil
	})
}

// idle is run when nothing came for a while.
func (l *link) idle() {
	for _, th := range l.threads {
		th.settleLoose()
	}
}
