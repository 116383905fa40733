package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// backgrounded reports whether a command line ends in " &", and returns it
// without that. A space that is quoted by a backslash does not count.
func backgrounded(line string) (string, bool) {
	rest, ok := strings.CutSuffix(line, " &")
	rest = strings.TrimRight(rest, " \t\n")
	if !ok || rest == "" || strings.HasSuffix(rest, `\`) {
		return line, false
	}
	return rest, true
}

// background starts what the frozen input says as a task that outlives the turn.
// An error means that nothing was started.
func (s *shell) background(ctx context.Context, t agent.Turn, call frames.CallID, in input) (frames.ToolResult, error) {
	if err := proc.CheckDir(in.Cwd); err != nil {
		return frames.ToolResult{}, err
	}
	if err := context.Cause(ctx); err != nil {
		return frames.ToolResult{}, err
	}
	k, err := t.Task(ctx, "command", title(in.Command))
	if err != nil {
		return frames.ToolResult{}, err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
	defer cancel()
	p, err := s.launch(in)
	if err != nil {
		return frames.ToolResult{}, errors.Join(err, k.Done(late, "failed", err.Error()))
	}
	_ = p.Input().End() // nobody types into it; it cannot have ended before
	s.tasks.Go(func() { s.attend(k, p) })
	det, err := json.Marshal(struct {
		TaskID frames.TaskID `json:"taskId"`
	}{k.ID()})
	if err != nil {
		det = nil // cannot happen: a string
	}
	return frames.ToolResult{
		CallID: call, Details: det,
		Content: []frames.ContentBlock{frames.Text(fmt.Sprintf("Started in the background as task %s.", k.ID()))},
	}, nil
}

// attend passes on what a task's process prints, ends the process when the task
// is cancelled or the agent closed, and says how it ended.
func (s *shell) attend(k agent.Task, p *proc.Process) {
	ctx, cancel := context.WithCancelCause(k.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
	late := context.WithoutCancel(ctx)
	var rep proc.Repairer
	show := func(text string) {
		if text != "" {
			_ = k.Output(late, text) // nothing waits for it
		}
	}
	end := p.Wait(ctx, func(chunk []byte) { show(rep.Text(chunk)) })
	show(rep.Flush())
	status, detail := "completed", ""
	switch {
	case ctx.Err() != nil:
		status = "cancelled"
	case end.Signal != "":
		status, detail = "failed", "ended by "+end.Signal
	case end.Code != 0:
		status, detail = "failed", fmt.Sprintf("exit %d", end.Code)
	}
	if end.Survivors > 0 {
		detail = strings.TrimPrefix(fmt.Sprintf("%s; %d processes could not be killed", detail, end.Survivors), "; ")
	}
	_ = k.Done(late, status, detail) // the host stores it later where it cannot now
}
