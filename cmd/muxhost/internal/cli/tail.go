package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

type tailFlags struct {
	follow, tree, json, plain bool
	since                     int64
	delivery                  rpc.Delivery
}

func newTail(a *app) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail ID",
		Short: "Show a session; with -f, live",
		Long: `Prints what happened in a session, from the start or from --since, and stops at its
present end. With -f it goes on live, through restarts of the host, until Ctrl-C.
--plain prints one line for each fact, with its time, for logs and audits.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.tail(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on live")
	cmd.Flags().BoolVar(&f.tree, "tree", false, "with its subagents")
	cmd.Flags().BoolVar(&f.json, "json", false, "print frames as JSON lines")
	cmd.Flags().BoolVar(&f.plain, "plain", false, "print one line for each fact, with its time and number")
	cmd.Flags().StringVar(&f.delivery.Text, "text", "", "stream, or final: whole messages only (default stream)")
	cmd.Flags().StringVar(&f.delivery.Reasoning, "reasoning", "", "stream, final, or off (default stream)")
	cmd.Flags().StringVar(&f.delivery.Tools, "tools", "", "stream, or off: results only (default stream)")
	cmd.Flags().Int64Var(&f.since, "since", 0, "show what came after this event number")
	return cmd
}

func (a *app) tail(ctx context.Context, id string, f tailFlags) error {
	if f.since < 0 {
		return fail(exitUsage, "--since is %d: it takes the number of an event, 0 or more", f.since)
	}
	if err := f.check(); err != nil {
		return err
	}
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	sub := rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: sid, Since: new(frames.Seq(f.since))}}, Tree: f.tree}
	if f.delivery != (rpc.Delivery{}) {
		sub.Delivery = &f.delivery
	}
	res, err := c.Subscribe(ctx, sub)
	if err != nil {
		return err
	}
	return a.tailFrames(ctx, c, sid, res, f)
}

// check refuses flags that say nothing, and fills in what --plain needs: it tells
// facts, and streams are none.
func (f *tailFlags) check() error {
	if f.plain && f.json {
		return fail(exitUsage, "--plain and --json exclude each other")
	}
	for _, d := range []struct {
		flag, value string
		words       []string
	}{
		{"text", f.delivery.Text, []string{"stream", "final"}},
		{"reasoning", f.delivery.Reasoning, []string{"stream", "final", "off"}},
		{"tools", f.delivery.Tools, []string{"stream", "off"}},
	} {
		if d.value != "" && !slices.Contains(d.words, d.value) {
			return fail(exitUsage, "--%s is %q: it takes %s", d.flag, d.value, strings.Join(d.words, " or "))
		}
	}
	if f.plain {
		f.delivery.Text, f.delivery.Tools = "final", "off"
		f.delivery.Reasoning = first(f.delivery.Reasoning, "final")
	}
	return nil
}

// tailFrames prints frames until the present end of every session, or for ever.
func (a *app) tailFrames(ctx context.Context, c *client.Client, sid frames.SessionID, res rpc.SubscribeResult, f tailFlags) error {
	behind := map[frames.SessionID]bool{}
	for _, r := range res {
		behind[r.SessionID] = r.Error == nil
	}
	out := a.outPrinter()
	n := newNarrator(out, out, a.style)
	n.session(sid)
	n.rest = func(blob frames.BlobID, from int) error { return copyBlob(ctx, c, blob, int64(from), n.out) }
	d := newDesk(a, c)
	facts := newPlain(a.stdout)
	for fr, err := range c.Frames(ctx) {
		if err != nil {
			return a.followEnd(ctx, err)
		}
		if live, ok := fr.(*frames.SessionLive); ok && !live.More {
			delete(behind, live.SessionID)
		}
		if un, ok := fr.(*frames.SessionUnsubscribed); ok {
			delete(behind, un.SessionID)
			if un.SessionID == sid {
				n.out.endLine()
				return fail(exitFailed, "session %s: %s", sid, un.Reason)
			}
		}
		if f.plain {
			err = facts.frame(fr)
		} else {
			err = a.tailFrame(ctx, n, d, fr, f.json, len(behind) == 0)
		}
		if err != nil {
			return err
		}
		if len(behind) == 0 && !f.follow {
			n.out.endLine()
			return n.out.err
		}
		if n.out.err != nil {
			return n.out.err
		}
	}
	return a.followEnd(ctx, context.Cause(ctx))
}

// tailFrame prints f. Cards come after the past: what waits now is below what
// happened before.
func (a *app) tailFrame(ctx context.Context, n *narrator, d *desk, f frames.Frame, json, live bool) error {
	if json {
		return a.jsonFrame(f)
	}
	if err := n.frame(f); err != nil {
		return err
	}
	d.frame(f)
	if live && d.unseen() {
		n.apart()
		d.show(ctx, false)
	}
	return nil
}
