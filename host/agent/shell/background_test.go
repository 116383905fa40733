package shell_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/shell"
)

// A command line that ends in " &" is asked for as such and becomes a task: the
// turn ends at once and names it, its output goes to the task, and its end says
// how it ended.
func TestBackgroundCommandIsATask(t *testing.T) {
	_, s := open(t, shell.Options{}, agenttest.Script{})
	for _, c := range []struct{ line, command, output, status, detail string }{
		{"echo out; echo err >&2 &", "echo out; echo err >&2", "out\nerr\n", "completed", ""},
		{"read x; exit 3  &", "read x; exit 3", "", "failed", "exit 3"}, // there is no input
		{"kill -KILL $$ &", "kill -KILL $$", "", "failed", "ended by killed"},
		{"printf '\\303\\244 \\303' &", "printf '\\303\\244 \\303'", "ä \uFFFD", "completed", ""},
	} {
		res := run(t, s, c.line)
		k := s.Tasks()[len(s.Tasks())-1]
		status, detail := k.Wait()
		if status != c.status || detail != c.detail || k.Printed() != c.output {
			t.Errorf("%q ended %s (%s) and printed %q; want %s (%s) and %q", c.line, status, detail, k.Printed(), c.status, c.detail, c.output)
		}
		if k.Kind != "command" || k.Label != c.command {
			t.Errorf("%q: kind %s, label %q", c.line, k.Kind, k.Label)
		}
		var det struct{ TaskID frames.TaskID }
		if err := json.Unmarshal(res.Details, &det); err != nil || det.TaskID != k.ID() || res.IsError || !strings.Contains(text(res), string(k.ID())) {
			t.Errorf("%q: result %+v, details %s, %v; want that it started as %s", c.line, res, res.Details, err, k.ID())
		}
		want, err := json.Marshal(map[string]any{"command": c.command, "cwd": s.Info.Cwd, "background": true})
		if err != nil {
			t.Fatal(err)
		}
		var a, b map[string]any
		if err := json.Unmarshal(want, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(agenttest.Last[frames.ApprovalAsked](s).Input, &b); err != nil || len(b) != 3 || a["command"] != b["command"] || b["background"] != true {
			t.Errorf("%q: asked for %v, want %v", c.line, b, a)
		}
	}
}

// Only a bare " &" at the end makes a task.
func TestOnlyATrailingAmpersandMakesATask(t *testing.T) {
	_, s := open(t, shell.Options{}, agenttest.Script{})
	for _, line := range []string{"true &&", "true&", `echo \ &`, "true & true", "&", " &"} {
		if res, err := s.Prompt(t.Context(), line); err != nil {
			t.Errorf("%q: %+v, %v", line, res, err)
		}
	}
	if n := len(s.Tasks()); n != 0 {
		t.Errorf("%d tasks, want none", n)
	}
}

// What a person rejects, or what cannot be started, leaves no task that runs.
func TestRejectedBackgroundCommandStartsNothing(t *testing.T) {
	for name, d := range map[string]agent.Decision{
		"rejected":      {Outcome: frames.Rejected, Cause: frames.CauseReply},
		"no directory":  {Outcome: frames.AllowedOnce, Input: json.RawMessage(`{"command":"touch ran","cwd":"/none","background":true}`)},
		"a zero in it":  {Outcome: frames.AllowedOnce, Input: json.RawMessage(`{"command":"touch ran\u0000","cwd":"/","background":true}`)},
		"no background": {Outcome: frames.AllowedOnce, Input: json.RawMessage(`{"command":"true","cwd":"/"}`)},
	} {
		_, s := open(t, shell.Options{}, agenttest.Script{Approve: func(context.Context, *agenttest.Session, agent.Approval) agent.Decision { return d }})
		res := run(t, s, "touch ran &")
		if exists(filepath.Join(s.Info.Cwd, "ran")) || res.IsError != (name != "no background") {
			t.Errorf("%s: %+v; want an error and nothing run", name, res)
		}
		for _, k := range s.Tasks() {
			if status, detail := k.Wait(); status != "failed" || detail == "" {
				t.Errorf("%s: a task ended %s (%s), want failed", name, status, detail)
			}
		}
	}
}
