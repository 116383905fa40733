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

func newTasks(a *app) *cobra.Command {
	var running, asJSON bool
	cmd := &cobra.Command{
		Use:   "tasks [ID]",
		Short: "List the background work of agents, oldest first",
		Long: `Lists background commands and subagents: of one session all, also those that have
ended; else those of all sessions that are live.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.tasks(cmd.Context(), strings.Join(args, ""), running, asJSON)
		},
	}
	cmd.Flags().BoolVar(&running, "running", false, "leave out what has ended")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	cmd.AddCommand(newTasksShow(a), newTasksWait(a), newTasksCancel(a))
	return cmd
}

func (a *app) tasks(ctx context.Context, id string, running, asJSON bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	p := rpc.TasksListParams{Running: running}
	if id != "" {
		if p.SessionID, err = resolveSession(ctx, c, id); err != nil {
			return err
		}
	}
	var res rpc.TasksResult
	if err := c.Call(ctx, "tasks.list", p, &res); err != nil {
		return err
	}
	for _, t := range res.Tasks {
		if asJSON {
			if err := a.jsonLine("task", t); err != nil {
				return err
			}
			continue
		}
		in := ""
		if id == "" {
			in = "  in " + short(string(t.SessionID))
		}
		fmt.Fprintf(a.stdout, "%s  %s  %-7s %5s  %s%s%s\n", a.line(string(t.TaskID)), a.taskState(t.Status), term.Line(t.Kind),
			ago(time.Now(), t.StartedAt), term.Line(t.Label), detailOf(t), in)
	}
	return nil
}

// taskState is the status of a task in a column.
func (a *app) taskState(status string) string {
	word := fmt.Sprintf("%-11s", a.line(status))
	switch status {
	case "running":
		return a.style.Green(word)
	case "failed", "interrupted":
		return a.style.Yellow(word)
	}
	return a.style.Dim(word)
}

func detailOf(t rpc.Task) string {
	if t.Detail == "" {
		return ""
	}
	return " (" + term.Line(t.Detail) + ")"
}

// taskVerb makes a verb about one task.
func taskVerb(a *app, use, what string, do func(ctx context.Context, c *client.Client, p rpc.TaskParams) error) *cobra.Command {
	return &cobra.Command{
		Use:   use + " SESSION TASK",
		Short: what,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, sid, err := a.session(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			id, err := findTask(cmd.Context(), c, sid, args[1])
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, rpc.TaskParams{SessionID: sid, TaskID: id})
		},
	}
}

// findTask returns the task of a session whose id is, or ends in, id.
func findTask(ctx context.Context, c *client.Client, sid frames.SessionID, id string) (frames.TaskID, error) {
	var res rpc.TasksResult
	if err := c.Call(ctx, "tasks.list", rpc.TasksListParams{SessionID: sid}, &res); err != nil {
		return "", err
	}
	t, found, err := byEnd(res.Tasks, id, func(t rpc.Task) string { return string(t.TaskID) })
	if err == nil && !found {
		return frames.TaskID(id), nil // the host knows older ones too
	}
	return t.TaskID, err
}

func newTasksShow(a *app) *cobra.Command {
	var asJSON bool
	cmd := taskVerb(a, "show", "How a task stands, and the end of what it printed", func(ctx context.Context, c *client.Client, p rpc.TaskParams) error {
		var res rpc.TaskResult
		if err := c.Call(ctx, "tasks.get", p, &res); err != nil {
			return err
		}
		if asJSON {
			return a.jsonLine("task", res.Task)
		}
		a.showTask(res.Task)
		return nil
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) showTask(t rpc.Task) {
	row := func(k, v string) {
		if v != "" {
			fmt.Fprintf(a.stdout, "%s %s\n", a.style.Dim(fmt.Sprintf("%-8s", k)), v)
		}
	}
	row("task", a.line(string(t.TaskID)))
	row("session", a.line(string(t.SessionID)))
	row("kind", term.Line(t.Kind))
	row("label", term.Line(t.Label))
	row("status", strings.TrimSpace(a.taskState(t.Status))+detailOf(t))
	row("started", t.StartedAt.String())
	if !t.FinishedAt.IsZero() {
		row("ended", t.FinishedAt.String())
	}
	if t.OutputBytes == 0 {
		return
	}
	row("output", fmt.Sprintf("%d bytes", t.OutputBytes))
	fmt.Fprint(a.stdout, term.Clean(t.Output))
	if !strings.HasSuffix(t.Output, "\n") {
		fmt.Fprintln(a.stdout)
	}
}

func newTasksWait(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := taskVerb(a, "wait", "Wait until a task has ended (exit 1 if it failed, 7 if it was cancelled)", func(ctx context.Context, c *client.Client, p rpc.TaskParams) error {
		if timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout)
			defer stop()
		}
		t, err := waitTask(ctx, c, p)
		if err != nil {
			return a.followEnd(ctx, err)
		}
		fmt.Fprintf(a.stdout, "%s%s\n", a.line(t.Status), detailOf(t))
		switch t.Status {
		case "completed":
			return nil
		case "cancelled":
			return &exitError{code: exitRefused}
		}
		return &exitError{code: exitFailed}
	})
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long (exit 8)")
	return cmd
}

// waitTask waits for a task as long as it takes.
func waitTask(ctx context.Context, c *client.Client, p rpc.TaskParams) (rpc.Task, error) {
	for {
		var res rpc.TaskWaitResult
		if err := c.Call(ctx, "tasks.wait", rpc.TaskWaitParams{SessionID: p.SessionID, TaskID: p.TaskID}, &res); err != nil || res.Done {
			return res.Task, err
		}
	}
}

func newTasksCancel(a *app) *cobra.Command {
	return taskVerb(a, "cancel", "Tell a task to stop", func(ctx context.Context, c *client.Client, p rpc.TaskParams) error {
		var res rpc.CancelResult
		if err := c.Call(ctx, "tasks.cancel", p, &res); err != nil {
			return err
		}
		if !res.Cancelled {
			return fail(exitNotPending, "task %s has ended already", a.line(string(p.TaskID)))
		}
		fmt.Fprintln(a.stdout, "cancelled")
		return nil
	})
}
