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

	p      Process // the keeper, where there is one
	keeper keeper
	kept   bool
	once   sync.Once
	end    Ending
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
	err := q.start(order{Argv: c.Argv, Env: environ(c.Env, q.p.mark), Dir: c.Dir}, theirs)
	closeAll(theirs[:])
	if err != nil {
		closeAll(ours[:])
		return nil, fmt.Errorf("not run: %w", err)
	}
	return q, nil
}

// start starts what o says, through a keeper where there is one.
func (q *Peer) start(o order, pipes [3]*os.File) error {
	cmd, err := q.keeper.command()
	if err != nil {
		return err
	}
	if q.kept = cmd != nil; !q.kept {
		cmd = exec.Command(o.Argv[0], o.Argv[1:]...) //nolint:noctx // ended by group, see Kill
		cmd.Dir, cmd.Env, cmd.SysProcAttr = o.Dir, o.Env, attributes()
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes[0], pipes[1], pipes[2]
	q.p.cmd = cmd
	started := make(chan error, 1)
	q.p.wg.Go(func() { q.p.lead(started) })
	if err = <-started; err != nil {
		q.p.wg.Wait()
		q.keeper.abandon()
		return err
	}
	if err = q.keeper.begin(o); err != nil {
		q.Kill()
	}
	return err
}

func closeAll(lists ...[]*os.File) {
	for _, files := range lists {
		for _, f := range files {
			f.Close()
		}
	}
}

// Exited is closed when the process itself has ended; what it started may go on where
// there are no keepers.
func (q *Peer) Exited() <-chan struct{} { return q.p.exited }

// Terminate asks the process and its group to end. It does nothing once the process
// is known to have ended.
func (q *Peer) Terminate() {
	switch {
	case q.p.over():
	case q.kept:
		q.keeper.terminate()
	default:
		terminate(q.p.cmd)
	}
}

// Kill ends the process and everything that it started, and waits for that. Later
// calls wait too, and return the same.
func (q *Peer) Kill() Ending {
	q.once.Do(func() {
		if q.kept {
			q.keeper.release()
			q.p.within(q.p.exited, keeperWait)
		}
		// The leader's pid is not given back yet, so the group's id is still ours.
		killGroup(q.p.cmd)
		_ = q.p.cmd.Process.Kill() // it may have left its own group
		<-q.p.exited
		survivors := sweep(q.p.mark)
		close(q.p.reap)
		q.p.wg.Wait()
		q.end.Code, q.end.Signal = status(q.p.cmd)
		if e, ok := q.keeper.ending(); ok {
			q.end = e
		}
		q.end.Survivors = max(q.end.Survivors, survivors)
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
