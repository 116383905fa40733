package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

type replayFlags struct {
	at    int64 // 0 is the last
	speed float64
	json  bool
}

func newReplay(a *app) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay ID",
		Short: "Show a session as it was at any event",
		Long: `Tells what happened in a session up to its end, or up to the event that --at names.
With --speed N it takes the time it took then, divided by N; pauses are cut to five
seconds. With --json it prints the session's state at that event instead.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at") && f.at < 1 {
				return fail(exitUsage, "--at is %d: it takes the number of an event, 1 or more", f.at)
			}
			return a.replay(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().Int64Var(&f.at, "at", 0, "stop after this event number (default: the last)")
	cmd.Flags().Float64Var(&f.speed, "speed", 0, "how much faster than it was; 0 is at once")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the folded view as a JSON line")
	return cmd
}

// maxPause bounds the wait between two events of a replay.
const maxPause = 5 * time.Second

func (a *app) replay(ctx context.Context, id string, f replayFlags) error {
	if f.speed < 0 {
		return fail(exitUsage, "--speed is %v: it takes 0 or more", f.speed)
	}
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	var res rpc.HistoryResult
	if err := c.Call(ctx, "session.history", rpc.HistoryParams{SessionID: sid, Limit: 1}, &res); err != nil {
		return err
	}
	end := res.Head
	if f.at > 0 {
		end = frames.Seq(f.at)
	}
	if end > res.Head {
		return fail(exitUsage, "--at is %d: the last event is %d", f.at, res.Head)
	}
	r := &replayer{a: a, sid: sid, view: frames.NewView(), end: end, speed: f.speed, wait: sleep}
	out := a.outPrinter()
	r.n = newNarrator(out, out, a.style)
	r.n.session(sid)
	if r.silent = f.json; !f.json {
		r.n.rest = func(blob frames.BlobID, from int) error { return copyBlob(ctx, c, blob, int64(from), r.n.out) }
	}
	if err := r.run(ctx, c, res.First); err != nil {
		return err
	}
	if f.json {
		return a.jsonLine("view", r.view)
	}
	r.n.out.endLine()
	return r.n.out.err
}

// replayer tells a log.
type replayer struct {
	a      *app
	n      *narrator
	sid    frames.SessionID
	view   *frames.View
	end    frames.Seq
	speed  float64
	silent bool
	last   frames.Time
	wait   func(ctx context.Context, d time.Duration) error
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return &exitError{code: exitInterrupted}
	}
}

// run reads the log a page at a time, after its base if it has one.
func (r *replayer) run(ctx context.Context, c *client.Client, first frames.Seq) error {
	if first > 1 {
		if err := r.base(ctx, c); err != nil {
			return err
		}
	}
	for after := r.view.Seq; after < r.end; {
		var res rpc.HistoryResult
		if err := c.Call(ctx, "session.history", rpc.HistoryParams{SessionID: r.sid, After: &after, Limit: 1000}, &res); err != nil {
			return err
		}
		if len(res.Events) == 0 {
			return fail(exitFailed, "session %s: the log ends at %d", r.sid, after)
		}
		for _, raw := range res.Events {
			e, err := frames.DecodeEvent(raw)
			if err != nil {
				return err
			}
			if e.Seq > r.end {
				return nil
			}
			if err := r.event(ctx, e); err != nil {
				return err
			}
			after = e.Seq
		}
	}
	return nil
}

// base takes the fold of what is no longer kept from the start of a subscription.
func (r *replayer) base(ctx context.Context, c *client.Client) error {
	sub := rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: r.sid, Since: new(frames.Seq(0))}}}
	if _, err := c.Subscribe(ctx, sub); err != nil {
		return err
	}
	for f, err := range c.Frames(ctx) {
		if err != nil {
			return err
		}
		switch f.(type) {
		case *frames.SessionSubscribed, *frames.SessionBase:
			if err := r.view.ApplyFrame(f); err != nil {
				return err
			}
		case *frames.SessionUnsubscribed:
			return fail(exitFailed, "session %s: its log cannot be read", r.sid)
		}
		if r.view.Seq > 0 {
			break
		}
		if e, ok := f.(*frames.SessionEvent); ok && e.SessionID == r.sid {
			return fail(exitFailed, "session %s: the host sent no base", r.sid)
		}
	}
	if err := c.Unsubscribe(ctx, rpc.UnsubscribeParams{Sessions: []frames.SessionID{r.sid}}); err != nil {
		return err
	}
	if r.view.Seq > r.end {
		return fail(exitUsage, "--at is %d: the oldest event that is kept is %d", r.end, r.view.Seq+1)
	}
	r.view = r.view.Durable()
	r.past()
	return nil
}

// past tells what the base holds.
func (r *replayer) past() {
	if r.silent {
		return
	}
	n := r.n
	n.note(r.sid, n.style.Dim(fmt.Sprintf("events up to %d are no longer kept; what they came to:", r.view.Seq)))
	for _, it := range r.view.Items {
		switch it.Kind {
		case frames.ItemUser, frames.ItemSteering, frames.ItemContext:
			n.note(r.sid, n.style.Bold("› "+n.text(textOf(it.Content))))
		case frames.ItemAssistant:
			n.note(r.sid, n.text(textOf(it.Content)))
		case frames.ItemTool:
			n.note(r.sid, n.style.Cyan("● "+term.Line(it.Tool.Name))+" "+first(term.Line(it.Tool.Title), commandOf(it.Tool.Input)))
		}
	}
}

// event folds and tells one event, at its time.
func (r *replayer) event(ctx context.Context, e frames.Event) error {
	if err := r.view.ApplyEvent(e); err != nil && !errors.Is(err, frames.ErrGap) {
		return err
	}
	if r.silent {
		return nil
	}
	if r.speed > 0 && !r.last.IsZero() {
		if d := time.Duration(float64(e.Time.Sub(r.last.Time)) / r.speed); d > 0 {
			r.n.out.endLine()
			if err := r.wait(ctx, min(d, maxPause)); err != nil {
				return err
			}
		}
	}
	r.last = e.Time
	return r.n.event(r.sid, e)
}
