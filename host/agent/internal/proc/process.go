package proc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// markName is the environment variable by which a command's descendants are
// found again after they left its process group.
const markName = "MUXHOST_CALL"

const (
	pipeDelay   = 500 * time.Millisecond // for output after the leader ended
	sweepPause  = 20 * time.Millisecond
	sweepPasses = 100
	readSize    = 32 << 10
	readRounds  = 10 // of pipeDelay, for output after everything was killed
)

// Process is one running command: its leader, its pipes, its descendants.
type Process struct {
	cmd   *exec.Cmd
	grace time.Duration
	mark  string // NAME=value
	out   *os.File
	in    *Stdin

	exited chan struct{} // closed when the leader ended
	reap   chan struct{} // closed when its pid may be given back
	read   chan struct{} // closed when all output was read
	// reading says that drain waits for output; reads counts what it got.
	reading atomic.Bool
	reads   atomic.Int64
	wg      sync.WaitGroup
}

// Ending is how a command ended.
type Ending struct {
	// Code is the exit code, 128+n for signal n, as shells count.
	Code int
	// Signal names the signal that ended it, if one did.
	Signal string
	// Survivors counts processes that could not be killed.
	Survivors int
}

// Command is what to run. All fields are needed.
type Command struct {
	// Argv is the program, an absolute path, and its arguments.
	Argv []string
	// Dir is where it runs, an absolute path; Env its whole environment, to which
	// the mark is added.
	Dir string
	Env []string
	// Grace is how long it has between SIGTERM and SIGKILL when it is cancelled.
	Grace time.Duration
}

// Marks marks the processes of one driver, so that they are found again. It is
// safe for concurrent use.
type Marks struct {
	prefix string // NAME=value, up to the part that each process has for itself
	guard  guard
}

// NewMarks returns marks that no other process carries.
func NewMarks() *Marks { return &Marks{prefix: markName + "=" + rand.Text() + "."} }

// Start starts c with standard input from [Process.Input], and both outputs in
// one pipe. An error says "not run" and why. The caller must call [Process.Wait].
func (m *Marks) Start(c Command) (*Process, error) {
	m.guard.watch(m.prefix)
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("not run: no pipe: %w", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return nil, fmt.Errorf("not run: no pipe: %w", err)
	}
	p := &Process{
		grace: c.Grace, mark: m.prefix + rand.Text(), out: outR,
		exited: make(chan struct{}), reap: make(chan struct{}), read: make(chan struct{}),
	}
	p.cmd = exec.Command(c.Argv[0], c.Argv[1:]...) //nolint:noctx // ended by group, see Wait
	p.cmd.Dir = c.Dir
	p.cmd.Env = environ(c.Env, p.mark)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, outW
	p.cmd.SysProcAttr = attributes()

	started := make(chan error, 1)
	p.wg.Go(func() { p.lead(started) })
	err = <-started
	inR.Close()
	outW.Close()
	if err != nil {
		p.wg.Wait()
		inW.Close()
		outR.Close()
		return nil, fmt.Errorf("not run: %w", err)
	}
	p.in = newStdin(inW)
	p.wg.Go(p.in.run)
	return p, nil
}

// lead starts the leader and waits for it on one thread: the kernel kills the
// child when the thread that started it ends, which stands for the host here.
func (p *Process) lead(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	waitExited(p.cmd)
	close(p.exited)
	<-p.reap
	reap(p.cmd)
}

// Input returns the process's standard input.
func (p *Process) Input() *Stdin { return p.in }

// drain reads all output.
func (p *Process) drain(output func([]byte)) {
	defer close(p.read)
	buf := make([]byte, readSize)
	for {
		p.reading.Store(true)
		n, err := p.out.Read(buf)
		p.reading.Store(false)
		p.reads.Add(1)
		if n > 0 {
			output(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// Wait waits until the command ended, or ends it when ctx is done. When it
// returns, nothing that the command started runs any more. output gets every
// chunk that it writes, from one goroutine; the chunk is not kept.
func (p *Process) Wait(ctx context.Context, output func([]byte)) Ending {
	p.wg.Go(func() { p.drain(output) })
	select {
	case <-p.exited:
	case <-ctx.Done():
		terminate(p.cmd)
		p.within(p.exited, p.grace)
	}
	// The leader's pid is not given back yet, so the group's id is still ours.
	if p.over() {
		p.within(p.read, pipeDelay)
	}
	killGroup(p.cmd)
	_ = p.cmd.Process.Kill() // it may have left its own group
	<-p.exited
	left := sweep(p.mark)
	close(p.reap)
	p.in.close()
	p.readRest()
	p.wg.Wait()
	p.out.Close()
	e := Ending{Survivors: left}
	e.Code, e.Signal = status(p.cmd)
	return e
}

// readRest waits for the rest of the output. Everything known is dead by now, so
// it ends by itself; if somebody unknown holds the pipe and is silent, or goes on
// for long, what was read is what there is.
func (p *Process) readRest() {
	for round := 0; round < readRounds; {
		before := p.reads.Load()
		if p.within(p.read, pipeDelay) {
			return
		}
		if !p.reading.Load() {
			continue // the session is behind, not the pipe
		}
		if round++; p.reads.Load() == before {
			break
		}
	}
	_ = p.out.SetReadDeadline(time.Now())
}

func (p *Process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// within waits for ch, at most for d.
func (p *Process) within(ch <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ch:
		return true
	case <-timer.C:
		return false
	}
}

// sweep kills every process that carries mark, until two passes in a row found
// none, and returns how many it still found when it gave up.
func sweep(mark string) int {
	found, clean := 0, 0
	for range sweepPasses {
		if found = killMarked(mark); found > 0 {
			clean = 0
		} else if clean++; clean == 2 {
			return 0
		}
		<-time.After(sweepPause)
	}
	return found
}

// environ is env without earlier marks, and the mark.
func environ(env []string, mark string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, markName+"=") {
			out = append(out, kv)
		}
	}
	return append(out, mark)
}

// status is the exit code and the signal's name; Wait must have returned.
func status(cmd *exec.Cmd) (code int, signal string) {
	st := cmd.ProcessState
	if st == nil {
		return 255, ""
	}
	if n, name := signalOf(st); n > 0 {
		return 128 + n, name
	}
	return st.ExitCode(), ""
}

// collect collects the leader's status. An exit code that is not 0 is no error here.
func collect(cmd *exec.Cmd) {
	if err := cmd.Wait(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			cmd.ProcessState = nil
		}
	}
}
