package llm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// shellInput is what a person allows: the command line and where it runs.
type shellInput struct {
	Command   string `json:"command"`
	Cwd       string `json:"cwd"` // an absolute directory once it is checked
	TimeoutMs int64  `json:"timeoutMs,omitempty"`
}

func (in *shellInput) check(cwd string) error {
	if in.Command == "" {
		return errors.New("the argument \"command\" is missing; want a command line for sh")
	}
	if in.TimeoutMs < 0 {
		return errors.New("timeoutMs is negative; want a time in milliseconds")
	}
	if in.Cwd == "" {
		in.Cwd = "."
	}
	rel, err := within(cwd, in.Cwd)
	if err != nil {
		return err
	}
	in.Cwd = filepath.Join(cwd, filepath.FromSlash(rel))
	return nil
}

func (in *shellInput) title() string { return in.Command }

// errTimeout ends a command that takes too long.
var errTimeout = errors.New("the command took too long")

func (in *shellInput) do(ctx context.Context, c *toolRun) (frames.ToolResult, error) {
	if err := proc.CheckDir(in.Cwd); err != nil {
		return frames.ToolResult{}, err
	}
	limit := c.opt.ShellTimeout
	if in.TimeoutMs > 0 && in.TimeoutMs < limit.Milliseconds() {
		limit = time.Duration(in.TimeoutMs) * time.Millisecond
	}
	rec := proc.NewRecorder(c.opt.TempDir, c.opt.MaxOutput)
	defer rec.Close()
	p, err := c.marks.Start(proc.Command{
		Argv: []string{c.opt.Shell, "-c", in.Command}, Dir: in.Cwd, Env: c.session.Env, Grace: c.opt.Grace,
	})
	if err != nil {
		return frames.ToolResult{}, err
	}
	_ = p.Input().End() // nobody types into it; it cannot have ended before
	timed, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	show := func(text string) {
		if text != "" {
			_ = c.t.Progress(ctx, c.id, text) // a turn that is over shows no more
		}
	}
	end := p.Wait(timed, func(chunk []byte) { show(rec.Add(chunk)) })
	show(rec.Flush())
	return c.outcome(ctx, rec, end, context.Cause(timed) == errTimeout, limit), nil
}

// commandDetails are the machine-readable part of a command's result.
type commandDetails struct {
	ExitCode     int    `json:"exitCode"`
	Signal       string `json:"signal,omitempty"`
	Survivors    int    `json:"survivors,omitempty"`
	DroppedBytes int64  `json:"droppedBytes,omitempty"`
}

// outcome is the result of a command.
func (c *toolRun) outcome(ctx context.Context, rec *proc.Recorder, end proc.Ending, late bool, limit time.Duration) frames.ToolResult {
	still, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
	defer cancel()
	res := c.result(rec.Content(func() (frames.BlobID, error) {
		r, err := rec.Whole()
		if err != nil {
			return "", err
		}
		id, _, err := c.t.Blob(still, r)
		return id, err
	}))
	det, err := marshal(commandDetails{end.Code, end.Signal, end.Survivors, rec.Dropped()})
	if err == nil {
		res.Details = det
	}
	note := ""
	switch {
	case ctx.Err() != nil:
		res.ErrorCode, note = codeCancelled, "[the turn was cancelled]"
	case late:
		res.ErrorCode, note = "timeout", fmt.Sprintf("[ended after %v]", limit)
	case end.Signal != "":
		res.ErrorCode, note = "exit", "[ended by "+end.Signal+"]"
	case end.Code != 0:
		res.ErrorCode, note = "exit", fmt.Sprintf("[exit %d]", end.Code)
	case res.Content[0].Text == "":
		res.Content[0].Text = "[no output]"
	}
	if note != "" {
		res.IsError = true
		res.Content = append(res.Content, frames.Text(note))
	}
	return res
}
