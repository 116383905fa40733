package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// pipeDelay is how long output is waited for after its process ended, and an end
// after the output.
const pipeDelay = time.Second

var errNobody = errors.New("nobody waits for it any more")

// engine is one running agent: its process, the connection to it, and who talks over
// that.
type engine struct {
	d     *driver
	opt   Options
	owner frames.SessionID // the session that it was started for
	peer  peer
	conn  *acprpc.Conn
	caps  initialized
	said  json.RawMessage // its capabilities, as it wrote them

	// What follows is guarded by the pool.
	key   string
	users int
	solo  bool // it serves its owner only; set before ready is closed

	giveUp context.CancelCauseFunc // ends the start
	start  context.Context         //nolint:containedctx // done when the start is given up
	ready  chan struct{}           // closed when the agent has started, or err says why not
	err    error
	empty  chan struct{}  // gets a token when nobody uses it any more
	gone   chan struct{}  // closed when nothing of it is left
	life   sync.WaitGroup // serve, which the pool starts

	log    tail
	logged chan struct{} // closed when the log was read to its end
	ended  chan struct{} // closed when nothing of the agent runs any more
	how    string        // how it ended; set before ended is closed
	wg     sync.WaitGroup
	// leaving says that the host ends the agent.
	leaving atomic.Bool
	fate    atomic.Pointer[string] // why, where sessions that run must be told

	routes router
}

func newEngine(d *driver, key string, owner frames.SessionID) *engine {
	e := &engine{
		d: d, opt: d.opt, key: key, owner: owner, ready: make(chan struct{}), empty: make(chan struct{}, 1),
		gone: make(chan struct{}), logged: make(chan struct{}), ended: make(chan struct{}),
	}
	e.routes.init()
	e.start, e.giveUp = context.WithCancelCause(context.Background())
	return e
}

// serve starts the agent for s and keeps it until it has ended.
func (e *engine) serve(s agent.Session) {
	defer close(e.gone)
	defer e.d.forget(e)
	defer e.giveUp(nil)
	ctx, cancel := context.WithTimeoutCause(e.start, e.opt.StartTimeout,
		fmt.Errorf("it took longer than %v to start", e.opt.StartTimeout))
	defer cancel()
	if e.err = e.begin(ctx, s); e.err != nil {
		if e.start.Err() == nil {
			e.d.failed(e, e.err.Error())
		}
		close(e.ready)
		return
	}
	cancel()
	e.d.shared(e)
	close(e.ready)
	e.linger()
	<-e.ended
	e.wg.Wait()
}

// linger waits until the agent has ended, and ends it when nobody used it for a while.
func (e *engine) linger() {
	timer := time.NewTimer(e.opt.IdleStop)
	defer timer.Stop()
	for {
		select {
		case <-e.ended:
			return
		case <-e.empty:
			timer.Reset(e.opt.IdleStop)
		case <-timer.C:
			if e.d.retire(e) {
				e.stop(nil)
				return
			}
		}
	}
}

// unused is called by the pool when the last user has left.
func (e *engine) unused() {
	select {
	case <-e.ready:
	default:
		e.leaving.Store(true)
		e.giveUp(errNobody)
	}
	select {
	case e.empty <- struct{}{}:
	default:
	}
}

// usable reports whether a session may join: the agent runs, or is being started.
func (e *engine) usable() bool {
	select {
	case <-e.ready:
		return e.err == nil && e.alive()
	default:
		return !e.leaving.Load()
	}
}

// begin starts the agent and says hello.
func (e *engine) begin(ctx context.Context, s agent.Session) error {
	if !e.opt.OneSession {
		s.Cwd = home(s.Cwd, s.Env, e.opt.Env)
	}
	p, err := e.d.start(s)
	if err != nil {
		return fmt.Errorf("acp: %s: %w", e.opt.Name, err)
	}
	e.peer = p
	in, out, log := p.pipes()
	e.conn = acprpc.New(out, in, acprpc.Options{MaxLine: e.opt.maxLine, Junk: e.noise, Unanswered: unanswered})
	e.wg.Go(func() { e.log.drain(log); close(e.logged) })
	e.conn.Run(e.receive)
	e.wg.Go(e.watch)
	if err := e.hello(ctx); err != nil {
		err = e.because(err)
		e.kill()
		return err
	}
	return nil
}

// hello initializes the connection and logs in where that is configured.
func (e *engine) hello(ctx context.Context) error {
	caps := map[string]any{
		"elicitation": map[string]any{"form": struct{}{}, "url": struct{}{}},
		"session": map[string]any{
			"configOptions": map[string]any{"boolean": struct{}{}}, "notices": struct{}{}, "compaction": struct{}{},
		},
	}
	if !e.opt.NoSubagents {
		caps["subagents"] = struct{}{}
	}
	var raw json.RawMessage
	err := e.conn.Call(ctx, "initialize", map[string]any{
		"protocolVersion": 1, "clientCapabilities": caps,
		"clientInfo": map[string]string{"name": "muxhost", "title": "muxhost", "version": "1"},
	}, &raw)
	switch {
	case err != nil:
		return err
	case !e.learn(raw):
		return errors.New("the agent's answer to initialize is not as the protocol says")
	case e.caps.Version != 1:
		return fmt.Errorf("the agent speaks version %d of the protocol; want 1", e.caps.Version)
	case e.opt.AuthMethod == "":
		return nil
	}
	return e.conn.Call(ctx, "authenticate", map[string]string{"methodId": e.opt.AuthMethod}, nil)
}

