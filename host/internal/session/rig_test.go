package session_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/pending"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/mem"
)

// rig is a manager with everything around it: a store, a publisher that notes
// what it is told, and an agent whose turns are functions of the test.
type rig struct {
	t     *testing.T
	store store.Store // what is on disk
	disk  *disk       // how the manager reaches it
	pub   *publisher
	m     *session.Manager
	agent *driver
	dir   string
	tweak func(*session.Config)
	ids   *minter
}

// minter mints ids that sort by age.
type minter struct {
	mu sync.Mutex
	n  int
}

func (m *minter) mint() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	return fmt.Sprintf("id-%06d", m.n)
}

// bubble runs f with a rig in virtual time, and shuts the manager down.
func bubble(t *testing.T, f func(r *rig), tweaks ...func(*session.Config)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, store: mem.New(), agent: newDriver("scripted"), dir: dir, ids: &minter{}}
		r.tweak = func(c *session.Config) {
			for _, f := range tweaks {
				f(c)
			}
		}
		r.start()
		f(r)
		r.stop()
		r.pub.check(t)
	})
}

// start makes a manager over what is stored: the host starts.
func (r *rig) start() {
	r.t.Helper()
	r.pub, r.disk = newPublisher(), &disk{Store: r.store}
	cfg := session.Config{
		Store: r.disk, Publisher: r.pub, Blobs: r.pub, Drivers: map[string]agent.Driver{"scripted": r.agent},
		DefaultAgent: "scripted", NewID: r.ids.mint, Logger: slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	r.tweak(&cfg)
	m, err := session.New(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.m = m
}

// stop shuts the manager down without waiting for turns.
func (r *rig) stop() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel()
	if err := r.m.Shutdown(ctx); err != nil {
		r.t.Error(err)
	}
}

// crash stops the host as a power loss does: nothing more is stored. Then it
// starts again.
func (r *rig) crash() {
	r.t.Helper()
	r.disk.fail(store.ErrClosed)
	r.stop()
	r.start()
}

// restart stops the host in good order and starts it again.
func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

// disk is a store that fails when told to.
type disk struct {
	store.Store
	mu      sync.Mutex
	err     error // of every write
	lost    error // of the next append, which is not stored
	landed  error // of the next append, which is stored
	blind   error // of Head
	appends int
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *disk) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (store.Head, error) {
	d.mu.Lock()
	d.appends++
	err, lost, landed := d.err, d.lost, d.landed
	d.lost, d.landed = nil, nil
	d.mu.Unlock()
	if err != nil || lost != nil {
		return store.Head{}, cmp.Or(err, lost)
	}
	h, err := d.Store.Append(ctx, sid, at, evs, rows...)
	if landed != nil {
		return store.Head{}, landed
	}
	return h, err
}

func (d *disk) Put(ctx context.Context, rows ...store.Row) error {
	d.mu.Lock()
	err := d.err
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.Store.Put(ctx, rows...)
}

func (d *disk) Head(ctx context.Context, sid frames.SessionID) (store.Head, error) {
	d.mu.Lock()
	err := d.blind
	d.mu.Unlock()
	if err != nil {
		return store.Head{}, err
	}
	return d.Store.Head(ctx, sid)
}

// set changes how the disk behaves.
func (d *disk) set(f func(d *disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// create makes a session and returns its id.
func (r *rig) create(a session.CreateArgs) frames.SessionID {
	r.t.Helper()
	if a.Cwd == "" {
		a.Cwd = r.dir
	}
	var s frames.Session
	if err := r.m.Create(r.t.Context(), a, func(v frames.Session) { s = v; r.pub.placed(v.SessionID) }); err != nil {
		r.t.Fatalf("create: %v", err)
	}
	return s.SessionID
}

// prompt sends a prompt that must be accepted.
func (r *rig) prompt(sid frames.SessionID, text string, more ...func(*session.PromptArgs)) session.PromptAnswer {
	r.t.Helper()
	a, err := r.tryPrompt(sid, text, more...)
	if err != nil {
		r.t.Fatalf("prompt %q: %v", text, err)
	}
	return a
}

func (r *rig) tryPrompt(sid frames.SessionID, text string, more ...func(*session.PromptArgs)) (got session.PromptAnswer, err error) {
	p := session.PromptArgs{Session: sid, Content: []frames.ContentBlock{frames.Text(text)}}
	for _, f := range more {
		f(&p)
	}
	n := 0
	err = r.m.Prompt(r.t.Context(), p, func(a session.PromptAnswer) { n++; got = a; r.pub.placed(sid) })
	if err == nil && n != 1 {
		r.t.Errorf("prompt %q: placed was called %d times, want once", text, n)
	}
	return got, err
}

func mode(m frames.PromptMode) func(*session.PromptArgs) {
	return func(p *session.PromptArgs) { p.Mode = m }
}

func withID(id frames.PromptID) func(*session.PromptArgs) {
	return func(p *session.PromptArgs) { p.ID = id }
}

// cancel cancels and returns whether there was something to cancel.
func (r *rig) cancel(sid frames.SessionID, turn frames.TurnID, tree bool) (cancelled bool) {
	r.t.Helper()
	if err := r.m.Cancel(r.t.Context(), session.CancelArgs{Session: sid, Turn: turn, Tree: tree}, func(ok bool) { cancelled = ok; r.pub.placed(sid) }); err != nil {
		r.t.Fatalf("cancel: %v", err)
	}
	return cancelled
}

// answer answers an approval.
func (r *rig) answer(sid frames.SessionID, id frames.RequestID, o frames.Outcome) error {
	return r.m.Answer(r.t.Context(), pending.Answer{Session: sid, ID: id, Kind: pending.KindApproval, Outcome: o, By: &frames.By{ClientID: "c1"}}, func() { r.pub.placed(sid) })
}

// approvals returns the approvals that wait.
func (r *rig) approvals(sid frames.SessionID) []*frames.ApprovalRequested {
	var out []*frames.ApprovalRequested
	for _, f := range r.m.Pending(sid) {
		if a, ok := f.(*frames.ApprovalRequested); ok {
			out = append(out, a)
		}
	}
	return out
}

// wait lets everything run until nothing does.
func (r *rig) wait() { synctest.Wait() }

// log returns the stored events of a session.
func (r *rig) log(sid frames.SessionID) []frames.Event {
	r.t.Helper()
	var out []frames.Event
	after := frames.Seq(0)
	for {
		evs, err := r.store.Read(r.t.Context(), sid, after, 0, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(evs) == 0 {
			return out
		}
		for _, s := range evs {
			e, err := frames.DecodeEvent(s.Data)
			if err != nil {
				r.t.Fatal(err)
			}
			if after++; e.Seq != after {
				r.t.Fatalf("event %d of %s has seq %d", after, sid, e.Seq)
			}
			out = append(out, e)
		}
	}
}

// types returns the types of a session's stored events.
func (r *rig) types(sid frames.SessionID) []string {
	r.t.Helper()
	var out []string
	for _, e := range r.log(sid) {
		out = append(out, string(e.Type))
	}
	return out
}

// wantTypes compares the stored events after the first.
func (r *rig) wantTypes(sid frames.SessionID, want ...string) {
	r.t.Helper()
	got := r.types(sid)
	if want = append([]string{"session/created"}, want...); !slices.Equal(got, want) {
		r.t.Errorf("log of %s:\n got %v\nwant %v", sid, got, want)
	}
}

// last returns the payload of the last stored event of its type.
func last[P any](r *rig, sid frames.SessionID) *P {
	r.t.Helper()
	all := every[P](r, sid)
	if len(all) == 0 {
		r.t.Fatalf("log of %s has no %T: %v", sid, *new(P), r.types(sid))
	}
	return all[len(all)-1]
}

// every returns the payloads of all stored events of a type.
func every[P any](r *rig, sid frames.SessionID) []*P {
	r.t.Helper()
	var out []*P
	for _, e := range r.log(sid) {
		p, err := e.Payload()
		if err != nil {
			r.t.Fatal(err)
		}
		if v, ok := p.(*P); ok {
			out = append(out, v)
		}
	}
	return out
}

// turnFunc is one turn of the scripted agent.
type turnFunc func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error)

// driver opens scripted agents: the text of a prompt names the turn to play.
type driver struct {
	name    string
	mu      sync.Mutex
	turns   map[string]turnFunc
	steer   func(ctx context.Context, p agent.Prompt) error
	openErr error
	opened  int
	closed  int
	last    agent.Session
	seen    []agent.Prompt
}

func newDriver(name string) *driver { return &driver{name: name, turns: map[string]turnFunc{}} }

func (d *driver) on(text string, f turnFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns[text] = f
}

func (d *driver) Info() agent.Info { return agent.Info{Name: d.name, Kind: "test"} }

func (d *driver) Open(_ context.Context, s agent.Session) (agent.Agent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.openErr != nil {
		return nil, d.openErr
	}
	d.opened++
	d.last = s
	return scripted{d}, nil
}

func (d *driver) count() (opened, closed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened, d.closed
}

func (d *driver) prompts() []agent.Prompt {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

type scripted struct{ d *driver }

func (s scripted) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	s.d.mu.Lock()
	s.d.seen = append(s.d.seen, p)
	f := s.d.turns[p.Text()]
	s.d.mu.Unlock()
	if f == nil {
		return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: p.Content, Blocks: []int{t.NewBlock()}})
	}
	return f(ctx, t, p)
}

func (s scripted) Steer(ctx context.Context, p agent.Prompt) error {
	s.d.mu.Lock()
	f := s.d.steer
	s.d.mu.Unlock()
	if f == nil {
		return agent.ErrNotTaken
	}
	return f(ctx, p)
}

func (s scripted) Close(context.Context) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.closed++
	return nil
}

