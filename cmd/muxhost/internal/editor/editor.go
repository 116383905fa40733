package editor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

const (
	// maxCalls is how many requests of the editor may be under way at once, beside
	// prompts.
	maxCalls = 64
	// partingTime is how long what was asked may take after the editor's last word,
	// and how long the last lines may take to be read.
	partingTime = 5 * time.Second
	// progressEvery is how often a running tool's output is sent.
	progressEvery = 200 * time.Millisecond
	// maxInbox is how much of what the editor said may wait, so that its end is seen
	// while it does not read.
	maxInbox = 16
)

// ErrHostGone is wrapped by what [Serve] returns when the host is gone for good.
var ErrHostGone = errors.New("editor: the host is gone")

// Dialer connects to the host as a client that is called label; changes of the
// connection's state are told to onState.
type Dialer func(ctx context.Context, label string, onState func(client.State)) (*client.Client, error)

// Options say who talks to whom. In, Out and Dial are required.
type Options struct {
	// In is what the editor writes, Out what it reads; Serve closes both.
	In  io.ReadCloser
	Out io.WriteCloser
	// Dial is called once, when the editor says who it is.
	Dial Dialer
	// Session is what the first session/new opens instead of a new one, "" for none: an
	// id, or with Find what that finds one by.
	Session string
	Find    func(ctx context.Context, c *client.Client, id string) (frames.SessionID, error)
	// Agent is who runs new sessions, "" for the host's default.
	Agent string
	// Hint follows commands that are advised, such as " --state-dir DIR".
	Hint string
	// Version is the program's.
	Version string
	// Patience is how long the host may be away before it counts as gone: 1 min.
	Patience time.Duration
	// Logger gets what the editor does not show; nil discards.
	Logger *slog.Logger
}

// bridge is one editor and its host. All of it belongs to the goroutine of [Serve],
// but for what says otherwise.
type bridge struct {
	o    Options
	log  *slog.Logger
	conn *acprpc.Conn
	// ctx ends with the bridge; reading ends when the editor said its last word.
	ctx     context.Context //nolint:containedctx // the lifetime of the goroutines
	cancel  context.CancelCauseFunc
	reading context.Context //nolint:containedctx // see above
	wg      sync.WaitGroup
	todo    chan func() // unbuffered: who hands something over waits
	inbox   chan func() // what the editor said, in order

	host     *client.Client
	editor   peer
	agents   map[string]bool // which agents of the host speak ACP themselves
	dialed   bool
	opened   bool // the session of the options was handed out
	calls    int  // requests of the editor under way
	inflight int  // calls to the host under way, and answers that the editor owes
	threads  map[frames.SessionID]*thread
	leaving  map[frames.SessionID][]func()      // sessions being closed, and what waits for that
	dirty    map[*thread]map[frames.CallID]bool // whose progress is to be sent
	tick     <-chan time.Time
	fatal    error

	mu   sync.Mutex // guards what follows; taken alone
	away bool
	wake chan struct{} // holds one after a change
}

// Serve is an agent until the editor's output to it ends, ctx does, or the host is
// gone; only the last is an error, and so is a host that could not be reached.
func Serve(ctx context.Context, o Options) error {
	if o.Patience <= 0 {
		o.Patience = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &bridge{
		o: o, log: o.Logger, todo: make(chan func()), inbox: make(chan func(), maxInbox), wake: make(chan struct{}, 1),
		threads: map[frames.SessionID]*thread{}, leaving: map[frames.SessionID][]func(){}, dirty: map[*thread]map[frames.CallID]bool{}, agents: map[string]bool{},
	}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	reading, stop := context.WithCancel(b.ctx)
	b.reading = reading
	b.conn = acprpc.New(o.In, o.Out, acprpc.Options{Peer: "the editor", Unanswered: withdrawn, Junk: func(line []byte, why string) {
		b.log.Warn("a line of the editor is no message", slog.Int("bytes", len(line)), slog.String("why", why))
	}})
	b.conn.Run(func(in acprpc.Inbound) { b.said(func() { b.inbound(in) }) })
	b.wg.Go(func() {
		defer stop()
		select {
		case <-b.conn.Done():
		case <-b.conn.Ending():
		case <-b.ctx.Done():
		}
	})
	err := b.run()
	b.part(err)
	return err
}

// withdrawn is the answer to a request that the editor takes back.
func withdrawn(in acprpc.Inbound) any {
	if in.Method == "session/prompt" {
		return stopped("cancelled", nil)
	}
	return nil
}

// run does what is handed to it until somebody is gone.
func (b *bridge) run() error {
	var gone, late <-chan time.Time
	ended := b.reading.Done()
	for b.fatal == nil && (ended != nil || b.inflight > 0 || len(b.inbox) > 0) {
		select {
		case f := <-b.todo:
			f()
		case f := <-b.inbox:
			f()
		case <-b.tick:
			b.tick = nil
			b.flush()
		case <-b.wake:
			gone = b.patience(gone)
		case <-gone:
			return fmt.Errorf("%w: it was away for %v", ErrHostGone, b.o.Patience)
		case <-ended:
			ended, late = nil, time.After(partingTime)
		case <-late:
			return nil
		case <-b.ctx.Done():
			return nil
		}
	}
	return b.fatal
}

// patience is when a host that is away counts as gone.
func (b *bridge) patience(running <-chan time.Time) <-chan time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.away:
		return nil
	case running != nil:
		return running
	}
	b.log.Warn("the host is away; waiting for it")
	return time.After(b.o.Patience)
}