// learn takes the agent's answer to initialize.
func (e *engine) learn(raw json.RawMessage) bool {
	var said struct {
		Capabilities json.RawMessage `json:"agentCapabilities"`
	}
	ok := json.Unmarshal(raw, &e.caps) == nil && json.Unmarshal(raw, &said) == nil
	e.said = said.Capabilities
	return ok
}

// watch waits for the end of the agent, however it comes, and ends what is left.
func (e *engine) watch() {
	for quit := e.conn.Ending(); ; {
		select {
		case <-e.conn.Done():
			after(e.peer.exited(), pipeDelay)
		case <-e.peer.exited():
			after(e.conn.Done(), pipeDelay) // what it wrote before is read first
		case <-quit:
			if quit = nil; e.conn.Err() != acprpc.ErrStuck {
				continue // an orderly end; see stop
			}
		}
		break
	}
	e.how = e.peer.kill()
	in, out, log := e.peer.pipes()
	_ = in.Close() // nobody reads it any more, though somebody may hold it
	after(e.conn.Done(), pipeDelay)
	closeReader(out) // somebody unknown may hold it still
	e.conn.Wait()
	e.conn.GiveUpAll(func(acprpc.Inbound) bool { return true })
	after(e.logged, pipeDelay)
	closeReader(log)
	<-e.logged
	if why := e.fate.Load(); why != nil {
		e.how += "; " + *why
	}
	e.over()
}

// over tells everybody that the agent has ended.
func (e *engine) over() {
	crashed := !e.leaving.Load()
	if crashed {
		select {
		case <-e.ready:
			e.d.failed(e, e.how+e.lastWords())
		default: // serve counts it
		}
	}
	close(e.ended)
	for _, l := range e.routes.all() {
		l.finish()
		if crashed {
			l.lane.put(l.crashed)
		}
	}
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

// alive reports whether the agent runs and is not being ended.
func (e *engine) alive() bool { return !e.leaving.Load() && !e.lost() }

// lost reports whether the agent has ended, or its input has.
func (e *engine) lost() bool {
	select {
	case <-e.conn.Done():
		return true
	case <-e.conn.Ending():
		return true
	default:
		return false
	}
}

// because wraps the error of a failure with what is known of it: how the agent
// ended, and what it logged last.
func (e *engine) because(err error) error {
	text := ""
	if e.lost() {
		<-e.ended
		text = " (" + e.how + ")"
	}
	return fmt.Errorf("acp: %s: %w%s%s%s", e.opt.Name, err, e.login(err), text, e.lastWords())
}

// lastWords is the end of the agent's log, for the end of a message.
func (e *engine) lastWords() string {
	if last := e.log.text(); last != "" {
		return "; its log ends:\n" + last
	}
	return ""
}

// login is what to do about an error that asks for a login.
func (e *engine) login(err error) string {
	const authRequired = -32000
	ce, ok := errors.AsType[*acprpc.CallError](err)
	if !ok || ce.Code != authRequired || len(e.caps.Auth) == 0 {
		return ""
	}
	var ways []string
	for _, m := range e.caps.Auth {
		ways = append(ways, fmt.Sprintf("%s (%s)", m.ID, m.Name))
	}
	return "; log in with the agent's own program, or configure how to log in; it offers: " + strings.Join(ways, ", ")
}

// condemn ends the agent at once, and with it what its other sessions do; why is told
// to those that run. It waits for the end.
func (e *engine) condemn(why string) {
	e.fate.CompareAndSwap(nil, &why)
	e.leaving.Store(true)
	e.peer.kill()
	<-e.ended
}

// kill ends the agent at once and waits for everything of it.
func (e *engine) kill() {
	e.leaving.Store(true)
	e.peer.kill()
	<-e.ended
	e.wg.Wait()
}

// stop ends the agent in order: the end of its input, SIGTERM, SIGKILL. When hurry
// is closed the rest comes at once.
func (e *engine) stop(hurry <-chan struct{}) {
	e.leaving.Store(true)
	e.conn.End(acprpc.ErrGone)
	if !e.exits(e.opt.StopWait, hurry) {
		e.peer.terminate()
		e.exits(e.opt.TermWait, hurry)
	}
	e.kill()
}

// shut stops the agent, also where it is still being started, and waits until nothing
// of it is left.
func (e *engine) shut(hurry <-chan struct{}) {
	e.giveUp(errDriverClosed)
	<-e.ready
	if e.err == nil {
		e.stop(hurry)
	}
	e.life.Wait()
}

// exits waits for the agent's exit.
func (e *engine) exits(d time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.ended:
		return true
	case <-e.peer.exited():
		return true
	case <-timer.C:
	case <-hurry:
	}
	return false
}

// noise reports, once for each process, that the agent writes what is no message.
func (e *engine) noise(line []byte, why string) {
	const shown = 200
	text := fmt.Sprintf("%q", line[:min(len(line), shown)])
	e.log.add(append(line[:min(len(line), shown):min(len(line), shown)], '\n'))
	e.announce(fmt.Sprintf("%s wrote what is no message of its protocol (%s): %s; it was skipped, and so will others be",
		e.opt.Name, why, text))
}
