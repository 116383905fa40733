package proc

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"sync"
)

// Peer is a process that is spoken with over its pipes. The caller owns the ends
// of the pipes in it, and must call [Peer.Kill].
type Peer struct {
	// Stdin, Stdout and Stderr are the other ends of the process's pipes.
	Stdin, Stdout, Stderr *os.File

	p    Process
	once sync.Once
	end  Ending
}

// Converse starts c with a pipe each for its input and both outputs. An error says
// "not run" and why. [Command.Grace] does not count here.
func (m *Marks) Converse(c Command) (*Peer, error) {
	m.guard.watch(m.prefix)
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:i], theirs[:i])
			return nil, fmt.Errorf("not run: no pipe: %w", err)
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	q := &Peer{Stdin: ours[0], Stdout: ours[1], Stderr: ours[2]}
	q.p.mark = m.prefix + rand.Text()
	q.p.exited, q.p.reap = make(chan struct{}), make(chan struct{})
	q.p.cmd = exec.Command(c.Argv[0], c.Argv[1:]...) //nolint:noctx // ended by group, see Kill
	q.p.cmd.Dir, q.p.cmd.Env = c.Dir, environ(c.Env, q.p.mark)
	q.p.cmd.Stdin, q.p.cmd.Stdout, q.p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	q.p.cmd.SysProcAttr = attributes()
	started := make(chan error, 1)
	q.p.wg.Go(func() { q.p.lead(started) })
	err := <-started
	closeAll(theirs[:])
	if err != nil {
		q.p.wg.Wait()
		closeAll(ours[:])
		return nil, fmt.Errorf("not run: %w", err)
	}
	return q, nil
}

func closeAll(lists ...[]*os.File) {
	for _, files := range lists {
		for _, f := range files {
			f.Close()
		}
	}
}

// Exited is closed when the process itself has ended; what it started may go on.
func (q *Peer) Exited() <-chan struct{} { return q.p.exited }

// Terminate asks the process and its group to end. It does nothing once the process
// is known to have ended.
func (q *Peer) Terminate() {
	if !q.p.over() {
		terminate(q.p.cmd)
	}
}

// Kill ends the process and everything that it started, and waits for that. Later
// calls wait too, and return the same.
func (q *Peer) Kill() Ending {
	q.once.Do(func() {
		// The leader's pid is not given back yet, so the group's id is still ours.
		killGroup(q.p.cmd)
		_ = q.p.cmd.Process.Kill() // it may have left its own group
		<-q.p.exited
		q.end.Survivors = sweep(q.p.mark)
		close(q.p.reap)
		q.p.wg.Wait()
		q.end.Code, q.end.Signal = status(q.p.cmd)
	})
	return q.end
}

// String says how a process ended: "exit 3", "ended by killed".
func (e Ending) String() string {
	text := fmt.Sprintf("exit %d", e.Code)
	if e.Signal != "" {
		text = "ended by " + e.Signal
	}
	if e.Survivors > 0 {
		text += fmt.Sprintf("; %d of its processes could not be killed", e.Survivors)
	}
	return text
}
