package shell

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// input is what a person allows: the exact command line, where it runs, and
// whether the turn goes on without it.
type input struct {
	Command    string `json:"command"`
	Cwd        string `json:"cwd"`
	Background bool   `json:"background,omitempty"`
}

// lateTimeout bounds what is still said of a call after its turn was cancelled.
const lateTimeout = 5 * time.Second

// command runs one command line as a tool call that a person must allow.
func (s *shell) command(ctx context.Context, t agent.Turn, line string) (agent.Result, error) {
	s.awaitCommand()
	defer s.setInput(nil)
	line, background := backgrounded(line)
	frozen, err := encode(input{line, s.session.Cwd, background})
	if err != nil {
		return agent.Result{}, err
	}
	call := frames.CallID("sh-" + strings.ToLower(rand.Text()))
	tool := frames.Tool{Name: "sh", Kind: "execute", Title: title(line)}
	if background {
		tool.Title += " &"
	}
	err = t.Emit(ctx, frames.ToolCall{
		CallID: call, Name: tool.Name, Kind: tool.Kind, Title: tool.Title, Input: frozen,
	})
	if err != nil {
		return agent.Result{}, err
	}
	d, err := t.Ask(ctx, agent.Approval{Call: call, Tool: tool, Input: frozen})
	if err != nil || !d.Allowed() {
		return notAllowed(ctx, t, call, d, err)
	}
	res, err := s.start(ctx, t, call, d.Input)
	switch {
	case err != nil && ctx.Err() != nil:
		res = failed(call, "cancelled", "Not run: the turn was cancelled.")
	case err != nil:
		res = failed(call, "start", err.Error())
	}
	out := agent.Result{}
	if res.ErrorCode == "exit" {
		out.Message = exitMessage(res.Details)
	}
	return out, finish(ctx, t, res)
}

// notAllowed ends a call that did not get permission; nothing was started.
func notAllowed(ctx context.Context, t agent.Turn, call frames.CallID, d agent.Decision, err error) (agent.Result, error) {
	if err != nil {
		ferr := finish(ctx, t, failed(call, "unavailable", "Not run: it could not be asked whether this may run."))
		return agent.Result{}, fmt.Errorf("shell: asking for approval: %w", errors.Join(err, ferr))
	}
	code, text := d.Refusal()
	res := agent.Result{Message: text}
	if d.Outcome == frames.Cancelled {
		res.Reason = frames.TurnCancelled
	}
	return res, finish(ctx, t, failed(call, code, text))
}

// start starts what the frozen input says. An error means that nothing was
// started.
func (s *shell) start(ctx context.Context, t agent.Turn, call frames.CallID, frozen json.RawMessage) (frames.ToolResult, error) {
	in, err := decode(frozen)
	switch {
	case err != nil:
		return frames.ToolResult{}, err
	case in.Background:
		return s.background(ctx, t, call, in)
	}
	return s.run(ctx, t, call, in)
}

// run runs a command and waits for its end.
func (s *shell) run(ctx context.Context, t agent.Turn, call frames.CallID, in input) (frames.ToolResult, error) {
	if err := proc.CheckDir(in.Cwd); err != nil {
		return frames.ToolResult{}, err
	}
	if err := context.Cause(ctx); err != nil {
		return frames.ToolResult{}, err
	}
	rec := proc.NewRecorder(s.opt.TempDir, s.opt.MaxOutput)
	defer rec.Close()
	began := time.Now()
	p, err := s.launch(in)
	if err != nil {
		return frames.ToolResult{}, err
	}
	s.setInput(p.Input())
	end := p.Wait(ctx, func(chunk []byte) {
		if text := rec.Add(chunk); text != "" {
			// A turn that is over shows no more progress; the record goes on.
			_ = t.Progress(ctx, call, text)
		}
	})
	if text := rec.Flush(); text != "" {
		_ = t.Progress(ctx, call, text)
	}
	return result(ctx, t, call, rec, end, time.Since(began)), nil
}

// launch starts the process of a command.
func (s *shell) launch(in input) (*proc.Process, error) {
	return s.marks.Start(proc.Command{
		Argv: []string{s.opt.Shell, "-c", in.Command}, Dir: in.Cwd, Env: s.session.Env, Grace: s.opt.Grace,
	})
}

// details are the tool result's machine-readable part.
type details struct {
	ExitCode int    `json:"exitCode"`
	Signal   string `json:"signal,omitempty"`
	// Survivors counts processes that could not be killed.
	Survivors int `json:"survivors,omitempty"`
	// DroppedBytes of output were beyond the limit and are not kept.
	DroppedBytes int64 `json:"droppedBytes,omitempty"`
}

func result(ctx context.Context, t agent.Turn, call frames.CallID, rec *proc.Recorder, end proc.Ending, took time.Duration) frames.ToolResult {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
	defer cancel()
	block := rec.Content(func() (frames.BlobID, error) {
		r, err := rec.Whole()
		if err != nil {
			return "", err
		}
		id, _, err := t.Blob(late, r)
		return id, err
	})
	det, err := json.Marshal(details{end.Code, end.Signal, end.Survivors, rec.Dropped()})
	if err != nil {
		det = nil // cannot happen: numbers and a string
	}
	res := frames.ToolResult{
		CallID: call, Content: []frames.ContentBlock{block},
		DurationMs: took.Milliseconds(), Details: det,
	}
	switch {
	case ctx.Err() != nil:
		res.IsError, res.ErrorCode = true, "cancelled"
	case end.Code != 0:
		res.IsError, res.ErrorCode = true, "exit"
	}
	return res
}

// exitMessage says how a command ended that did not succeed.
func exitMessage(det json.RawMessage) string {
	var d details
	switch err := json.Unmarshal(det, &d); {
	case err != nil:
		return ""
	case d.Signal != "":
		return "ended by " + d.Signal
	}
	return fmt.Sprintf("exit %d", d.ExitCode)
}

func failed(call frames.CallID, code, text string) frames.ToolResult {
	return frames.ToolResult{
		CallID: call, Content: []frames.ContentBlock{frames.Text(text)}, IsError: true, ErrorCode: code,
	}
}

// finish writes the result of a call, also where the turn was cancelled.
func finish(ctx context.Context, t agent.Turn, res frames.ToolResult) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
	defer cancel()
	return t.Emit(late, res)
}

func encode(in input) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(in); err != nil {
		return nil, fmt.Errorf("shell: encoding the command: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func decode(b json.RawMessage) (input, error) {
	var in input
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, fmt.Errorf("not run: the allowed input is not {command, cwd, background}: %w", err)
	}
	if in.Command == "" || in.Cwd == "" {
		return in, errors.New("not run: the allowed input lacks a command or a cwd; both are needed")
	}
	return in, nil
}

// title is the first line of a command, at most 120 characters.
func title(line string) string {
	first, _, more := strings.Cut(line, "\n")
	r := []rune(first)
	if len(r) > 120 {
		r, more = r[:120], true
	}
	if more {
		return string(r) + " …"
	}
	return string(r)
}
