package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// desktop runs verbs against one host, each as a program of its own would.
type desktop struct {
	t   *testing.T
	dir string
	cwd string
	c   *client.Client
}

func newDesktop(t *testing.T) *desktop {
	t.Helper()
	d := &desktop{t: t, dir: stateIn(t), cwd: t.TempDir()}
	s := serveIn(t, d.dir)
	c, err := s.a.dial(t.Context(), d.dir)
	if err != nil {
		t.Fatal(err)
	}
	d.c = c
	t.Cleanup(func() { _ = c.Close() })
	return d
}

// ran is what a verb left behind.
type ran struct {
	out, err string
	code     int
}

// run runs one verb to its end.
func (d *desktop) run(args ...string) ran {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	return d.runIn(ctx, args...)
}

func (d *desktop) runIn(ctx context.Context, args ...string) ran {
	return d.runWith(ctx, nil, args...)
}

// runWith runs one verb with an environment.
func (d *desktop) runWith(ctx context.Context, env map[string]string, args ...string) ran {
	var out, errOut bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errOut, getenv: func(name string) string { return env[name] }}
	root := newRoot(a)
	root.SetArgs(append([]string{"--state-dir", d.dir}, args...))
	err := root.ExecuteContext(ctx)
	if err != nil {
		errOut.WriteString(say(err))
	}
	return ran{out.String(), errOut.String(), ExitCode(err)}
}

