package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

func newSend(a *app) *cobra.Command {
	var steer, inject, asJSON bool
	var with attachments
	cmd := &cobra.Command{
		Use:   "send ID TEXT",
		Short: "Give a session a prompt; it is queued when a turn runs",
		Long: `Gives a session a prompt and returns once the host has it safely. TEXT may be -
to read it from standard input. --steer hands it to the running turn instead;
--inject adds it as context without running anything. --image and --attach send
files with it.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			mode := frames.ModeQueue
			switch {
			case steer && inject:
				return fail(exitUsage, "--steer and --inject exclude each other")
			case steer:
				mode = frames.ModeSteer
			case inject:
				mode = frames.ModeInject
			}
			return a.send(cmd.Context(), args[0], args[1], mode, with, asJSON)
		},
	}
	cmd.Flags().BoolVar(&steer, "steer", false, "hand it to the running turn")
	cmd.Flags().BoolVar(&inject, "inject", false, "add it as context only")
	cmd.Flags().StringArrayVar(&with.images, "image", nil, "send an image with it; may be repeated")
	cmd.Flags().StringArrayVar(&with.files, "attach", nil, "send a file with it; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return cmd
}

func (a *app) send(ctx context.Context, id, text string, mode frames.PromptMode, with attachments, asJSON bool) error {
	if text == "-" {
		b, err := readAllLimited(a.stdin, frames.MaxMessage)
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		text = strings.TrimRight(string(b), "\n")
	}
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	files, err := with.blocks(ctx, c)
	if err != nil {
		return err
	}
	res, err := promptContent(ctx, c, sid, append([]frames.ContentBlock{frames.Text(text)}, files...), mode)
	if err != nil {
		return err
	}
	if asJSON {
		return a.jsonLine("prompt", res)
	}
	what := "started"
	switch {
	case mode == frames.ModeInject:
		what = "added"
	case mode == frames.ModeSteer:
		what = "handed over"
	case res.Queued:
		what = "queued"
	}
	fmt.Fprintln(a.stdout, strings.TrimSpace(what+" "+a.line(string(res.TurnID))))
	return nil
}

func newCancel(a *app) *cobra.Command {
	var turn string
	var alone bool
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel what a session and its subagents run; queued prompts stay",
		Long: `Cancels what a session runs, and what all below it run; queued prompts stay. Its forks
count as below it, as its subagents do: --alone leaves both running.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, sid, err := a.session(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			var res rpc.CancelResult
			p := rpc.CancelParams{SessionID: sid, TurnID: frames.TurnID(turn), Tree: new(!alone)}
			if err := c.Call(cmd.Context(), "session.cancel", p, &res); err != nil {
				return err
			}
			if !res.Cancelled {
				return fail(exitNotPending, "nothing to cancel")
			}
			fmt.Fprintln(a.stdout, "cancelled")
			return nil
		},
	}
	cmd.Flags().StringVar(&turn, "turn", "", "only this turn or queued prompt")
	cmd.Flags().BoolVar(&alone, "alone", false, "leave its subagents and forks running")
	return cmd
}

func newWait(a *app) *cobra.Command {
	var until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a session is idle, needs a person, or ends a turn",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch until {
			case "idle", "needs-input", "turn-end":
			default:
				return fail(exitUsage, "--until is %q: it takes idle, needs-input or turn-end", until)
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return a.wait(ctx, args[0], until)
		},
	}
	cmd.Flags().StringVar(&until, "until", "idle", "idle, needs-input or turn-end")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long (exit 8)")
	return cmd
}

func (a *app) wait(ctx context.Context, id, until string) error {
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Subscribe(ctx, rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: sid}}}); err != nil {
		return err
	}
	return a.waitFrames(ctx, c, sid, until)
}

func (a *app) waitFrames(ctx context.Context, c *client.Client, sid frames.SessionID, until string) error {
	for f, err := range c.Frames(ctx) {
		if err != nil {
			return a.followEnd(ctx, err)
		}
		switch f := f.(type) {
		case *frames.SessionSubscribed:
			if f.SessionID == sid && reached(until, f.State, f.Pending) {
				return nil
			}
		case *frames.SessionStatus:
			if f.SessionID == sid && reached(until, f.State, f.Pending) {
				return nil
			}
		case *frames.SessionUnsubscribed:
			return fail(exitFailed, "session %s: %s", sid, f.Reason)
		case *frames.SessionEvent:
			e, err := frames.DecodeEvent(f.Event)
			if err != nil {
				return err
			}
			if until == "turn-end" && e.Type == frames.TurnEndEvent {
				return nil
			}
		}
	}
	return a.followEnd(ctx, context.Cause(ctx))
}

func reached(until string, s frames.SessionState, pending int) bool {
	return until == "idle" && s == frames.StateIdle || until == "needs-input" && pending > 0
}

func newRPC(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rpc METHOD [PARAMS]",
		Short: "Call a method of the host with JSON params",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.callRaw(cmd.Context(), c, args)
		},
	}
}

func (a *app) callRaw(ctx context.Context, c *client.Client, args []string) error {
	params := rpc.Raw("{}")
	if len(args) == 2 {
		params = rpc.Raw(args[1])
	}
	if err := frames.CheckJSON(params, frames.JSONLimits{}); err != nil {
		return fail(exitUsage, "PARAMS: %w", err)
	}
	var res rpc.Raw
	if err := c.Call(ctx, args[0], params, &res); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.stdout, string(term.JSON(res)))
	return err
}

func newStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Whether a host runs, and what it runs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.status(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) status(ctx context.Context, asJSON bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var d rpc.DescribeResult
	if err := c.Call(ctx, "host.describe", rpc.Empty{}, &d); err != nil {
		return err
	}
	if asJSON {
		return a.jsonLine("host", d)
	}
	running, err := listSessions(ctx, c, rpc.ListParams{State: frames.StateRunning})
	if err != nil {
		return err
	}
	waiting, err := listPending(ctx, c, "")
	if err != nil {
		return err
	}
	var agents []string
	for _, ag := range d.Agents {
		agents = append(agents, a.line(ag.Name))
	}
	fmt.Fprintf(a.stdout, "%s %s, protocol %s, host %s\nagents: %s\n%d running, %d waiting for a person\n",
		a.line(d.Name), a.line(d.Version), a.line(d.ProtocolVersion), a.line(d.HostID), strings.Join(agents, ", "), len(running), len(waiting))
	return nil
}
