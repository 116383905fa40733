package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

func newLs(a *app) *cobra.Command {
	var tree, asJSON, roots bool
	var p rpc.ListParams
	var state string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.Limit < 0 {
				return fail(exitUsage, "--limit is %d: it takes 1 or more, or 0 for all", p.Limit)
			}
			if p.Cwd != "" {
				dir, err := a.cwd(p.Cwd)
				if err != nil {
					return err
				}
				p.Cwd = dir
			}
			p.State, p.Roots = frames.SessionState(state), roots
			return a.ls(cmd.Context(), p, tree, asJSON)
		},
	}
	cmd.Flags().BoolVar(&tree, "tree", false, "indent subagents under their parents")
	cmd.Flags().BoolVar(&roots, "roots", false, "leave out subagents")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	cmd.Flags().StringVar(&state, "state", "", "only idle, running or requires-action")
	cmd.Flags().StringVar(&p.Text, "text", "", "only sessions whose title or directory holds this")
	cmd.Flags().StringVar(&p.Cwd, "cwd", "", "only sessions in this directory")
	cmd.Flags().IntVarP(&p.Limit, "limit", "n", 0, "at most this many (default: all)")
	return cmd
}

func (a *app) ls(ctx context.Context, p rpc.ListParams, tree, asJSON bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := listSessions(ctx, c, p)
	if err != nil {
		return err
	}
	if asJSON {
		for _, s := range all {
			if err := a.jsonLine("session", s); err != nil {
				return err
			}
		}
		return nil
	}
	if tree {
		all = treeOrder(all)
	}
	now := time.Now()
	for _, s := range all {
		indent := ""
		if tree {
			indent = strings.Repeat("  ", s.Depth)
		}
		fmt.Fprintf(a.stdout, "%s  %s  %-6s %5s  %s%s%s\n", a.line(string(s.SessionID)), a.state(s), term.Line(s.Agent), ago(now, s.UpdatedAt), indent, nameOf(s), waits(a, s))
	}
	return nil
}

// listSessions reads every page, or as many sessions as p.Limit says.
func listSessions(ctx context.Context, c *client.Client, p rpc.ListParams) ([]frames.Session, error) {
	var all []frames.Session
	most := p.Limit
	for {
		p.Limit = 500
		if most > 0 {
			p.Limit = min(500, most-len(all))
		}
		var res rpc.ListResult
		if err := c.Call(ctx, "sessions.list", p, &res); err != nil {
			return nil, err
		}
		all = append(all, res.Sessions...)
		if res.Next == "" || most > 0 && len(all) >= most {
			return all, nil
		}
		p.Cursor = res.Next
	}
}

// treeOrder puts children behind their parents.
func treeOrder(all []frames.Session) []frames.Session {
	children := map[frames.SessionID][]frames.Session{}
	known := map[frames.SessionID]bool{}
	for _, s := range all {
		known[s.SessionID] = true
	}
	var out, top []frames.Session
	for _, s := range all {
		if known[s.ParentSessionID] {
			children[s.ParentSessionID] = append(children[s.ParentSessionID], s)
		} else {
			top = append(top, s)
		}
	}
	var walk func([]frames.Session)
	walk = func(level []frames.Session) {
		for _, s := range level {
			out = append(out, s)
			walk(children[s.SessionID])
		}
	}
	walk(top)
	return out
}

func (a *app) state(s frames.Session) string {
	word := fmt.Sprintf("%-15s", a.line(string(s.State)))
	switch s.State {
	case frames.StateRunning:
		return a.style.Green(word)
	case frames.StateRequiresAction:
		return a.style.Yellow(word)
	}
	return a.style.Dim(word)
}

func waits(a *app, s frames.Session) string {
	if n := s.Pending + s.PendingBelow; n > 0 {
		return a.style.Yellow(fmt.Sprintf("  ▲%d", n))
	}
	return ""
}

