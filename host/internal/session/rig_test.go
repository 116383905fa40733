package session_test

import (
	"context"
	"encoding/json"
	"fmt"
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
		Store: r.disk, Publisher: r.pub, Blobs: r.pub, OpenBlob: r.pub.Open, Drivers: map[string]agent.Driver{"scripted": r.agent},
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
