package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command in the background is listed, shown, waited for and cancelled from
// other programs, under the end of its id too.
func TestTasksOfACommand(t *testing.T) {
	d := newDesktop(t)
	run := func(command string) (sid, task string) {
		t.Helper()
		end := d.start("run", "--cwd", d.cwd, command)
		d.ok("approve", d.id())
		if r := <-end; r.code != 0 {
			t.Fatalf("run: exit %d, %s", r.code, r.err)
		}
		f := strings.Fields(d.ok("tasks", "--running"))
		if len(f) < 5 || f[1] != "running" || f[2] != "command" {
			t.Fatalf("tasks --running printed %q, want the command", f)
		}
		sid = strings.Fields(d.ok("ls"))[0]
		return sid, f[0]
	}
	sid, task := run("echo hello; until [ -e go ]; do sleep 0.05; done; exit 4 &")
	if out := d.ok("tasks", sid[20:]); !strings.Contains(out, task) || !strings.Contains(out, "echo hello") {
		t.Errorf("tasks of the session: %q", out)
	}
	if out := d.ok("tasks", "show", sid, task[20:]); !strings.Contains(out, "\nhello\n") || !strings.Contains(out, "6 bytes") {
		t.Errorf("show printed %q, want the output", out)
	}
	d.fails(exitTimeout, "it took too long", "tasks", "wait", "--timeout", "1ms", sid, task)
	wait := d.start("tasks", "wait", sid, task)
	if err := os.WriteFile(filepath.Join(d.cwd, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := <-wait; r.code != exitFailed || r.out != "failed (exit 4)\n" {
		t.Errorf("wait: exit %d, %q, %q; want that it failed", r.code, r.out, r.err)
	}
	d.fails(exitNotPending, "has ended", "tasks", "cancel", sid, task)
	d.fails(exitNotFound, "no task", "tasks", "show", sid, "none")

	sid, task = run("sleep 1000 &")
	if out := d.ok("tasks", "cancel", sid, task); out != "cancelled\n" {
		t.Errorf("cancel printed %q", out)
	}
	d.fails(exitRefused, "", "tasks", "wait", sid, task)
	if out := d.ok("tasks", "--json", sid); !strings.Contains(out, `"type":"task"`) || !strings.Contains(out, `"status":"cancelled"`) {
		t.Errorf("tasks --json printed %q", out)
	}
}

// Limits out of range are refused before anything starts.
func TestOddLimitsAreRefused(t *testing.T) {
	for _, flag := range []string{"--max-queue", "--max-tree", "--max-depth", "--spawn-rate"} {
		d := &desktop{t: t, dir: t.TempDir()}
		d.fails(exitUsage, flag+" is 0", "serve", flag, "0")
		d.fails(exitUsage, flag+" is 1000001", "serve", flag, "1000001")
	}
}