func newShow(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "What a session is and how it stands",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.show(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the summary and the folded view as JSON")
	return cmd
}

func (a *app) show(ctx context.Context, id string, asJSON bool) error {
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	var res rpc.GetResult
	if err := c.Call(ctx, "session.get", rpc.GetParams{SessionID: sid, View: asJSON}, &res); err != nil {
		return err
	}
	if asJSON {
		return a.jsonLine("session", res)
	}
	s := res.Session
	row := func(k, v string) {
		if v != "" {
			fmt.Fprintf(a.stdout, "%s %s\n", a.style.Dim(fmt.Sprintf("%-8s", k)), v)
		}
	}
	row("session", a.line(string(s.SessionID)))
	row("title", term.Line(s.Title))
	row("parent", a.line(string(s.ParentSessionID)))
	row("agent", term.Line(s.Agent))
	row("cwd", term.VisibleLine(s.Cwd))
	row("state", strings.TrimSpace(a.state(s))+waits(a, s))
	row("events", fmt.Sprint(s.Head))
	row("created", s.CreatedAt.String())
	row("updated", s.UpdatedAt.String())
	for _, k := range sortedKeys(s.Labels) {
		row("label", term.Line(k+"="+s.Labels[k]))
	}
	return nil
}

func newHistory(a *app) *cobra.Command {
	var asJSON bool
	var after int64
	cmd := &cobra.Command{
		Use:   "history ID",
		Short: "The stored events of a session",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.history(cmd.Context(), args[0], after, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print events as JSON lines")
	cmd.Flags().Int64Var(&after, "after", 0, "start after this event number")
	return cmd
}

func (a *app) history(ctx context.Context, id string, after int64, asJSON bool) error {
	if after < 0 {
		return fail(exitUsage, "--after is %d: it takes the number of an event, 0 or more", after)
	}
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	from := frames.Seq(after)
	for {
		var res rpc.HistoryResult
		err := c.Call(ctx, "session.history", rpc.HistoryParams{SessionID: sid, After: &from, Limit: 1000}, &res)
		if first, ok := cutAt(err); ok && from == 0 {
			fmt.Fprintf(a.stderr, "events 1 to %d are no longer kept\n", first-1)
			from = first - 1
			continue
		}
		if err != nil {
			return err
		}
		for _, raw := range res.Events {
			e, err := frames.DecodeEvent(raw)
			if err != nil {
				return err
			}
			if err := a.historyLine(sid, e, raw, asJSON); err != nil {
				return err
			}
			from = e.Seq
		}
		if !res.More || len(res.Events) == 0 {
			return nil
		}
	}
}

// cutAt reports whether err says that the start of a log is no longer kept, and
// where it begins.
func cutAt(err error) (first frames.Seq, ok bool) {
	e, ok := errors.AsType[*rpc.Error](err)
	if !ok || e.Kind != rpc.KindCursorExpired {
		return 0, false
	}
	var d struct {
		First frames.Seq `json:"first"`
	}
	b, err := json.Marshal(e.Details)
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	return d.First, err == nil && d.First > 1
}

func (a *app) historyLine(sid frames.SessionID, e frames.Event, raw json.RawMessage, asJSON bool) error {
	if asJSON {
		return a.jsonFrame(&frames.SessionEvent{SessionID: sid, Event: raw})
	}
	_, err := fmt.Fprintf(a.stdout, "%6d  %s  %-20s %s\n", e.Seq, a.style.Dim(e.Time.String()), term.Line(string(e.Type)), term.Line(firstLine(string(e.Data), 300)))
	return err
}

// session connects and finds the session under an id, or under the end of one.
func (a *app) session(ctx context.Context, id string) (*client.Client, frames.SessionID, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, "", err
	}
	sid, err := resolveSession(ctx, c, id)
	if err != nil {
		_ = c.Close() // err says what went wrong
		return nil, "", err
	}
	return c, sid, nil
}

// resolveSession finds a session by its id, or by the end of one.
func resolveSession(ctx context.Context, c *client.Client, id string) (frames.SessionID, error) {
	var res rpc.GetResult
	err := c.Call(ctx, "session.get", rpc.GetParams{SessionID: frames.SessionID(id)}, &res)
	if err == nil {
		return res.Session.SessionID, nil
	}
	if ExitCode(err) != exitNotFound || len(id) < minEnd {
		return "", err
	}
	all, lerr := listSessions(ctx, c, rpc.ListParams{})
	if lerr != nil {
		return "", lerr
	}
	s, found, lerr := byEnd(all, id, func(s frames.Session) string { return string(s.SessionID) })
	if lerr == nil && !found {
		return "", err // that there is no such session
	}
	return s.SessionID, lerr
}

// minEnd is how many characters the end of an id has to have to stand for it.
const minEnd = 4

// byEnd returns the one of all whose id is id, or else ends with it; found is false
// if none does.
func byEnd[T any](all []T, id string, idOf func(T) string) (one T, found bool, err error) {
	n := 0
	for _, x := range all {
		have := idOf(x)
		if have == id {
			return x, true, nil
		}
		if len(id) >= minEnd && strings.HasSuffix(have, id) {
			one = x
			n++
		}
	}
	if n > 1 {
		var none T
		return none, false, fail(exitUsage, "%q is the end of %d ids: give more of it", term.Line(id), n)
	}
	return one, n == 1, nil
}
