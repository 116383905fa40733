package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

const (
	// pipeDelay is how long output is waited for after its process ended, and an
	// end after the output.
	pipeDelay = time.Second
	// maxEarly bounds the messages kept of sessions that are not known yet.
	maxEarly = 256
	// closeCall bounds session/close at the end.
	closeCall = time.Second
)

// link is one running agent, and the conversation with it.
type link struct {
	d    *driver
	opt  Options
	s    agent.Session
	peer peer
	conn *acprpc.Conn
	lane *lane
	caps initialized
	mode guard

	// ctx ends with [link.release].
	ctx    context.Context //nolint:containedctx // the lifetime of the link
	cancel context.CancelFunc
	wg     sync.WaitGroup

	log    tail
	logged chan struct{} // closed when the log was read to its end
	ended  chan struct{} // closed when nothing of the agent runs any more
	how    string        // how it ended; set before ended is closed
	// leaving says that the host ends the agent.
	leaving atomic.Bool

	// What follows belongs to the lane.
	main    *thread
	threads map[string]*thread
	kids    []*thread // subagents whose session may still be opening, in order
	early   []func()  // messages of sessions that are not known yet
	junk    int
}

// dial starts the agent and says hello.
func dial(ctx context.Context, d *driver, s agent.Session) (*link, error) {
	p, err := d.start(s)
	if err != nil {
		return nil, fmt.Errorf("acp: %s: %w", d.opt.Name, err)
	}
	l := &link{
		d: d, opt: d.opt, s: s, peer: p, threads: map[string]*thread{},
		logged: make(chan struct{}), ended: make(chan struct{}),
	}
	l.mode.modes = append([]string{d.opt.ApprovalMode}, d.opt.Modes...)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	in, out, log := p.pipes()
	l.lane = newLane(l.opt.Quiet, l.idle)
	l.conn = acprpc.New(out, in, acprpc.Options{MaxLine: l.opt.maxLine, Junk: l.noise, Unanswered: unanswered})
	l.wg.Go(func() { l.log.drain(log); close(l.logged) })
	l.conn.Run(l.receive)
	l.wg.Go(l.watch)
	if err := l.hello(ctx); err != nil {
		err = l.because(err)
		l.kill()
		return nil, err
	}
	return l, nil
}

// hello initializes the connection and logs in where that is configured.
func (l *link) hello(ctx context.Context) error {
	caps := map[string]any{
		"elicitation": map[string]any{"form": struct{}{}, "url": struct{}{}},
		"session":     map[string]any{"configOptions": map[string]any{"boolean": struct{}{}}},
	}
	if !l.opt.NoSubagents {
		caps["subagents"] = struct{}{}
	}
	err := l.conn.Call(ctx, "initialize", map[string]any{
		"protocolVersion": 1, "clientCapabilities": caps,
		"clientInfo": map[string]string{"name": "muxhost", "title": "muxhost", "version": "1"},
	}, &l.caps)
	switch {
	case err != nil:
		return err
	case l.caps.Version != 1:
		return fmt.Errorf("the agent speaks version %d of the protocol; want 1", l.caps.Version)
	case l.opt.AuthMethod == "":
		return nil
	}
	return l.conn.Call(ctx, "authenticate", map[string]string{"methodId": l.opt.AuthMethod}, nil)
}

// watch waits for the end of the agent, however it comes, and ends what is left.
func (l *link) watch() {
	defer close(l.ended)
	for quit := l.conn.Ending(); ; {
		select {
		case <-l.conn.Done():
			after(l.peer.exited(), pipeDelay)
		case <-l.peer.exited():
			after(l.conn.Done(), pipeDelay) // what it wrote before is read first
		case <-quit:
			if quit = nil; l.conn.Err() != acprpc.ErrStuck {
				continue // an orderly end; see stop
			}
		}
		break
	}
	l.how = l.peer.kill()
	_, out, log := l.peer.pipes()
	after(l.conn.Done(), pipeDelay)
	closeReader(out) // somebody unknown may hold it still
	l.conn.Wait()
	l.conn.GiveUpAll(func(acprpc.Inbound) bool { return true })
	after(l.logged, pipeDelay)
	closeReader(log)
	<-l.logged
	if !l.leaving.Load() {
		l.lane.put(l.crashed)
	}
}

// crashed tells of an agent that ended while nobody waited for it.
func (l *link) crashed() {
	if l.main == nil || l.main.turn != nil {
		return // whoever waits says it
	}
	text := l.opt.Name + " ended (" + l.how + ") while no turn ran; the next one starts it again"
	if last := l.log.text(); last != "" {
		text += "; its log ends:\n" + last
	}
	l.s.Background.Failed(text)
}

// after waits for ch, at most for d.
func after(ch <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
	}
}

func closeReader(r io.Reader) {
	if c, ok := r.(io.Closer); ok {
		_ = c.Close() // reading it ends; there is nothing to lose
	}
}

