package shell_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/shell"
)

// victimEnv makes the test binary a host that runs one command in a directory.
const victimEnv = "SHELL_TEST_VICTIM"

func TestMain(m *testing.M) {
	if command := os.Getenv(victimEnv); command != "" {
		victim(command)
		return
	}
	os.Exit(m.Run())
}

// victim runs command until it is killed, and passes its output on.
func victim(command string) {
	cwd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	h := agenttest.New(agenttest.Script{
		Cwd: cwd, Env: path,
		Progress: func(_ *agenttest.Session, _ frames.CallID, text string) { fmt.Print(text) },
		Output:   func(_ *agenttest.Session, _ *agenttest.Task, text string) { fmt.Print(text) },
	}, shell.New(shell.Options{}))
	s, err := h.Open(context.Background(), nil)
	if err != nil {
		panic(err)
	}
	_, err = s.Prompt(context.Background(), command)
	for _, k := range s.Tasks() {
		k.Wait()
	}
	panic(fmt.Sprint("the command ended: ", err))
}

// When the host is killed with SIGKILL, its commands die within five seconds.
func TestNothingSurvivesTheHost(t *testing.T) {
	for _, command := range []string{
		"echo up; sleep 1000",
		"echo up; sleep 1000 &",
		"nohup sh -c 'echo up; exec sleep 1000' & wait",
		"setsid sh -c 'echo up; exec sleep 1000' & wait",
		"(setsid sh -c \"sh -c 'echo up; exec sleep 1000' &\" &); read x",
	} {
		t.Run(command, func(t *testing.T) {
			cwd := dir(t)
			host := exec.CommandContext(t.Context(), os.Args[0])
			host.Dir, host.Env = cwd, append(os.Environ(), victimEnv+"="+command)
			out, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
				t.Fatalf("the host printed %q, %v; want up", line, err)
			}
			began := time.Now()
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // it says that it was killed
			for living(cwd) > 0 && time.Since(began) < 5*time.Second {
				runtime.Gosched()
			}
			if n := living(cwd); n > 0 {
				t.Errorf("%d processes survive their host by 5s; want 0", n)
			}
		})
	}
}
