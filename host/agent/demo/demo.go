package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// Options tune a driver; the zero value works.
type Options struct {
	// Speed is the pace: 1 is readable, 2 twice as fast, 0 without delays.
	Speed float64
}

// New returns the driver.
func New(o Options) agent.Driver { return driver{o} }

type driver struct{ opt Options }

const model = "script-1"

// Info describes the driver.
func (d driver) Info() agent.Info {
	return agent.Info{
		Name: "demo", Kind: "demo", Provider: "none", Model: model, Models: []string{model},
		Capabilities: []string{"questions", "subagents", "tasks"},
	}
}

// Open returns an agent for s. It fails when the config says something unknown.
func (d driver) Open(_ context.Context, s agent.Session) (agent.Agent, error) {
	c, err := parse(s.Config)
	if err != nil {
		return nil, err
	}
	speed := d.opt.Speed
	if c.Speed != nil {
		speed = *c.Speed
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &demo{session: s, config: c, speed: speed, ctx: ctx, cancel: cancel}, nil
}

var errClosed = errors.New("demo: the agent was closed")

// demo is one open agent.
type demo struct {
	session agent.Session
	config  Config
	speed   float64
	ctx     context.Context //nolint:containedctx // ends when the agent is closed
	cancel  context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	closed bool
	turns  sync.WaitGroup // added to under mu, while not closed
	used   frames.Usage   // by all turns so far
	tasks  sync.WaitGroup // background work; begun by turns only
}

// Prompt plays one turn.
func (d *demo) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return agent.Result{}, errClosed
	}
	d.turns.Add(1)
	d.mu.Unlock()
	defer d.turns.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.ctx, func() { cancel(errClosed) })()

	pl := &player{demo: d, t: t, facts: map[string]string{"prompt": p.Text(), "cwd": d.session.Cwd}}
	err := d.play(ctx, pl, strings.TrimSpace(p.Text()))
	if ctx.Err() != nil {
		return agent.Result{Reason: frames.TurnCancelled}, nil
	}
	return agent.Result{Usage: pl.usage}, err
}

func (d *demo) play(ctx context.Context, pl *player, text string) error {
	switch d.config.Role {
	case roleStream:
		return pl.stream(ctx)
	case roleAsks:
		return pl.asks(ctx)
	case roleSpawns:
		return pl.spawns(ctx)
	case roleTasks:
		return pl.background(ctx)
	case roleWide:
		return pl.wide(ctx)
	case roleExplore, roleTests, roleFix:
		return pl.run(ctx, scripts[d.config.Role])
	}
	switch strings.ToLower(text) {
	case "":
		return pl.run(ctx, scripts["hello"])
	case "show me":
		return pl.run(ctx, scripts[roleShow])
	case "background":
		return pl.run(ctx, scripts["background"])
	}
	return pl.run(ctx, scripts["echo"])
}

// Steer takes nothing: a script cannot listen.
func (d *demo) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }

// Close cancels a running turn and all tasks, and waits for their end or for ctx. It is safe to
// call twice.
func (d *demo) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel(errClosed)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		d.turns.Wait()
		d.tasks.Wait()
		close(over)
	})
	select {
	case <-over:
		wg.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("demo: a turn is still being ended: %w", context.Cause(ctx))
	}
}

// spend adds what a turn used and returns the sum of the session.
func (d *demo) spend(u frames.Usage) frames.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used.InputTokens += u.InputTokens
	d.used.OutputTokens += u.OutputTokens
	d.used.CacheReadTokens += u.CacheReadTokens
	d.used.ContextTokens, d.used.ContextWindow = u.ContextTokens, u.ContextWindow
	d.used.Currency = "USD"
	millionths := d.used.InputTokens + 5*d.used.OutputTokens
	d.used.Cost = fmt.Sprintf("%d.%06d", millionths/1e6, millionths%1e6)
	return d.used
}