// ok runs a verb that has to succeed, and returns its result.
func (d *desktop) ok(args ...string) string {
	d.t.Helper()
	r := d.run(args...)
	if r.code != 0 {
		d.t.Fatalf("muxhost %s: exit %d: %s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// fails runs a verb that has to end with code and say want.
func (d *desktop) fails(code int, want string, args ...string) {
	d.t.Helper()
	if r := d.run(args...); r.code != code || !strings.Contains(r.err, want) {
		d.t.Errorf("muxhost %s: exit %d, %q; want exit %d and %q", strings.Join(args, " "), r.code, r.err, code, want)
	}
}

// start runs a verb beside the test; the channel brings its end.
func (d *desktop) start(args ...string) <-chan ran {
	end := make(chan ran, 1)
	var wg sync.WaitGroup
	wg.Go(func() { end <- d.run(args...) })
	d.t.Cleanup(wg.Wait)
	return end
}

// pending waits for n requests and returns them, oldest first.
func (d *desktop) pending(n int) []frames.Frame {
	d.t.Helper()
	for f, err := range d.inbox() {
		if err != nil {
			d.t.Fatal(err)
		}
		if _, id := requestOf(f); id == "" {
			continue
		}
		if all, err := listPending(d.t.Context(), d.c, ""); err != nil || len(all) >= n {
			return all
		}
	}
	d.t.Fatalf("fewer than %d requests came", n)
	return nil
}

// inbox follows the host on a connection of its own.
func (d *desktop) inbox() func(func(frames.Frame, error) bool) {
	return func(yield func(frames.Frame, error) bool) {
		ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
		defer cancel()
		a := &app{getenv: func(string) string { return "" }}
		c, err := a.dial(ctx, d.dir)
		if err != nil {
			yield(nil, err)
			return
		}
		defer c.Close()
		if _, err := c.Subscribe(ctx, rpc.SubscribeParams{Host: true}); err != nil {
			yield(nil, err)
			return
		}
		for f, err := range c.Frames(ctx) {
			if !yield(f, err) {
				return
			}
		}
	}
}

// id returns the id of the only request that waits.
func (d *desktop) id() string {
	d.t.Helper()
	_, id := requestOf(d.pending(1)[0])
	return string(id)
}

// awaitOutput waits until a running command has printed text.
func (d *desktop) awaitOutput(sid, text string) {
	d.t.Helper()
	sub := rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: frames.SessionID(sid), Since: new(frames.Seq(0))}}}
	if _, err := d.c.Subscribe(d.t.Context(), sub); err != nil {
		d.t.Fatal(err)
	}
	v := frames.NewView()
	for f, err := range d.c.Frames(d.t.Context()) {
		if err == nil {
			err = v.ApplyFrame(f)
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if live := v.Live(); live != nil && slices.ContainsFunc(live.Tools, func(l frames.LiveTool) bool { return strings.Contains(l.Text, text) }) {
			return
		}
	}
}

// `run` prints the command's output and exits with its code, once a second
// process allowed it.
func TestRunExitsWithTheCommandsCode(t *testing.T) {
	d := newDesktop(t)
	end := d.start("run", "--cwd", d.cwd, "echo out; exit 3")
	if out := d.ok("approve", d.id()); !strings.Contains(out, "allowed-once") || !strings.Contains(out, "echo out; exit 3") {
		t.Errorf("approve printed %q", out)
	}
	r := <-end
	if r.code != 3 || r.out != "out\n" {
		t.Errorf("run: exit %d, stdout %q, want 3 and the output alone", r.code, r.out)
	}
	if !strings.Contains(r.err, "$ echo out; exit 3") || !strings.Contains(r.err, d.cwd) {
		t.Errorf("the card was not shown: %s", r.err)
	}
}

// A rejected command does not run, the reason is shown, and `run` says 7.
func TestRunOfARejectedCommand(t *testing.T) {
	d := newDesktop(t)
	end := d.start("run", "--cwd", d.cwd, "touch ran")
	id := d.id()
	d.ok("reject", "-m", "not today", id)
	r := <-end
	if r.code != exitRefused || !strings.Contains(r.err, "not today") || r.out != "" {
		t.Errorf("run: exit %d, %q, %q", r.code, r.out, r.err)
	}
	if _, err := os.Stat(filepath.Join(d.cwd, "ran")); err == nil {
		t.Error("it ran")
	}
	d.fails(exitNotPending, "rejected by", "approve", id)
	d.fails(exitNotPending, "rejected by", "approve", id[28:])
	d.fails(exitNotPending, "nothing waits", "approve", "no-such-id")
}

// With --approve=reject nobody is asked and nothing runs.
func TestRunThatAsksNobody(t *testing.T) {
	d := newDesktop(t)
	r := d.run("run", "--cwd", d.cwd, "--approve", "reject", "touch ran")
	if _, err := os.Stat(filepath.Join(d.cwd, "ran")); r.code != exitRefused || err == nil {
		t.Errorf("exit %d, %v", r.code, err)
	}
	d.fails(exitUsage, "--approve", "run", "--approve", "yes", "true")
}

// A command that takes too long is cancelled, and `run` says 8.
func TestRunWithATimeout(t *testing.T) {
	d := newDesktop(t)
	end := d.start("run", "--cwd", d.cwd, "--timeout", "2s", "sleep 1000")
	d.ok("approve", d.id())
	if r := <-end; r.code != exitTimeout {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

// "Always" stores a grant for exactly this call: the same one runs unasked, any
// other asks.
func TestApproveAlways(t *testing.T) {
	d := newDesktop(t)
	end := d.start("run", "--cwd", d.cwd, "echo same")
	d.ok("approve", "--always", "--scope", "project", "--for", "1h", d.id())
	if r := <-end; r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	if r := d.run("run", "--cwd", d.cwd, "echo same"); r.code != 0 || r.out != "same\n" {
		t.Errorf("the same call: exit %d, %q %q", r.code, r.out, r.err)
	}
	end = d.start("run", "--cwd", d.cwd, "echo other")
	d.ok("reject", d.id())
	<-end
	d.fails(exitUsage, "--always", "approve", "--for", "1h", "0000")
}

// A question is answered by number, label or text, and told apart from approvals.
func TestAnswerAQuestion(t *testing.T) {
	d := newDesktop(t)
	end := d.start("run", "--cwd", d.cwd, "@ask Which database? | SQLite | Postgres")
	id := d.id()
	d.fails(exitUsage, "question", "approve", id)
	d.fails(exitUsage, "answers, or --cancel", "answer", id)
	if out := d.ok("inbox"); !strings.Contains(out, "Which database?") || !strings.Contains(out, "2) Postgres") {
		t.Errorf("inbox printed %s", out)
	}
	d.ok("answer", id, "2")
	if r := <-end; r.code != 0 || !strings.Contains(r.out, "Postgres") {
		t.Errorf("run: exit %d, %q %q", r.code, r.out, r.err)
	}
	d.fails(exitNotPending, "answered by", "answer", id, "1")
}

// What one process starts, others watch: list, show, history, tail, JSON.
func TestSessionsCanBeRead(t *testing.T) {
	d := newDesktop(t)
	sid := strings.TrimSpace(d.ok("run", "--detach", "--cwd", d.cwd, "--title", "my title", "echo hi"))
	d.ok("wait", sid, "--until", "needs-input")
	d.ok("approve", d.id()[28:])
	d.ok("wait", sid)
	if out := d.ok("ls"); !strings.Contains(out, sid) || !strings.Contains(out, "my title") {
		t.Errorf("ls printed %q", out)
	}
	t.Chdir(d.cwd)
	for dir, want := range map[string]bool{".": true, d.cwd: true, "..": false} {
		if out := d.ok("ls", "--cwd", dir); strings.Contains(out, sid) != want {
			t.Errorf("ls --cwd %s in %s printed %q", dir, d.cwd, out)
		}
	}
	if out := d.ok("show", sid[20:]); !strings.Contains(out, "my title") || !strings.Contains(out, d.cwd) {
		t.Errorf("show printed %q", out)
	}
	if out := d.ok("history", sid); !strings.Contains(out, "approval/decided") || !strings.Contains(out, "turn/end") {
		t.Errorf("history printed %q", out)
	}
	if out := d.ok("tail", sid); !strings.Contains(out, "hi\n") || !strings.Contains(out, "allowed once") {
		t.Errorf("tail printed %q", out)
	}
	for _, args := range [][]string{{"ls", "--json"}, {"show", "--json", sid}, {"history", "--json", sid}, {"tail", "--json", sid}, {"status", "--json"}} {
		for line := range strings.Lines(d.ok(args...)) {
			var v struct {
				V    int             `json:"v"`
				Type string          `json:"type"`
				Data json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal([]byte(line), &v); err != nil || v.V != 1 || v.Type == "" || len(v.Data) == 0 {
				t.Errorf("muxhost %s printed %q: %v", strings.Join(args, " "), line, err)
			}
		}
	}
	d.fails(exitNotFound, "", "show", "00000000-0000-7000-8000-00000000abcd")
	d.fails(exitUsage, "--since", "tail", "--since", "-1", sid)
}

// A prompt is queued behind a running turn, a running one is steered, both are
// cancelled.
func TestSendSteerAndCancel(t *testing.T) {
	d := newDesktop(t)
	sid := strings.TrimSpace(d.ok("run", "--detach", "--cwd", d.cwd, "read x; echo got $x; sleep 1000"))
	d.ok("approve", d.id())
	if out := d.ok("send", sid, "echo later"); !strings.Contains(out, "queued") {
		t.Errorf("send printed %q", out)
	}
	d.ok("send", "--steer", sid, "word")
	d.awaitOutput(sid, "got word")
	if out := d.ok("cancel", sid); !strings.Contains(out, "cancelled") {
		t.Errorf("cancel printed %q", out)
	}
	d.ok("wait", sid, "--until", "needs-input", "--timeout", "20s")
	d.ok("reject", d.id())
	d.ok("wait", sid, "--timeout", "20s")
	out := d.ok("tail", sid)
	for _, want := range []string{"got word", "» word", "cancelled", "› echo later"} {
		if !strings.Contains(out, want) {
			t.Errorf("tail printed %s\nwant %q", out, want)
		}
	}
	d.fails(exitNotPending, "nothing to cancel", "cancel", sid)
	d.fails(exitTimeout, "", "wait", sid, "--until", "turn-end", "--timeout", "50ms")
}

// Any method can be called; errors keep their kind's exit code.
func TestRPCVerb(t *testing.T) {
	d := newDesktop(t)
	if out := d.ok("rpc", "host.describe"); !strings.Contains(out, `"protocolVersion":"1.0"`) {
		t.Errorf("printed %q", out)
	}
	d.fails(exitUsage, "PARAMS", "rpc", "host.describe", "{")
	d.fails(exitNotFound, "", "rpc", "session.get", `{"sessionId":"none"}`)
	d.fails(exitFailed, "", "rpc", "no.such")
	d.fails(exitUsage, "want a directory that exists", "run", "--cwd", d.cwd+"/none", "true")
	d.fails(exitUsage, "expected one of", "ls", "--state", "cold")
	d.fails(exitUsage, "--limit is -1", "ls", "-n", "-1")
	if r := d.run("ls", "--state", "cold"); strings.Contains(r.err, "-32602") {
		t.Errorf("an error for people holds a code of the protocol: %s", r.err)
	}
	if out := d.ok("status"); !strings.Contains(out, "agents: demo, shell") {
		t.Errorf("status printed %q", out)
	}
}

// A token whose connections are all taken is told so, not that there is no host.
func TestVerbsOfATokenThatIsFull(t *testing.T) {
	d := newDesktop(t)
	a := &app{stderr: io.Discard, getenv: func(string) string { return "" }}
	for range 64 {
		c, err := a.dial(t.Context(), d.dir)
		if err != nil {
			break // d.c holds one
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	d.fails(exitFailed, "as many connections as it may", "ls")
	d.fails(exitFailed, "muxhost tokens create", "ls")
	if r := d.run("status"); strings.Contains(r.err, "not reachable") || strings.Contains(r.err, "client:") {
		t.Errorf("status said %q of a host that answers", r.err)
	}
}

// Without a host every verb says how to start one.
func TestVerbsWithoutAHost(t *testing.T) {
	d := &desktop{t: t, dir: stateIn(t)}
	for _, args := range [][]string{{"ls"}, {"show", "x"}, {"tail", "x"}, {"history", "x"}, {"send", "x", "y"}, {"cancel", "x"}, {"inbox"}, {"approve", "x"}, {"reject", "x"}, {"answer", "x", "y"}, {"wait", "x"}, {"rpc", "x"}, {"status"}} {
		d.fails(exitUnreachable, "muxhost serve", args...)
	}
	d.fails(exitUnreachable, "no host runs", "stop")
	d.fails(exitUsage, "--color", "--color", "pink", "version")
	d.fails(exitUsage, "muxhost run --help", "run")
	d.fails(exitUsage, "did you mean serve?", "serv")
	d.fails(exitUsage, "no verb", "nonsense")
}

// A command that fails in a child session is told where it was spawned.
func TestSpawnedFailureIsTold(t *testing.T) {
	d := newDesktop(t)
	end := d.start("run", "--cwd", d.cwd, "@spawn exit 4")
	d.ok("approve", d.id())
	if r := <-end; !strings.Contains(r.out, "exit 4") {
		t.Errorf("run printed %q, want the child's exit code", r.out)
	}
}
