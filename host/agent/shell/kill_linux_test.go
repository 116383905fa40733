package shell_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/shell"
)

// Whatever a command started, however it hid, is dead within five seconds of a
// cancellation, of Close, and of the command's own end.
func TestNothingSurvives(t *testing.T) {
	const hide = `sh -c 'echo up; exec sleep 1000'`
	commands := map[string]string{
		"plain":        hide + " & read x",
		"nohup":        "nohup " + hide + " & read x",
		"setsid":       "setsid " + hide + " & read x",
		"double fork":  "(setsid sh -c \"" + hide + " &\" &); read x",
		"deaf":         "trap '' TERM; " + hide + " & while :; do read x && break; done",
		"silent child": "setsid sleep 1000 >/dev/null 2>&1 & echo up; read x",
	}
	ends := map[string]func(*testing.T, *agenttest.Session, context.CancelFunc){
		"cancel": func(_ *testing.T, _ *agenttest.Session, cancel context.CancelFunc) { cancel() },
		"close": func(t *testing.T, s *agenttest.Session, _ context.CancelFunc) {
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close = %v", err)
			}
		},
		"end": func(t *testing.T, s *agenttest.Session, _ context.CancelFunc) {
			if err := s.Steer(t.Context(), "go"); err != nil {
				t.Errorf("Steer = %v", err)
			}
		},
	}
	for how, end := range ends {
		for name, command := range commands {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				survive(t, command, end)
			})
		}
	}
}

func survive(t *testing.T, command string, end func(*testing.T, *agenttest.Session, context.CancelFunc)) {
	up := make(chan struct{}, 64)
	_, s := open(t, shell.Options{Grace: time.Second}, agenttest.Script{
		Progress: func(_ *agenttest.Session, _ frames.CallID, text string) {
			if strings.Contains(text, "up") {
				up <- struct{}{}
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	start(t, func() {
		_, err := s.Prompt(ctx, command)
		done <- err
	})
	<-up
	if n := living(s.Info.Cwd); n < 2 {
		t.Errorf("%d processes run before the end; want the shell and its child", n)
	}
	began := time.Now()
	end(t, s, cancel)
	if err := <-done; err != nil {
		t.Errorf("Prompt = %v", err)
	}
	n := living(s.Info.Cwd)
	for n > 0 && time.Since(began) < 5*time.Second {
		runtime.Gosched()
		n = living(s.Info.Cwd)
	}
	if d := time.Since(began); n > 0 || d > 5*time.Second {
		t.Errorf("%d processes are left %v after the end; want 0 within 5s", n, d)
	}
}

// living counts the processes that work in dir.
func living(dir string) int {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return -1
	}
	n := 0
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == dir {
			n++
		}
	}
	return n
}

// Cancelling is gentle first: a command that catches SIGTERM may clean up.
func TestCancelLetsCommandsCleanUp(t *testing.T) {
	up := make(chan struct{}, 8)
	_, s := open(t, shell.Options{}, agenttest.Script{
		Progress: func(*agenttest.Session, frames.CallID, string) { up <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	start(t, func() {
		_, err := s.Prompt(ctx, "trap 'echo cleaned; exit 0' TERM; echo up; while :; do read x || sleep 1; done")
		done <- err
	})
	<-up
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	res := agenttest.Last[frames.ToolResult](s)
	if text(res) != "up\ncleaned\n" || res.ErrorCode != "cancelled" {
		t.Errorf("result = %+v; want the output of the trap, and error code cancelled", res)
	}
}

// Whatever a task started, however it hid, is dead within five seconds of the end
// of the task: of its own, of its cancellation, of the agent's close.
func TestNothingSurvivesATask(t *testing.T) {
	commands := map[string]string{
		"plain":       "sleep 1000 & echo up; wait &",
		"setsid":      "setsid sleep 1000 & echo up; wait &",
		"double fork": "(setsid sh -c 'sleep 1000 &' &); echo up; sleep 1000 &",
		"deaf":        "trap '' TERM; echo up; while :; do sleep 1; done &",
		"own end":     "setsid sleep 1000 & echo up &",
	}
	for name, command := range commands {
		for _, how := range []string{"cancel", "close"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				up := make(chan struct{}, 64)
				_, s := open(t, shell.Options{Grace: time.Second}, agenttest.Script{
					Output: func(*agenttest.Session, *agenttest.Task, string) { up <- struct{}{} },
				})
				run(t, s, command)
				k := s.Tasks()[0]
				<-up
				began := time.Now()
				if how == "close" {
					if err := s.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				k.Cancel()
				if status, detail := k.Wait(); status != "cancelled" && name != "own end" {
					t.Errorf("the task ended %s (%s), want cancelled", status, detail)
				}
				if n, d := living(s.Info.Cwd), time.Since(began); n > 0 || d > 5*time.Second {
					t.Errorf("%d processes are left %v after the end; want 0 within 5s", n, d)
				}
			})
		}
	}
}
