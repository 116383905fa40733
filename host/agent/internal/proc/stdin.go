package proc

import (
	"os"
	"sync"
	"time"

	"github.com/muxhost/muxhost/host/agent"
)

// maxStdin bounds the bytes that wait for a command to read them. When it is
// full, further text is not taken.
const maxStdin = 1 << 20

// Stdin feeds a command's standard input without making those who write wait.
type Stdin struct {
	f    *os.File
	wake chan struct{} // holds one token; never closed

	mu     sync.Mutex // guards what follows; no I/O under it
	buf    []byte
	ended  bool // no more text is taken
	closed bool // the command is over
}

func newStdin(f *os.File) *Stdin { return &Stdin{f: f, wake: make(chan struct{}, 1)} }

// Write queues text, or returns [agent.ErrNotTaken].
func (in *Stdin) Write(text string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended || len(in.buf)+len(text) > maxStdin {
		return agent.ErrNotTaken
	}
	in.buf = append(in.buf, text...)
	in.poke()
	return nil
}

// End closes the input once everything queued was read.
func (in *Stdin) End() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return agent.ErrNotTaken
	}
	in.ended = true
	in.poke()
	return nil
}

// close drops what is queued and lets run return.
func (in *Stdin) close() {
	in.mu.Lock()
	in.ended, in.closed, in.buf = true, true, nil
	in.mu.Unlock()
	_ = in.f.SetWriteDeadline(time.Now())
	in.poke()
}

func (in *Stdin) poke() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// run writes what is queued until the input ends; it owns the file.
func (in *Stdin) run() {
	defer in.f.Close()
	for range in.wake {
		in.mu.Lock()
		buf, last, closed := in.buf, in.ended, in.closed
		in.buf = nil
		in.mu.Unlock()
		if closed {
			return
		}
		_, err := in.f.Write(buf)
		if err != nil || last {
			in.refuse()
			return
		}
	}
}

// refuse makes later text wait for the next turn.
func (in *Stdin) refuse() {
	in.mu.Lock()
	in.ended, in.buf = true, nil
	in.mu.Unlock()
}
