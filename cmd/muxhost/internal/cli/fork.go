package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

func newFork(a *app) *cobra.Command {
	var at int64
	var title string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Make a session that goes on from the end of a turn of another",
		Long: `Makes a new session with the past of another, up to the end of its last turn, or up
to the end of the turn that --at names by its event number (see muxhost history). Both
go on by themselves from there. It prints the new session's id.

A fork counts as below its source: cancelling the source, or deleting it with its tree,
reaches its forks too.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := rpc.ForkParams{Title: title}
			if cmd.Flags().Changed("at") {
				if at < 1 {
					return fail(exitUsage, "--at is %d: it takes the number of an event, 1 or more", at)
				}
				p.At = new(frames.Seq(at))
			}
			return a.fork(cmd.Context(), args[0], p, asJSON)
		},
	}
	cmd.Flags().Int64Var(&at, "at", 0, "the number of the turn/end event to go on from (default: the last)")
	cmd.Flags().StringVar(&title, "title", "", "what to call it (default: as the source)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the session as a JSON line")
	return cmd
}

func (a *app) fork(ctx context.Context, id string, p rpc.ForkParams, asJSON bool) error {
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	p.SessionID, p.RequestID = sid, newID() // so that a lost answer can be asked for again
	for {
		s, err := c.Fork(ctx, p)
		if _, lost := errors.AsType[*client.LostError](err); lost && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		if asJSON {
			return a.jsonLine("session", s)
		}
		_, err = fmt.Fprintln(a.stdout, a.line(string(s.SessionID)))
		return err
	}
}
