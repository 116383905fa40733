package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/muxhost/muxhost/host/agent"
)

// client is the agent of one session of the host. Its link ends when the agent
// crashes; the next turn makes a new one.
type client struct {
	d       *driver
	session agent.Session
	ctx     context.Context //nolint:containedctx // ends when the agent is closed
	cancel  context.CancelCauseFunc

	mu     sync.Mutex // guards what follows; taken alone
	closed bool
	busy   sync.WaitGroup // turns; added to under mu, while not closed
	link   *link          // nil where the agent is gone
	conf   map[string]json.RawMessage
	edits  int // of conf

	// What follows is used by one turn, or the opening, at a time.
	past    past
	preface string    // what a new session of the agent must be told first
	owed    agent.Raw // which session of the agent this is, until that is stored
}

var (
	_ agent.Agent        = (*client)(nil)
	_ agent.Configurable = (*client)(nil)
)

// connect starts the agent, or joins it, and brings it to where the session is.
func (c *client) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.d.opt.StartTimeout,
		fmt.Errorf("it took longer than %v to start", c.d.opt.StartTimeout))
	defer cancel()
	if err := c.past.read(ctx, c.session); err != nil {
		return err
	}
	var slow slowStart
	defer slow.watch(ctx, c)()
	e, err := c.d.acquire(ctx, c.session, &slow)
	if err != nil {
		return err
	}
	l := newLink(e, c.session)
	err = c.enter(ctx, l)
	e.opened(l)
	for again := err == nil; again; {
		conf, edits := c.options()
		err = l.apply(ctx, conf)
		again = err == nil && !c.linked(l, edits)
	}
	if err != nil {
		err = l.because(err)
		c.d.part(l)
		return err
	}
	return nil
}

// options are those that the session is configured to, and how often that changed.
func (c *client) options() (conf map[string]json.RawMessage, edits int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.conf), c.edits
}

// linked makes l the link, unless the options were changed meanwhile.
func (c *client) linked(l *link, edits int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.edits != edits {
		return false
	}
	c.link = l
	return true
}

// live returns the link, after connecting again where the agent is gone.
func (c *client) live(ctx context.Context) (*link, error) {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil && l.alive() {
		return l, nil
	}
	c.drop()
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link, nil
}

// drop frees a link whose agent is gone, or has closed its session.
func (c *client) drop() {
	c.mu.Lock()
	l := c.link
	c.link = nil
	c.mu.Unlock()
	if l != nil {
		c.d.part(l)
	}
}

// enterTurn counts a turn in, unless the agent is closed.
func (c *client) enterTurn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.busy.Add(1)
	return true
}

// Prompt runs one turn. It returns when the agent has ended it and every subagent
// that it began; a cancelled one at the latest after [Options.CancelGrace].
func (c *client) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	if !c.enterTurn() {
		return agent.Result{}, errClosed
	}
	defer c.busy.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(errClosed) })()

	l, err := c.live(ctx)
	if err != nil {
		return agent.Result{}, err
	}
	params, err := c.params(ctx, l, p)
	if err != nil {
		return agent.Result{}, err
	}
	if err := c.settle(ctx, t.Emit); err != nil {
		return agent.Result{}, err
	}
	if err := l.mode.calm(ctx, l.ended); err != nil {
		return agent.Result{}, l.because(err)
	}
	c.d.reached(c.past.id, t.ID())
	r := newRun(ctx, l, t)
	res, err := r.run(params)
	if r.delivered {
		c.preface = ""
	}
	_ = c.past.read(context.WithoutCancel(ctx), c.session) // it is read again before it is needed
	if !l.alive() {
		c.drop()
	}
	return res, err
}

// Steer is never taken: the protocol has no word for it.
func (c *client) Steer(context.Context, agent.Prompt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	return agent.ErrNotTaken
}

// Configure sets options of the running agent, and those of later ones: "model",
// "mode" out of the allowed modes, or any option of the agent by its id.
func (c *client) Configure(ctx context.Context, options json.RawMessage) error {
	_, conf, err := decodeConfig(nil, options)
	if err != nil {
		return err
	}
	c.mu.Lock()
	l, closed := c.link, c.closed
	c.mu.Unlock()
	if closed {
		return errClosed
	}
	if _, err := c.d.opt.modeOf(conf); err != nil {
		return fmt.Errorf("acp: %s: %w", c.d.opt.Name, err)
	}
	if l != nil && l.alive() {
		ctx, cancel := context.WithTimeout(ctx, c.d.opt.StartTimeout)
		defer cancel()
		if err := l.reconfigure(ctx, conf); err != nil {
			return fmt.Errorf("acp: %s: %w", c.d.opt.Name, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.conf, conf)
	c.edits++
	return nil
}

// Close ends a running turn and the agent's session, and waits for that; an agent that
// serves no other session is ended with everything it started, and one that could goes
// on for [Options.IdleStop]. Once ctx is done the rest is killed. It is safe to call
// twice.
func (c *client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(errClosed)
	c.busy.Wait()
	c.mu.Lock()
	l := c.link
	c.link = nil
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	l.leave(ctx.Done())
	if c.d.release(l.e); l.e.solo {
		l.e.stop(ctx.Done())
		<-l.e.gone
	}
	return nil
}
