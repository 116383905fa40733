package session_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// turnFunc is one turn of the scripted agent.
type turnFunc func(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error)

// driver opens scripted agents: the text of a prompt names the turn to play.
type driver struct {
	name      string
	mu        sync.Mutex
	turns     map[string]turnFunc
	steer     func(ctx context.Context, p agent.Prompt) error
	configure func(ctx context.Context, options json.RawMessage) error
	opening   func(ctx context.Context) error // called by Open
	closing   func()                          // called by Close
	openErr   error
	opened    int
	closed    int
	last      agent.Session
	seen      []agent.Prompt
}

func newDriver(name string) *driver { return &driver{name: name, turns: map[string]turnFunc{}} }

func (d *driver) on(text string, f turnFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns[text] = f
}

func (d *driver) Info() agent.Info { return agent.Info{Name: d.name, Kind: "test"} }

func (d *driver) Open(ctx context.Context, s agent.Session) (agent.Agent, error) {
	d.mu.Lock()
	opening := d.opening
	d.mu.Unlock()
	if opening != nil {
		if err := opening(ctx); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.openErr != nil {
		return nil, d.openErr
	}
	d.opened++
	d.last = s
	return scripted{d, s.Background}, nil
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

type scripted struct {
	d  *driver
	bg agent.Background
}

// bgKey is where the context of a scripted turn holds the agent's Background.
type bgKey struct{}

// background returns what the agent of a scripted turn says outside of it.
func background(ctx context.Context) agent.Background {
	bg, _ := ctx.Value(bgKey{}).(agent.Background)
	return bg
}

func (s scripted) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	s.d.mu.Lock()
	s.d.seen = append(s.d.seen, p)
	f := s.d.turns[p.Text()]
	s.d.mu.Unlock()
	if f == nil {
		return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: p.Content, Blocks: []int{t.NewBlock()}})
	}
	return f(context.WithValue(ctx, bgKey{}, s.bg), t, p)
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

func (s scripted) Configure(ctx context.Context, options json.RawMessage) error {
	s.d.mu.Lock()
	f := s.d.configure
	s.d.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, options)
}

func (s scripted) Close(context.Context) error {
	s.d.mu.Lock()
	s.d.closed++
	f := s.d.closing
	s.d.mu.Unlock()
	if f != nil {
		f()
	}
	return nil
}

// hang is a turn that runs until it is cancelled.
func hang(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
	<-ctx.Done()
	return agent.Result{}, context.Cause(ctx)
}
