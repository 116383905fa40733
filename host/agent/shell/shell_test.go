package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/shell"
)

var path = []string{"PATH=" + os.Getenv("PATH")}

// open opens a session on a fake host that is closed when the test ends.
func open(t *testing.T, opt shell.Options, script agenttest.Script) (*agenttest.Host, *agenttest.Session) {
	t.Helper()
	if script.Cwd == "" {
		script.Cwd = dir(t)
	}
	if script.Env == nil {
		script.Env = path
	}
	h := agenttest.New(script, shell.New(opt))
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	s, err := h.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

func dir(t *testing.T) string {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// run runs one prompt to its completed end and returns the tool's result.
func run(t *testing.T, s *agenttest.Session, text string) frames.ToolResult {
	t.Helper()
	if res, err := s.Prompt(t.Context(), text); err != nil || res.Reason != "" {
		t.Fatalf("Prompt(%q) = %+v, %v; want a completed turn", text, res, err)
	}
	return agenttest.Last[frames.ToolResult](s)
}

func text(r frames.ToolResult) string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

// The shell passes the suite that every driver passes.
func TestDriverSuite(t *testing.T) {
	d := dir(t)
	agenttest.Run(t, agenttest.Suite{
		Driver: shell.New(shell.Options{}),
		Script: agenttest.Script{Cwd: d, Env: path},
		Short:  "echo hi",
		Long:   "echo started; sleep 1000",
		Gated:  "touch ran",
		Ran:    func(*agenttest.Host) bool { return exists(filepath.Join(d, "ran")) },

		Background: "echo started; sleep 1000 &",
	})
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// A command's call, question and result stand in the log in that order, and its
// output is streamed and recorded.
func TestCommandIsAskedForAndRecorded(t *testing.T) {
	cwd := dir(t)
	_, s := open(t, shell.Options{}, agenttest.Script{Cwd: cwd})
	res := run(t, s, "echo out; echo err >&2; exit 3")
	want := []frames.EventType{"tool/call", "approval/asked", "approval/decided", "tool/result"}
	if got := s.Types(); !equal(got, want) {
		t.Errorf("events = %v; want %v", got, want)
	}
	call := agenttest.Last[frames.ToolCall](s)
	wantInput := `{"command":"echo out; echo err >&2; exit 3","cwd":"` + cwd + `"}`
	asked := agenttest.Last[frames.ApprovalAsked](s)
	if string(call.Input) != wantInput || string(asked.Input) != wantInput {
		t.Errorf("input = %s, asked %s; want both %s", call.Input, asked.Input, wantInput)
	}
	if got := text(res); got != "out\nerr\n" || s.Progress(call.CallID) != got {
		t.Errorf("result %q, progress %q; want out and err in both", got, s.Progress(call.CallID))
	}
	if !res.IsError || res.ErrorCode != "exit" || string(res.Details) != `{"exitCode":3}` {
		t.Errorf("result = %+v, details %s; want error code exit and exit code 3", res, res.Details)
	}
}

func equal(a, b []frames.EventType) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A rejection says who and why, for every cause, and the turn completes.
func TestRejectionSaysWhoAndWhy(t *testing.T) {
	for _, c := range []struct {
		d    agent.Decision
		want string
	}{
		{
			agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseReply, By: &frames.By{Label: "my phone"}, Feedback: "not on prod"},
			"Not run: rejected by my phone. Feedback: not on prod",
		},
		{agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseTimeout}, "Not run: nobody answered in time."},
		{agent.Decision{Outcome: frames.Rejected, Cause: frames.CausePolicy}, "Not run: the session's policy rejects it."},
		{agent.Decision{Outcome: frames.Rejected, Cause: frames.CauseModeChange}, "Not run: the session was switched to deny mode."},
		{agent.Decision{Outcome: frames.Unavailable, Cause: frames.CauseAbort}, "Not run: the host could not store the answer, so it does not count."},
	} {
		_, s := open(t, shell.Options{}, agenttest.Script{Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision { return c.d }})
		res := run(t, s, "touch ran")
		if text(res) != c.want || !res.IsError || res.ErrorCode != "rejected" {
			t.Errorf("after %+v: %+v; want error code rejected and %q", c.d, res, c.want)
		}
		if exists(filepath.Join(s.Info.Cwd, "ran")) {
			t.Errorf("after %+v the command ran", c.d)
		}
	}
}

// What runs is the decision's input, not what the agent meant to run.
func TestRunsTheAllowedInputOnly(t *testing.T) {
	cwd, other := dir(t), dir(t)
	_, s := open(t, shell.Options{}, agenttest.Script{Cwd: cwd, Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
		in, err := json.Marshal(map[string]string{"command": "touch allowed", "cwd": other})
		if err != nil {
			t.Error(err)
		}
		return agent.Decision{Outcome: frames.AllowedOnce, Input: in}
	}})
	run(t, s, "touch meant")
	if exists(filepath.Join(cwd, "meant")) || !exists(filepath.Join(other, "allowed")) {
		t.Error("the command that was meant ran; want the one that was allowed, where it was allowed")
	}
}

// An input that does not say exactly a command and a directory starts nothing.
func TestOddInputStartsNothing(t *testing.T) {
	cwd := dir(t)
	for _, in := range []string{
		`{}`, `null`, `[]`, `{"command":"touch ran"}`, `{"cwd":"` + cwd + `"}`, `"touch ran"`,
		`{"command":"touch ran","cwd":"` + cwd + `","more":1}`,
		`{"command":"touch ran","cwd":"` + cwd + `/none"}`,
		`{"command":"touch ran\u0000","cwd":"` + cwd + `"}`,
	} {
		_, s := open(t, shell.Options{}, agenttest.Script{Cwd: cwd, Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
			return agent.Decision{Outcome: frames.AllowedOnce, Input: json.RawMessage(in)}
		}})
		res := run(t, s, "touch ran")
		if !res.IsError || res.ErrorCode != "start" || exists(filepath.Join(cwd, "ran")) {
			t.Errorf("input %s: %+v; want error code start and nothing run", in, res)
		}
	}
}