// state is told of the connection to the host, from the client's goroutine.
func (b *bridge) state(s client.State) {
	b.mu.Lock()
	b.away = s == client.StateDisconnected
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// part ends everything. Requests that are open are refused where the host is gone;
// where the editor is, nobody waits for them.
func (b *bridge) part(err error) {
	b.cancel(acprpc.ErrGone) // nobody takes what is handed over any more
	if err != nil {
		b.conn.RejectAll(acprpc.CodeInternal, err.Error())
	} else {
		b.log.Info("the editor has left; its sessions go on, and what is pending stays so")
	}
	if b.host != nil {
		_ = b.host.Close() // it did its work
	}
	b.conn.End(acprpc.ErrGone)
	_ = b.o.In.Close() // so that its reader ends
	done := make(chan struct{})
	var last sync.WaitGroup
	last.Go(func() { b.conn.Wait(); b.wg.Wait(); close(done) })
	select {
	case <-done:
	case <-time.After(partingTime):
		_ = b.o.Out.Close() // the last lines are not read
	}
}

// post hands f to the loop, and waits until it is taken or the bridge ends.
func (b *bridge) post(f func()) {
	select {
	case b.todo <- f:
	case <-b.ctx.Done():
	}
}

// said hands over what the editor said, from the goroutine that reads it.
func (b *bridge) said(f func()) {
	select {
	case b.inbox <- f:
	case <-b.ctx.Done():
	}
}

// beside runs f beside the loop, and then in the loop what f returns.
func (b *bridge) beside(f func(ctx context.Context) func()) {
	b.inflight++
	b.wg.Go(func() {
		then := f(b.ctx)
		b.post(func() {
			b.inflight--
			then()
		})
	})
}

// send tells the editor of something. It waits while the editor reads slowly.
func (b *bridge) send(method string, params any) {
	b.conn.Room(b.reading)
	if b.reading.Err() == nil {
		b.conn.Notify(method, params)
	}
}

// pump hands the host's frames to the loop.
func (b *bridge) pump() {
	for f, err := range b.host.Frames(b.ctx) {
		b.post(func() {
			if err != nil {
				b.fatal = fmt.Errorf("%w: %w", ErrHostGone, err)
				return
			}
			b.frame(f)
		})
	}
}

// frame takes a frame of the host.
func (b *bridge) frame(f frames.Frame) {
	if added, ok := f.(*frames.SessionAdded); ok {
		b.added(added)
		return
	}
	if th := b.threads[client.SessionOf(f)]; th != nil {
		th.frame(f)
	}
	b.noteLive(f)
}

// inbound takes a request or a notification of the editor.
func (b *bridge) inbound(in acprpc.Inbound) {
	switch {
	case in.Method == "session/cancel" && in.ID == nil:
		b.cancelPrompts(acprpc.SessionOf(in))
	case in.ID == nil:
		b.log.Debug("a notification of the editor was ignored", slog.String("method", in.Method))
	case in.Method == "initialize":
		b.initialize(in)
	case b.host == nil:
		b.conn.Reject(in.ID, acprpc.CodeBadID, in.Method+": initialize comes first")
	case in.Method == "session/prompt":
		b.prompt(in)
	case b.calls >= maxCalls:
		b.conn.Reject(in.ID, acprpc.CodeInternal, fmt.Sprintf("%d requests are under way; wait for their answers", b.calls))
	default:
		b.request(in)
	}
}

// request takes a request that calls the host.
func (b *bridge) request(in acprpc.Inbound) {
	do := map[string]func(acprpc.Inbound, sessionParams) error{
		"session/new": b.newSession, "session/load": b.loadSession, "session/resume": b.resumeSession,
		"session/list": b.listSessions, "session/close": b.closeSession, "session/fork": b.forkSession,
		"session/set_mode": b.setMode,
	}[in.Method]
	if do == nil {
		b.conn.Reject(in.ID, acprpc.CodeNoMethod, in.Method+" is not offered; see agentCapabilities")
		return
	}
	var p sessionParams
	err := params(in, &p)
	if err == nil {
		err = do(in, p)
	}
	if err != nil {
		b.conn.Reject(in.ID, acprpc.CodeBadParams, in.Method+": "+err.Error())
	}
}

// answer runs f beside the loop for a request of the editor; then answers it in the
// loop unless there was an error.
func (b *bridge) answer(in acprpc.Inbound, f func(ctx context.Context) (then func(), err error)) {
	b.calls++
	b.beside(func(ctx context.Context) func() {
		then, err := f(ctx)
		return func() {
			b.calls--
			if err != nil {
				b.fail(in, err)
				return
			}
			then()
		}
	})
}

// fail answers a request with what the host said.
func (b *bridge) fail(in acprpc.Inbound, err error) {
	code, text := acprpc.CodeInternal, err.Error()
	if e, ok := errors.AsType[*client.RPCError](err); ok {
		text = e.Message
		if e.Code == rpc.CodeInvalidParams {
			code = acprpc.CodeBadParams
		}
	}
	b.conn.Reject(in.ID, code, text)
}
