package acp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muxhost/muxhost/host/agent/acp"
	"github.com/muxhost/muxhost/host/agent/agenttest"
)

// roleEnv makes the test binary an agent of some kind.
const roleEnv = "ACP_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		act(role)
		return
	}
	os.Exit(m.Run())
}

// act is an agent that is a process. "stubborn" ignores everything but SIGKILL, and
// every kind leaves processes behind: in its group, and outside of it.
func act(role string) {
	if role == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	if role == "mute" {
		fmt.Fprintln(os.Stderr, "I have no key")
		os.Exit(3)
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		var m message
		if json.Unmarshal([]byte(line), &m) != nil || m.ID == nil {
			continue
		}
		result := `{"stopReason":"end_turn"}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":1}`
		case "session/new":
			result = `{"sessionId":"s1"}`
		case "session/prompt":
			litter()
			if role == "crash" {
				fmt.Fprintln(os.Stderr, "segfault")
				os.Exit(7)
			}
			fmt.Printf(`{"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}}}` + "\n")
			if strings.Contains(line, "long") {
				forever()
			}
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
	if role == "stubborn" {
		forever()
	}
}

// forever waits; the runtime takes it for no deadlock.
func forever() {
	for {
		<-time.After(time.Hour)
	}
}

// litter leaves processes behind that hold the agent's pipes.
func litter() {
	for _, line := range []string{"sleep 1000 &", "setsid sh -c 'sleep 1000' &"} {
		cmd := exec.Command("/bin/sh", "-c", line) //nolint:noctx // it is to outlive us
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			panic(err)
		}
	}
}

// start opens a session of an agent that is a process.
func start(t *testing.T, role string, o acp.Options) (*agenttest.Session, string) {
	t.Helper()
	cwd, err := os.MkdirTemp("", "acp") // not t.TempDir: its name holds the test's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(cwd) })
	o.Name, o.Command, o.Env = "fake", os.Args[0], []string{roleEnv + "=" + role}
	return open(t, agenttest.Script{Cwd: cwd, Env: []string{"PATH=" + os.Getenv("PATH")}}, acp.New(o)), cwd
}

// The agent runs in the session's directory, with its environment, and its whole tree
// is gone when it was closed, whatever it takes.
func TestNoProcessSurvivesClose(t *testing.T) {
	for _, role := range []string{"good", "stubborn"} {
		t.Run(role, func(t *testing.T) {
			s, cwd := start(t, role, acp.Options{StopWait: 50 * time.Millisecond, TermWait: 50 * time.Millisecond})
			prompt(t, s)
			if n := living(t, cwd); n < 3 {
				t.Fatalf("%d processes run; want the agent and what it left behind", n)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if n := living(t, cwd); n > 0 {
				t.Errorf("%d processes survive; want 0", n)
			}
		})
	}
}

// A process that crashes says how in the turn's error, leaves nothing behind, and the
// next turn starts it again.
func TestAProcessThatCrashes(t *testing.T) {
	s, cwd := start(t, "crash", acp.Options{})
	for range 2 {
		_, err := s.Prompt(t.Context(), "go")
		if err == nil || !strings.Contains(err.Error(), "exit 7") || !strings.Contains(err.Error(), "segfault") {
			t.Errorf("Prompt = %v; want exit 7, and its log", err)
		}
		if n := living(t, cwd); n > 0 {
			t.Errorf("%d processes survive; want 0", n)
		}
	}
}

// A process that is killed in the middle of a turn ends the turn.
func TestAProcessThatIsStuckIsKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, cwd := start(t, "good", acp.Options{CancelGrace: 50 * time.Millisecond})
	var after *time.Timer
	defer func() { after.Stop() }()
	after = time.AfterFunc(100*time.Millisecond, cancel)
	if res, err := s.Prompt(ctx, "long"); err != nil || res.Reason != "cancelled" {
		t.Errorf("Prompt = %+v, %v; want cancelled", res, err)
	}
	if n := living(t, cwd); n > 0 {
		t.Errorf("%d processes survive; want 0", n)
	}
}

// A program that cannot run, or ends at once, is an error that says what it said.
func TestProgramsThatCannotStart(t *testing.T) {
	h := agenttest.New(agenttest.Script{Cwd: t.TempDir()}, acp.New(acp.Options{Name: "x", Command: "/does/not/exist"}))
	if _, err := h.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "not run") {
		t.Errorf("Open = %v; want that it was not run", err)
	}
	h = agenttest.New(agenttest.Script{Cwd: t.TempDir()}, acp.New(acp.Options{Name: "x", Command: "relative"}))
	if _, err := h.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("Open = %v; want an absolute path", err)
	}
	h = agenttest.New(agenttest.Script{Cwd: t.TempDir()}, acp.New(acp.Options{
		Name: "x", Command: os.Args[0], Env: []string{roleEnv + "=mute"},
	}))
	if _, err := h.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "I have no key") || !strings.Contains(err.Error(), "exit 3") {
		t.Errorf("Open = %v; want its exit code and its log", err)
	}
}

// The suite holds for a real process too.
func TestAProcessKeepsTheSeam(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{
		Driver: acp.New(acp.Options{
			Name: "fake", Command: os.Args[0], Env: []string{roleEnv + "=good"},
			CancelGrace: 100 * time.Millisecond, StopWait: 50 * time.Millisecond, TermWait: 50 * time.Millisecond,
		}),
		Script: agenttest.Script{Env: []string{"PATH=" + os.Getenv("PATH")}},
		Short:  "short", Long: "long",
	})
}