// hang is a turn that runs until it is cancelled.
func hang(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
	<-ctx.Done()
	return agent.Result{}, context.Cause(ctx)
}

// publisher notes what clients would see, and checks what holds at any time.
type publisher struct {
	mu       sync.Mutex
	flaws    []string
	known    map[frames.SessionID]*shown
	order    []string // Add, SetLive, Remove and the types of events and frames
	blobs    map[frames.BlobID][]byte
	mutating func(frames.SessionID)
}

// shown is what was published of one session.
type shown struct {
	summary frames.Session
	live    bool
	events  []frames.Encoded
	frames  []frames.Frame
	status  []frames.SessionStatus
	head    frames.Seq
	turn    *frames.TurnSnapshot
	open    map[string]bool
	marks   []int // len(events) at each placed
}

func newPublisher() *publisher {
	return &publisher{known: map[frames.SessionID]*shown{}, blobs: map[frames.BlobID][]byte{}}
}

func (p *publisher) flaw(format string, args ...any) {
	p.flaws = append(p.flaws, fmt.Sprintf(format, args...))
}

// check reports what was wrong at any time.
func (p *publisher) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flaws {
		t.Error(f)
	}
	for sid, s := range p.known {
		for key := range s.open {
			t.Errorf("%s: request %s was shown and never resolved", sid, key)
		}
	}
}

