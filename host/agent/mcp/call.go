package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/muxhost/muxhost/host/agent"
)

// call is one tool call that runs.
type call struct {
	d       *door
	run     *run
	session *sdk.ServerSession
	post    *post
	token   any    // where progress goes; nil if it was not asked for
	doing   string // what progress says

	ctx    context.Context //nolint:containedctx // done with the call, its turn, its caller or its door
	cancel context.CancelCauseFunc
	stops  []func() bool
	beats  sync.WaitGroup
}

// turn is the one that the call runs in.
func (c *call) turn() agent.Turn { return c.run.turn }

// enter begins a call in the turn that runs now.
func (d *door) enter(ctx context.Context, req *sdk.CallToolRequest, doing string) (*call, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, ErrClosed
	case d.run == nil:
		return nil, errNoTurn
	case len(d.running) >= maxCalls:
		return nil, errBusy
	}
	c := &call{d: d, run: d.run, session: req.Session, token: req.Params.GetProgressToken(), doing: doing}
	if req.Extra != nil {
		c.post = d.waiting[req.Extra.Header.Get(postHeader)]
	}
	if c.post == nil {
		return nil, errGone
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	d.calls.Add(1)
	d.running[c] = struct{}{}
	for _, other := range []context.Context{c.run.ctx, c.post.ctx} {
		c.stops = append(c.stops, context.AfterFunc(other, func() { c.cancel(reason(other)) }))
	}
	return c, nil
}

// reason is why a context ended, which for a request is that its caller is gone.
func reason(ctx context.Context) error {
	if err := context.Cause(ctx); err != context.Canceled { //nolint:errorlint // the bare one
		return err
	}
	return errGone
}

// leave ends a call.
func (c *call) leave() {
	c.cancel(nil)
	for _, stop := range c.stops {
		stop()
	}
	c.beats.Wait()
	d := c.d
	d.mu.Lock()
	delete(d.running, c)
	d.mu.Unlock()
	d.calls.Done()
}

// beat tells the caller now and then that its call is alive. The first sign is
// sent at once, so that a client knows that the call has begun.
func (c *call) beat() {
	if err := c.post.comment(); err != nil {
		c.cancel(errGone)
		return
	}
	c.beats.Go(func() {
		start := time.Now()
		tick := time.NewTicker(c.d.s.opt.Beat)
		defer tick.Stop()
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-tick.C:
				c.progress(time.Since(start))
			}
		}
	})
}

// progress sends one sign of life: as progress, where the caller asked for that.
func (c *call) progress(since time.Duration) {
	if c.token != nil {
		_ = c.session.NotifyProgress(c.ctx, &sdk.ProgressNotificationParams{
			ProgressToken: c.token, Progress: since.Seconds(),
			Message: fmt.Sprintf("%s for %v", c.doing, since.Round(time.Second)),
		})
	}
	if err := c.post.comment(); err != nil {
		c.cancel(errGone)
	}
}

// add adds a tool. What do returns is for the model, also its error.
func add[In any](d *door, t tool, do func(*call, In) (string, error)) {
	sdk.AddTool(d.mcp, t.declare(), func(ctx context.Context, req *sdk.CallToolRequest, in In) (res *sdk.CallToolResult, _ any, err error) {
		c, err := d.enter(ctx, req, t.doing)
		if err != nil {
			return nil, nil, err
		}
		defer c.leave()
		defer func() {
			if r := recover(); r != nil {
				d.s.opt.Logger.Error("a tool of the host crashed", slog.String("tool", t.name), slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
				res, err = nil, fmt.Errorf("the host failed in %s; its log says why", t.name)
			}
		}()
		c.beat()
		text, err := do(c, in)
		if err != nil {
			return nil, nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, nil
	})
}