// A directory that became a link while the person thought about it is not used.
func TestReplacedDirectoryIsRefused(t *testing.T) {
	top := dir(t)
	cwd, evil := filepath.Join(top, "work"), filepath.Join(top, "evil")
	for _, d := range []string{cwd, evil} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, s := open(t, shell.Options{}, agenttest.Script{Cwd: cwd, Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision {
		if err := errors.Join(os.Remove(cwd), os.Symlink(evil, cwd)); err != nil {
			t.Error(err)
		}
		return agent.Decision{Outcome: frames.AllowedOnce}
	}})
	res := run(t, s, "touch ran")
	if res.ErrorCode != "start" || exists(filepath.Join(evil, "ran")) {
		t.Errorf("result = %+v; want error code start and nothing run in the other directory", res)
	}
}

// The environment is the session's and the mark; nothing of the host's own.
func TestEnvironmentIsTheSessions(t *testing.T) {
	t.Setenv("HOST_SECRET", "s3cret")
	_, s := open(t, shell.Options{}, agenttest.Script{Env: append([]string{"GIVEN=1", "MUXHOST_CALL=old"}, path...)})
	got := text(run(t, s, "env"))
	for line := range strings.Lines(got) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "GIVEN", "PATH", "MUXHOST_CALL", "PWD", "OLDPWD", "SHLVL", "_":
		default:
			t.Errorf("the command sees %q", line)
		}
	}
	if !strings.Contains(got, "GIVEN=1\n") || strings.Contains(got, "MUXHOST_CALL=old") {
		t.Errorf("env = %q; want what the session gives and a fresh mark", got)
	}
}

// Steering is a line of standard input, and "@eof" ends it.
func TestSteeringIsStandardInput(t *testing.T) {
	step := make(chan string, 8)
	script := agenttest.Script{Progress: func(_ *agenttest.Session, _ frames.CallID, text string) { step <- text }}
	_, s := open(t, shell.Options{}, script)
	if err := s.Steer(t.Context(), "early"); !errors.Is(err, agent.ErrNotTaken) {
		t.Errorf("Steer before a command = %v; want ErrNotTaken", err)
	}
	done := make(chan error, 1)
	start(t, func() {
		_, err := s.Prompt(t.Context(), "echo ready; cat; echo over")
		done <- err
	})
	steer := func(text, want string) {
		t.Helper()
		if got := <-step; got != want {
			t.Errorf("output = %q; want %q", got, want)
		}
		if err := s.Steer(t.Context(), text); err != nil {
			t.Errorf("Steer(%q) = %v", text, err)
		}
	}
	steer("one", "ready\n")
	steer("two words", "one\n")
	steer("@eof", "two words\n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := text(agenttest.Last[frames.ToolResult](s)); got != "ready\none\ntwo words\nover\n" {
		t.Errorf("result = %q; want every line, and the end after @eof", got)
	}
	if err := s.Steer(t.Context(), "late"); !errors.Is(err, agent.ErrNotTaken) {
		t.Errorf("Steer after a command = %v; want ErrNotTaken", err)
	}
}

// A line that comes while a command is asked for or starts waits for its standard
// input; where nothing may run it is not taken.
func TestSteeringWaitsForTheCommand(t *testing.T) {
	for _, allow := range []bool{true, false} {
		asked, steering, steered := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, s := open(t, shell.Options{}, agenttest.Script{Approve: func(_ context.Context, _ *agenttest.Session, a agent.Approval) agent.Decision {
			close(asked)
			<-steering
			if !allow {
				return agent.Decision{Outcome: frames.Rejected}
			}
			return agent.Decision{Outcome: frames.AllowedOnce, Input: a.Input}
		}})
		start(t, func() {
			<-asked
			close(steering)
			err := s.Steer(t.Context(), "word")
			if err != nil {
				cancel() // else the command would wait for its line
			}
			steered <- err
		})
		if _, err := s.Prompt(ctx, "read x; echo got $x"); err != nil {
			t.Fatal(err)
		}
		err := <-steered
		if got := text(agenttest.Last[frames.ToolResult](s)); allow && (err != nil || got != "got word\n") {
			t.Errorf("Steer = %v, result %q; want the line in it", err, got)
		}
		if !allow && !errors.Is(err, agent.ErrNotTaken) {
			t.Errorf("Steer of a rejected command = %v, want ErrNotTaken", err)
		}
	}
}

// A command that reads nothing is fed up to a limit, and ends all the same.
func TestUnreadInputIsBounded(t *testing.T) {
	ready := make(chan struct{}, 1)
	_, s := open(t, shell.Options{}, agenttest.Script{Progress: func(*agenttest.Session, frames.CallID, string) { ready <- struct{}{} }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	start(t, func() {
		_, err := s.Prompt(ctx, "echo ready; sleep 1000")
		done <- err
	})
	<-ready
	big := strings.Repeat("x", 100<<10)
	taken := 0
	for s.Steer(t.Context(), big) == nil {
		taken++
		if taken > 100 {
			t.Fatal("10 MiB of unread input were taken; want a bound")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Prompt = %v", err)
	}
}
