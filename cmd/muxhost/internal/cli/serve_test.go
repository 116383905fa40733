package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// lockedBuffer is an output that a running command and a test share.
type lockedBuffer struct {
	mu  sync.Mutex
	b   bytes.Buffer
	got chan struct{} // has a token after a write
}

func newBuffer() *lockedBuffer { return &lockedBuffer{got: make(chan struct{}, 1)} }

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.got <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serving is a `muxhost serve` that runs in this process.
type serving struct {
	a           *app
	dir         string
	out, errOut *lockedBuffer
	stop        context.CancelFunc
	ended       chan error
}

// serveIn runs serve on dir until the test ends, and waits for its address.
func serveIn(t *testing.T, dir string, args ...string) *serving {
	t.Helper()
	s := &serving{dir: dir, out: newBuffer(), errOut: newBuffer(), ended: make(chan error, 1)}
	s.a = &app{stdin: strings.NewReader(""), stdout: s.out, stderr: s.errOut, getenv: func(string) string { return "" }}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	var wg sync.WaitGroup
	wg.Go(func() {
		root := newRoot(s.a)
		root.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0", "--state-dir", dir, "--log-level", "debug"}, args...))
		s.ended <- root.ExecuteContext(ctx)
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	select {
	case <-s.out.got:
	case err := <-s.ended:
		t.Fatalf("serve ended: %v\n%s", err, s.errOut)
	case <-time.After(20 * time.Second):
		t.Fatalf("serve is not ready\n%s", s.errOut)
	}
	return s
}

// end drains the host and returns what serve returned.
func (s *serving) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("serve: %v\n%s", err, s.errOut)
	}
}

// try runs a command that has to fail, and returns its error.
func try(t *testing.T, args ...string) error {
	t.Helper()
	a := &app{stdin: strings.NewReader(""), stdout: newBuffer(), stderr: newBuffer(), getenv: func(string) string { return "" }}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	if err == nil {
		t.Fatalf("muxhost %s succeeded", strings.Join(args, " "))
	}
	return err
}

// stateIn returns the path of a state directory that does not exist yet.
func stateIn(t *testing.T) string { return filepath.Join(t.TempDir(), "state") }

// Serve makes a private state directory, takes a free port for port 0, tells other
// programs where it listens while it does, and leaves a database that the next one
// goes on with.
func TestServeTellsWhereItListensAndCleansUp(t *testing.T) {
	dir := stateIn(t)
	s := serveIn(t, dir)
	h, err := readHostFile(dir)
	if err != nil || h.PID != os.Getpid() || h.URL != strings.TrimSpace(s.out.String()) || h.StartedAt.IsZero() {
		t.Errorf("host.json = %+v, %v; stdout %q", h, err, s.out)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(h.URL, "http://"))
	if n, _ := strconv.Atoi(port); err != nil || n == 0 {
		t.Errorf("url = %q, want a port", h.URL)
	}
	modes := map[string]fs.FileMode{".": 0o700, hostFileName: 0o600, tokenFileName: 0o600, "muxhost.db": 0o600, "blobs": 0o700}
	for name, want := range modes {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", name, info, err, want)
		}
	}
	c, err := s.a.dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Create(t.Context(), rpc.CreateParams{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	s.end(t)
	if _, err := os.Stat(filepath.Join(dir, hostFileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("host.json after the end: %v, want it gone", err)
	}
	again := serveIn(t, dir)
	h, err = readHostFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err = again.a.dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Get(t.Context(), rpc.GetParams{SessionID: made.SessionID}); err != nil || got.Session.SessionID != made.SessionID {
		t.Errorf("the session after a restart: %+v, %v", got, err)
	}
}

// A second host on the same state directory names the first by its pid; one on a
// busy port says how to choose another.
func TestServeSaysWhoIsInTheWay(t *testing.T) {
	dir := stateIn(t)
	s := serveIn(t, dir)
	err := try(t, "serve", "--listen", "127.0.0.1:0", "--state-dir", dir)
	if !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("a second host: %v, want the pid of the first", err)
	}
	addr := strings.TrimPrefix(strings.TrimSpace(s.out.String()), "http://")
	err = try(t, "serve", "--listen", addr, "--state-dir", stateIn(t))
	if !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "--listen 127.0.0.1:0") {
		t.Errorf("a busy port: %v, want how to choose another", err)
	}
}

