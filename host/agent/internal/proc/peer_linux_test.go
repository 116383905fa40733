package proc_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

// hostEnv makes the test binary a host that runs the script in it, and waits.
const hostEnv = "PROC_TEST_HOST"

func TestMain(m *testing.M) {
	if script := os.Getenv(hostEnv); script != "" {
		dir, err := os.Getwd()
		if err != nil {
			panic(err)
		}
		p, err := marks.Converse(proc.Command{Argv: []string{"/bin/sh", "-c", script}, Dir: dir, Env: environment()})
		if err != nil {
			panic(err)
		}
		line, err := bufio.NewReader(p.Stdout).ReadString('\n')
		fmt.Print(line, err, "\n")
		select {}
	}
	os.Exit(m.Run())
}

func environment() []string { return []string{"PATH=" + os.Getenv("PATH"), "HOME=/"} }

// litter leaves a process behind in every way that shells know, among them one that
// left group, session and parent, and wiped its environment.
var litter = map[string]string{
	"plain":                  `sleep 1000 &`,
	"nohup":                  `nohup sleep 1000 >/dev/null 2>&1 &`,
	"setsid":                 `setsid sleep 1000 &`,
	"double fork":            `(sleep 1000 &) &`,
	"setsid and double fork": `setsid sh -c '(sleep 1000 >/dev/null 2>&1 &)'`,
	"wiped":                  `env -i /usr/bin/env setsid sh -c '(setsid sleep 1000 >/dev/null 2>&1 </dev/null &)'`,
	"many generations":       `sh -c 'sh -c "env -i setsid sh -c \"sleep 1000 & sleep 1000\" &" &'`,
}

// workplace is a directory by which the processes of a test are found: what they start
// stays in it.
func workplace(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "proc") // not t.TempDir: its name holds the test's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// living counts the processes in dir.
func living(t *testing.T, dir string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if at, err := os.Readlink(l); err == nil && at == dir {
			n++
		}
	}
	return n
}

// within waits until f holds, for as long as a slow machine may take.
func within(f func() bool) bool {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return false
}

// marks are those of all tests: what carries them is killed when they are collected.
var marks = proc.NewMarks()

func converse(t *testing.T, dir, script string) *proc.Peer {
	t.Helper()
	p, err := marks.Converse(proc.Command{Argv: []string{"/bin/sh", "-c", script}, Dir: dir, Env: environment()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
			f.Close()
		}
	})
	return p
}

// Whatever a process started is gone when it was killed, and when it ended by itself,
// however its children left it.
func TestNothingSurvives(t *testing.T) {
	for name, line := range litter {
		t.Run(name, func(t *testing.T) {
			for _, end := range []string{"killed", "ends"} {
				dir := workplace(t)
				p := converse(t, dir, line+"\necho ready\nread x\nexit 3")
				if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				if !within(func() bool { return living(t, dir) >= 2 }) {
					t.Fatalf("%d processes run; want what it left behind too", living(t, dir))
				}
				if end == "ends" {
					p.Stdin.Close()
					<-p.Exited()
				}
				e := p.Kill()
				if n := living(t, dir); n > 0 || e.Survivors > 0 {
					t.Errorf("%s: %d processes survive, %d reported; want 0", end, n, e.Survivors)
				}
				if end == "ends" && (e.Code != 3 || e.Signal != "") || end == "killed" && e.Signal == "" {
					t.Errorf("%s: %+v; want its exit code, or what killed it", end, e)
				}
			}
		})
	}
}

// When the host itself is killed, nothing that it ran survives it either.
func TestNothingSurvivesTheHost(t *testing.T) {
	for name, line := range litter {
		t.Run(name, func(t *testing.T) {
			dir := workplace(t)
			host := exec.CommandContext(t.Context(), os.Args[0])
			host.Dir = "/"
			host.Env = append(environment(), hostEnv+"=cd "+dir+"\n"+line+"\necho ready\nread x")
			out, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			said, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !strings.HasPrefix(said, "ready") {
				t.Fatalf("it said %q, %v; want ready", said, err)
			}
			if !within(func() bool { return living(t, dir) >= 2 }) {
				t.Fatalf("%d processes run; want what it left behind too", living(t, dir))
			}
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // it was killed
			if !within(func() bool { return living(t, dir) == 0 }) {
				t.Errorf("%d processes survive; want 0", living(t, dir))
			}
		})
	}
}

// A process can end in order when it is asked to, and its signal is told.
func TestTerminate(t *testing.T) {
	dir := workplace(t)
	p := converse(t, dir, "trap 'echo bye; exit 5' TERM\necho ready\nwhile :; do read x; done")
	out := bufio.NewReader(p.Stdout)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p.Terminate()
	if said, err := out.ReadString('\n'); err != nil || said != "bye\n" {
		t.Errorf("it said %q, %v; want bye", said, err)
	}
	<-p.Exited()
	if e := p.Kill(); e.Code != 5 {
		t.Errorf("Kill = %+v; want exit 5", e)
	}
	p = converse(t, dir, "kill -ABRT $$")
	<-p.Exited()
	if e := p.Kill(); e.Code != 134 || e.Signal != "aborted" {
		t.Errorf("Kill = %+v; want aborted", e)
	}
}

// What is run sees its own environment, directory and pipes, and nothing of the host's.
func TestWhatIsRunSeesNothingOfTheHost(t *testing.T) {
	dir := workplace(t)
	t.Setenv("SECRET_OF_HOST", "1")
	p := converse(t, dir, "pwd; env; ls /proc/self/fd | wc -l")
	b, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if !strings.HasPrefix(text, dir+"\n") || !strings.HasSuffix(strings.TrimSpace(text), "4") { // 3 pipes, and the folder
		t.Errorf("it sees\n%s\nwant its directory, and 4 files", text)
	}
	for _, bad := range []string{"SECRET_OF_HOST", "MUXHOST_KEEPER"} {
		if strings.Contains(text, bad) {
			t.Errorf("it sees %s", bad)
		}
	}
}

// What cannot be run says why.
func TestWhatCannotBeRun(t *testing.T) {
	for _, c := range []proc.Command{
		{Argv: []string{"/does/not/exist"}, Dir: "/"},
		{Argv: []string{"/bin/sh"}, Dir: "/does/not/exist"},
	} {
		_, err := marks.Converse(c)
		if err == nil || !strings.Contains(err.Error(), "not run") || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("Converse(%v) = %v; want that it was not run, and why", c, err)
		}
	}
}
