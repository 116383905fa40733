package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const dbName = "muxhost.db"

// startTimeout bounds how long a host may take to come up, and how long the load
// may take to reach the moment of a kill, on a machine that does other things.
const startTimeout = 60 * time.Second

// hostProcess is a host in a process of its own.
type hostProcess struct {
	cmd   *exec.Cmd
	url   chan string // gets the address once; closed at the end of stdout
	wg    sync.WaitGroup
	ended atomic.Bool
}

// spawnHost starts a host on dir; its messages go to the file errors beside dir.
func spawnHost(t *testing.T, mode, dir string) *hostProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--log-level", "warn", "--state-dir", dir}
	h := &hostProcess{cmd: exec.Command(exe, args...), url: make(chan string, 1)}
	h.cmd.Env = append(os.Environ(), hostEnv+"="+mode)
	log, err := os.OpenFile(errorsOf(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h.cmd.Stderr = log
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.wg.Go(func() { h.read(out) })
	t.Cleanup(func() { h.kill() })
	return h
}

// errorsOf is where the hosts of a state directory write their messages.
func errorsOf(dir string) string { return dir + ".errors" }

func (h *hostProcess) read(out io.Reader) {
	defer close(h.url)
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if n == 0 {
			h.url <- lines.Text()
		}
	}
}

// ready waits until the host listens, and returns its address.
func (h *hostProcess) ready() (string, error) {
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case url, ok := <-h.url:
		if !ok {
			return "", errors.New("the host ended before it listened")
		}
		return url, nil
	case <-timer.C:
		return "", fmt.Errorf("the host does not listen after %v", startTimeout)
	}
}

// opening waits until the host has taken its database.
func (h *hostProcess) opening(dir string) error {
	want := fmt.Sprint(h.cmd.Process.Pid)
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for range int(startTimeout / time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, dbName+".lock"))
		if err == nil && strings.Contains(string(b), want) {
			return nil
		}
		<-ticks.C
	}
	return fmt.Errorf("the host has not opened its database after %v", startTimeout)
}

// kill ends the host with SIGKILL and waits for its end. It is safe to call twice.
func (h *hostProcess) kill() {
	if h.ended.Swap(true) {
		return
	}
	_ = h.cmd.Process.Kill()
	h.wg.Wait()
	_ = h.cmd.Wait() // it was killed
}

// stop ends the host as a person would, and returns what it exits with.
func (h *hostProcess) stop() error {
	if h.ended.Swap(true) {
		return nil
	}
	if err := h.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	h.wg.Wait()
	return h.cmd.Wait()
}