// The agent of a session that names none is that of --agent.
func TestServeTakesADefaultAgent(t *testing.T) {
	s := serveIn(t, stateIn(t), "--agent", "demo")
	c, err := s.a.dial(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	made, err := c.Create(t.Context(), rpc.CreateParams{Cwd: t.TempDir()})
	if err != nil || made.Agent != "demo" {
		t.Errorf("created %+v, %v; want a session of demo", made, err)
	}
	if hint := s.errOut.String(); !strings.Contains(hint, "run --agent shell 'echo hello'") {
		t.Errorf("greeted with %s, want the shell named", hint)
	}
}

// What would be unsafe is refused before anything is opened.
func TestServeRefusesUnsafeStarts(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"all interfaces": {[]string{"--listen", "0.0.0.0:0"}, exitUsage, "--tls-cert"},
		"no address":     {[]string{"--listen", ":0"}, exitUsage, "loopback"},
		"odd address":    {[]string{"--listen", "7717"}, exitUsage, "ADDRESS:PORT"},
		"half of TLS":    {[]string{"--tls-cert", "x"}, exitUsage, "belong together"},
		"wild host":      {[]string{"--allow-host", "*"}, exitFailed, "allowed host"},
		"log level":      {[]string{"--log-level", "loud"}, exitUsage, "debug"},
		"log format":     {[]string{"--log-format", "xml"}, exitUsage, "json"},
		"no such agent":  {[]string{"--agent", "nobody"}, exitUsage, `--agent is "nobody": this host has the agents shell, demo`},
		"ask timeout":    {[]string{"--ask-timeout", "0s"}, exitUsage, "1s to 168h"},
	} {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--state-dir", stateIn(t)}, c.args...)
		err := try(t, args...)
		if ExitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d %v; want %d and %q", name, ExitCode(err), err, c.code, c.want)
		}
	}
	loose := stateIn(t)
	if err := os.Mkdir(loose, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(loose, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := try(t, "serve", "--listen", "127.0.0.1:0", "--state-dir", loose); !strings.Contains(err.Error(), "chmod 0700") {
		t.Errorf("a state directory that others can reach: %v, want the chmod", err)
	}
	dir := stateIn(t)
	serveIn(t, dir).end(t)
	if err := os.Chmod(filepath.Join(dir, tokenFileName), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := try(t, "serve", "--listen", "127.0.0.1:0", "--state-dir", dir); !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("a token that others can read: %v, want the chmod", err)
	}
}

// The token stands in its file and nowhere else: not in the output and logs at
// their most talkative, not in the database, not in host.json, not in what an
// agent's commands see of environment, files and arguments.
func TestTokenIsNowhereButInItsFile(t *testing.T) {
	dir := stateIn(t)
	t.Setenv("MUXHOST_TOKEN", "leak-me-not")
	s := serveIn(t, dir, "--log-format", "json")
	h, err := readHostFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	token, err := host.LoadToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.a.dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	output := runAllowed(t, c, "env; cat /proc/self/environ /proc/$PPID/cmdline; ls -l /proc/self/fd")
	if !strings.Contains(output, "PATH=") || strings.Contains(output, token) || strings.Contains(output, "leak-me-not") || strings.Contains(output, "muxhost.db") {
		t.Errorf("a command sees %s", output)
	}
	resp, err := http.Get(h.URL + "/v1/ws?token=" + token)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Fatalf("a token in the URL: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	_ = c.Close()
	s.end(t)
	if all := s.out.String() + s.errOut.String(); strings.Contains(all, token) {
		t.Errorf("the output has the token: %s", all)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == tokenFileName {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(token)) {
			t.Errorf("%s has the token", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runAllowed runs a command in the shell agent, allows it, and returns its output.
func runAllowed(t *testing.T, c *client.Client, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	made, err := c.Create(ctx, rpc.CreateParams{Cwd: t.TempDir(), Agent: "shell"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(ctx, rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: made.SessionID}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Prompt(ctx, rpc.PromptParams{SessionID: made.SessionID, Content: []frames.ContentBlock{frames.Text(command)}}); err != nil {
		t.Fatal(err)
	}
	for f, err := range c.Frames(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *frames.ApprovalRequested:
			if err := c.Respond(ctx, rpc.ApprovalParams{SessionID: f.SessionID, ID: f.ID, Outcome: frames.AllowedOnce, InputHash: &f.InputHash}); err != nil {
				t.Fatal(err)
			}
		case *frames.SessionEvent:
			var e struct {
				Type frames.EventType
				Data frames.ToolResult
			}
			if json.Unmarshal(f.Event, &e) == nil && e.Type == frames.ToolResultEvent {
				return e.Data.Content[0].Text
			}
		}
	}
	t.Fatal("the command gave no result")
	return ""
}
