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

func newInbox(a *app) *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "What waits for a person, in all sessions and subagents",
		Long: `Lists every approval and question that waits, oldest first. With -f it goes on:
each new one as a card, each settled one with who settled it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if follow {
				return a.followInbox(cmd.Context(), c, asJSON)
			}
			return a.listInbox(cmd.Context(), c, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on live")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func (a *app) listInbox(ctx context.Context, c *client.Client, asJSON bool) error {
	all, err := listPending(ctx, c, "")
	if err != nil {
		return err
	}
	for _, f := range all {
		if asJSON {
			if err := a.jsonFrame(f); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.stdout, "%s %s\n", a.card(ctx, c, f, a.style), howElsewhere(f))
	}
	if len(all) == 0 && !asJSON {
		fmt.Fprintln(a.stderr, "nothing waits")
	}
	return nil
}

func (a *app) followInbox(ctx context.Context, c *client.Client, asJSON bool) error {
	if _, err := c.Subscribe(ctx, rpc.SubscribeParams{Host: true}); err != nil {
		return err
	}
	d := newDesk(a, c)
	seen := map[frames.RequestID]bool{}
	for f, err := range c.Frames(ctx) {
		if err != nil {
			return a.followEnd(ctx, err)
		}
		if asJSON {
			if err := a.jsonFrame(f); err != nil {
				return err
			}
			continue
		}
		a.inboxFrame(ctx, c, d, seen, f)
	}
	return a.followEnd(ctx, context.Cause(ctx))
}

// inboxFrame prints a card once, and how it ended. After a reconnect the
// baseline repeats cards; those settled meanwhile are told as gone.
func (a *app) inboxFrame(ctx context.Context, c *client.Client, d *desk, seen map[frames.RequestID]bool, f frames.Frame) {
	d.frame(f)
	switch f := f.(type) {
	case *frames.ApprovalRequested, *frames.QuestionRequested:
		_, id := requestOf(f)
		if !seen[id] {
			seen[id] = true
			fmt.Fprintf(a.stdout, "%s %s\n", a.card(ctx, c, f, a.style), howElsewhere(f))
		}
	case *frames.ApprovalResolved:
		a.inboxSettled(seen, f.ID, string(f.Outcome), string(f.Origin), f.By)
	case *frames.QuestionResolved:
		a.inboxSettled(seen, f.ID, string(f.Outcome), string(f.Origin), f.By)
	case *frames.HostLive:
		waiting := map[frames.RequestID]bool{}
		for _, card := range d.cards {
			_, id := requestOf(card)
			waiting[id] = true
		}
		for id := range seen {
			if !waiting[id] {
				a.inboxSettled(seen, id, "settled", "while not connected", nil)
			}
		}
	case *frames.AgentError:
		fmt.Fprintln(a.stdout, a.style.Red("✗ "+short(string(f.SessionID))+" "+term.Line(f.Message)))
	}
}

func (a *app) inboxSettled(seen map[frames.RequestID]bool, id frames.RequestID, outcome, origin string, by *frames.By) {
	delete(seen, id)
	who := "(" + a.line(origin) + ")"
	if by != nil {
		who = "by " + term.Line(first(by.Label, string(by.ClientID)))
	}
	fmt.Fprintf(a.stdout, "%s %s %s\n", a.style.Dim("· "+term.Line(string(id))), a.line(strings.ReplaceAll(outcome, "-", " ")), who)
}

// card renders what waits, with the names of the session and its parents.
func (a *app) card(ctx context.Context, c *client.Client, f frames.Frame, style term.Style) string {
	sid, _ := requestOf(f)
	l := lineageOf(ctx, c, sid)
	switch f := f.(type) {
	case *frames.ApprovalRequested:
		l.cwd = first(cwdOf(f.Input), l.cwd)
		return approvalCard(style, f, l, time.Now())
	case *frames.QuestionRequested:
		return questionCard(style, f, l)
	}
	return ""
}

// lineageOf asks for the names of a session and its parents. A session that
// cannot be read is named by its id: the card must not wait for it.
func lineageOf(ctx context.Context, c *client.Client, sid frames.SessionID) lineage {
	var l lineage
	for id := sid; id != "" && len(l.names) < 32; {
		var res rpc.GetResult
		if err := c.Call(ctx, "session.get", rpc.GetParams{SessionID: id}, &res); err != nil {
			l.names = append([]string{short(string(id))}, l.names...)
			break
		}
		if id == sid {
			l.cwd, l.agent = res.Session.Cwd, res.Session.Agent
		}
		l.names = append([]string{nameOf(res.Session)}, l.names...)
		id = res.Session.ParentSessionID
	}
	return l
}
