package mcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/host/agent"
)

// Bounds of what one session's agent can cost.
const (
	maxPosts    = 128 // requests under way
	maxCalls    = 64  // calls that run
	maxSessions = 16  // protocol sessions; one more ends the oldest that is idle
)

// door is what one session was offered.
type door struct {
	s       *Server
	session agent.Session
	token   string
	digest  [sha256.Size]byte
	mcp     *sdk.Server
	handler http.Handler // knows the protocol sessions of this door only

	ctx    context.Context //nolint:containedctx // the lifetime of all calls
	cancel context.CancelCauseFunc
	posts  sync.WaitGroup
	calls  sync.WaitGroup

	mu      sync.Mutex // guards what follows; a leaf
	closed  bool
	under   int // requests under way
	last    int // the number of the last POST
	waiting map[string]*post
	running map[*call]struct{}
	run     *run // nil while no turn runs
}

// run is one turn in which calls are done.
type run struct {
	turn   agent.Turn
	ctx    context.Context //nolint:containedctx // done when the turn is over
	cancel context.CancelCauseFunc
	left   leftovers
}

func newDoor(s *Server, ses agent.Session, token string) *door {
	d := &door{
		s: s, session: ses, token: token, digest: sha256.Sum256([]byte(token)),
		waiting: map[string]*post{}, running: map[*call]struct{}{},
	}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	d.mcp = sdk.NewServer(&sdk.Implementation{Name: "muxhost", Title: "muxhost", Version: s.opt.Version}, &sdk.ServerOptions{
		Instructions: instructions, Logger: quiet,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	})
	d.mcp.AddReceivingMiddleware(oneName)
	d.addTools()
	d.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return d.mcp },
		&sdk.StreamableHTTPOptions{Logger: quiet, MaxRequestBodyBytes: maxBody})
	return d
}

// URL implements [agent.ToolOffer].
func (d *door) URL() string { return d.s.url() }

// Token implements [agent.ToolOffer].
func (d *door) Token() string { return d.token }

// Begin implements [agent.ToolOffer]. Its end does not wait for the calls that it
// cancels: what they still say the turn refuses.
func (d *door) Begin(t agent.Turn) (end func()) {
	r := &run{turn: t}
	r.ctx, r.cancel = context.WithCancelCause(d.ctx)
	d.mu.Lock()
	before := d.run
	d.run = r
	d.mu.Unlock()
	if before != nil {
		before.cancel(agent.ErrTurnOver)
	}
	return func() {
		d.mu.Lock()
		if d.run == r {
			d.run = nil
		}
		d.mu.Unlock()
		r.cancel(agent.ErrTurnOver)
	}
}

// shut makes the token worthless and cancels what runs.
func (d *door) shut() {
	d.mu.Lock()
	d.closed, d.run = true, nil
	d.mu.Unlock()
	d.s.forget(d)
	d.cancel(ErrClosed)
}

// Close implements [agent.ToolOffer].
func (d *door) Close() {
	d.shut()
	d.calls.Wait()
	d.lastWords()
	d.hangUp()
}

// lastWait is how long the answers of calls that have ended may take to be written.
const lastWait = time.Second

// lastWords waits until the answers of calls are written, and not longer than lastWait:
// the end of a protocol session would swallow them.
func (d *door) lastWords() {
	written := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		d.posts.Wait()
		close(written)
	})
	timer := time.NewTimer(lastWait)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
		d.hangUp()
	}
	wait.Wait()
}

// hangUp ends the protocol sessions.
func (d *door) hangUp() {
	for ss := range d.mcp.Sessions() {
		_ = ss.Close()
	}
}

// admit counts a request, or says with which status it is refused. Whoever is
// admitted calls done.
func (d *door) admit() (refused int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return http.StatusUnauthorized
	case d.under >= maxPosts:
		return http.StatusServiceUnavailable
	}
	d.under++
	d.posts.Add(1)
	return 0
}

func (d *door) done() {
	d.mu.Lock()
	d.under--
	d.mu.Unlock()
	d.posts.Done()
}

// post answers one POST.
func (d *door) post(w http.ResponseWriter, r *http.Request) {
	if !d.read(w, r) {
		return
	}
	if r.Header.Get(sessionHeader) == "" {
		d.makeRoom()
	}
	p := newPost(w, r)
	defer p.close()
	id := d.enroll(p)
	defer d.discharge(id)
	r.Header.Set(postHeader, id)
	d.handler.ServeHTTP(p, r)
}

// end answers one DELETE: the calls of that protocol session end, and so does it.
func (d *door) end(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	for c := range d.running {
		if c.session.ID() == r.Header.Get(sessionHeader) {
			c.cancel(errGone)
		}
	}
	d.mu.Unlock()
	d.handler.ServeHTTP(w, r)
}

const (
	sessionHeader = "Mcp-Session-Id"
	// postHeader leads from a call to the request that it came with. It is set here,
	// over whatever the caller wrote.
	postHeader = "Muxhost-Post"
)

func (d *door) enroll(p *post) (id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	id = strconv.Itoa(d.last)
	d.waiting[id] = p
	return id
}

func (d *door) discharge(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, id)
}

// makeRoom ends the oldest idle protocol session if there are too many: agents that
// begin one a turn, and end none, go on.
func (d *door) makeRoom() {
	var idle *sdk.ServerSession
	n := 0
	for ss := range d.mcp.Sessions() {
		n++
		if idle == nil && !d.isBusy(ss.ID()) {
			idle = ss
		}
	}
	if n >= maxSessions && idle != nil {
		_ = idle.Close()
	}
}

func (d *door) isBusy(session string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.running {
		if c.session.ID() == session {
			return true
		}
	}
	return false
}

// Why a call is refused, in words for the model.
var (
	errNoTurn = errors.New("no turn of this session runs, so the host's tools cannot be used now; use them while you work on a prompt")
	errBusy   = fmt.Errorf("%d calls run already; wait until one has ended", maxCalls)
)