// storing is what events are stored with: what an agent says while its turn is
// cancelled, or at its end, is stored too.
func (l *link) storing() context.Context { return context.WithoutCancel(l.ctx) }

// alive reports whether the agent still runs.
func (l *link) alive() bool {
	select {
	case <-l.conn.Done():
		return false
	case <-l.conn.Ending():
		return false
	default:
		return true
	}
}

// because wraps the error of a failure with what is known of it: how the agent
// ended, and what it logged last.
func (l *link) because(err error) error {
	text := ""
	if !l.alive() {
		<-l.ended
		text = " (" + l.how + ")"
	}
	if last := l.log.text(); last != "" {
		text += "; its log ends:\n" + last
	}
	return fmt.Errorf("acp: %s: %w%s%s", l.opt.Name, err, l.login(err), text)
}

// login is what to do about an error that asks for a login.
func (l *link) login(err error) string {
	const authRequired = -32000
	e, ok := errors.AsType[*acprpc.CallError](err)
	if !ok || e.Code != authRequired || len(l.caps.Auth) == 0 {
		return ""
	}
	var ways []string
	for _, m := range l.caps.Auth {
		ways = append(ways, fmt.Sprintf("%s (%s)", m.ID, m.Name))
	}
	return "; log in with the agent's own program, or configure how to log in; it offers: " + strings.Join(ways, ", ")
}

// kill ends the agent at once and frees the link.
func (l *link) kill() {
	l.leaving.Store(true)
	l.peer.kill()
	l.release()
}

// stop ends the agent in order: the end of its input, SIGTERM, SIGKILL. When hurry
// is closed the rest comes at once.
func (l *link) stop(hurry <-chan struct{}) {
	l.leaving.Store(true)
	l.bye(hurry)
	l.conn.End(acprpc.ErrGone)
	if !l.exits(l.opt.StopWait, hurry) {
		l.peer.terminate()
		l.exits(l.opt.TermWait, hurry)
	}
	l.kill()
}

// bye closes the agent's session where it offers that.
func (l *link) bye(hurry <-chan struct{}) {
	var id string
	_ = l.lane.do(l.ctx, func() {
		if l.main != nil {
			id = l.main.id
		}
	})
	if id == "" || !l.caps.can("close") || !l.alive() {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, closeCall)
	defer cancel()
	_, ch := l.conn.Start("session/close", map[string]string{"sessionId": id})
	select {
	case <-ch:
	case <-ctx.Done():
	case <-hurry:
	}
}

// exits waits for the agent's exit.
func (l *link) exits(d time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.ended:
		return true
	case <-l.peer.exited():
		return true
	case <-timer.C:
	case <-hurry:
	}
	return false
}

// release waits for everything of the link. The agent must have been ended, and no
// turn may run on it.
func (l *link) release() {
	<-l.ended
	l.lane.close()
	l.cancel()
	l.wg.Wait()
}

// receive hands a message of the agent to the lane. It runs where the agent's
// output is read, so it must not wait for an answer of the agent.
func (l *link) receive(in acprpc.Inbound) {
	switch in.Method {
	case "session/update":
		var p struct {
			SessionID string          `json:"sessionId"`
			Update    json.RawMessage `json:"update"`
		}
		if json.Unmarshal(in.Params, &p) == nil && in.ID == nil {
			l.lane.put(func() { l.update(p.SessionID, decodeUpdate(p.Update)) })
			return
		}
	case "session/request_permission":
		var p permission
		if in.ID != nil && json.Unmarshal(in.Params, &p) == nil {
			l.lane.put(func() { l.permit(in, p) })
			return
		}
	case "elicitation/create":
		var p elicitation
		if in.ID != nil && json.Unmarshal(in.Params, &p) == nil {
			p.raw = in.Params
			l.lane.put(func() { l.elicit(in, p) })
			return
		}
	default:
		if in.ID != nil {
			l.conn.Reject(in.ID, acprpc.CodeNoMethod, "this host does not offer "+in.Method)
		}
	}
	if in.ID != nil {
		l.conn.Reject(in.ID, acprpc.CodeBadParams, "the params are not as the protocol says")
	}
	l.lane.put(func() { l.note(in) })
}

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

// idle is run when nothing came for a while.
func (l *link) idle() {
	for _, th := range l.threads {
		th.settleLoose()
	}
}

// noise reports, once for each process, that the agent writes what is no message.
func (l *link) noise(line []byte, why string) {
	const shown = 200
	text := fmt.Sprintf("%q", line[:min(len(line), shown)])
	l.log.add(append(line[:min(len(line), shown):min(len(line), shown)], '\n'))
	l.lane.put(func() {
		if l.junk++; l.junk == 1 {
			l.s.Background.Failed(fmt.Sprintf("%s wrote what is no message of its protocol (%s): %s; it was skipped, and so will others be",
				l.opt.Name, why, text))
		}
	})
}