func (p *publisher) of(sid frames.SessionID) *shown {
	s := p.known[sid]
	if s == nil {
		p.flaw("%s was published before it was added", sid)
		s = &shown{open: map[string]bool{}}
		p.known[sid] = s
	}
	return s
}

func (p *publisher) Add(s frames.Session, _ frames.Seq, live bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[s.SessionID] != nil {
		p.flaw("%s was added twice", s.SessionID)
	}
	p.known[s.SessionID] = &shown{summary: s, live: live, head: s.Head, open: map[string]bool{}}
	p.order = append(p.order, "add "+string(s.SessionID))
}

func (p *publisher) SetLive(sid frames.SessionID, live bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(sid)
	if s.live == live {
		p.flaw("%s was set live=%v twice", sid, live)
	}
	s.live = live
	p.order = append(p.order, fmt.Sprintf("live %s %v", sid, live))
}

func (p *publisher) Remove(sid frames.SessionID, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, sid)
	p.order = append(p.order, "remove "+string(sid)+" "+reason)
}

func (p *publisher) Publish(sid frames.SessionID, u session.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(sid)
	for _, e := range u.Events {
		if e.Class.Durable() {
			if s.head++; e.Seq != s.head {
				p.flaw("%s: seq %d (%s) was published after %d", sid, e.Seq, e.Type, s.head-1)
				s.head = e.Seq
			}
		}
		s.events = append(s.events, e)
		p.order = append(p.order, fmt.Sprintf("%s %s", e.Type, sid))
	}
	s.turn = u.Turn
	for _, n := range u.Notices {
		s.frames = append(s.frames, n.Frame)
		p.order = append(p.order, fmt.Sprintf("%s %s", n.Frame.FrameType(), sid))
		switch {
		case n.Key == "":
		case n.Settle && !s.open[n.Key], !n.Settle && s.open[n.Key]:
			p.flaw("%s: notice %s settle=%v out of turn", sid, n.Key, n.Settle)
		case n.Settle:
			delete(s.open, n.Key)
		default:
			s.open[n.Key] = true
		}
	}
	if u.Status != nil {
		s.status = append(s.status, *u.Status)
	}
	if u.Summary != nil {
		s.summary = *u.Summary
	}
}

// placed notes when a response was placed.
func (p *publisher) placed(sid frames.SessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.known[sid]; s != nil {
		s.marks = append(s.marks, len(s.events))
	}
	p.order = append(p.order, "placed "+string(sid))
}

// Put implements session.Blobs.
func (p *publisher) Put(_ context.Context, r io.Reader) (frames.BlobID, int64, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	sum := sha256.Sum256(b)
	id := frames.BlobID("sha256-" + hex.EncodeToString(sum[:]))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blobs[id] = bytes.Clone(b)
	return id, int64(len(b)), nil
}

// status returns the last published status.
func (p *publisher) status(sid frames.SessionID) frames.SessionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(sid)
	if len(s.status) == 0 {
		return frames.SessionStatus{}
	}
	return s.status[len(s.status)-1]
}

// framesOf returns the frames of one type that were published.
func framesOf[F any](p *publisher, sid frames.SessionID) []F {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []F
	for _, f := range p.of(sid).frames {
		if v, ok := f.(F); ok {
			out = append(out, v)
		}
	}
	return out
}

// events returns a copy of the events that were published.
func (p *publisher) events(sid frames.SessionID) []frames.Encoded {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.of(sid).events)
}

// script returns what was published, in order.
func (p *publisher) script() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order)
}

// ask is an approval of one call.
func ask(call frames.CallID, input string) agent.Approval {
	return agent.Approval{Call: call, Tool: frames.Tool{Name: "sh"}, Input: json.RawMessage(input)}
}

// second is a moment of virtual time.
const second = time.Second

// pause waits for virtual time to pass.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// goes runs f beside the test; the bubble waits for it.
func (r *rig) goes(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	r.t.Cleanup(wg.Wait)
}

// configure changes a session.
func (r *rig) configure(c session.ConfigureArgs) {
	r.t.Helper()
	if err := r.m.Configure(r.t.Context(), c, func(s frames.Session) { r.pub.placed(s.SessionID) }); err != nil {
		r.t.Fatalf("configure: %v", err)
	}
}
