package session

import (
	"sync"

	"github.com/muxhost/muxhost/frames"
)

// MaxTaskOutput is how much of a task's output is kept, in bytes.
const MaxTaskOutput = 64 << 10

// tail keeps the end of what a task printed, in memory only. It is safe for
// concurrent use; the zero tail is empty.
type tail struct {
	mu    sync.Mutex // guards what follows
	text  []byte     // at most twice MaxTaskOutput
	total int64
}

func (t *tail) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(text))
	t.text = append(t.text, frames.Tail(text, MaxTaskOutput)...)
	if len(t.text) > 2*MaxTaskOutput {
		t.text = append(t.text[:0], frames.Tail(string(t.text), MaxTaskOutput)...)
	}
}

// read returns the last MaxTaskOutput bytes or fewer, cut at a character
// boundary, and how many there were in all.
func (t *tail) read() (text string, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return frames.Tail(frames.ValidText(frames.Tail(string(t.text), MaxTaskOutput)), MaxTaskOutput), t.total
}

// size returns how many bytes there were in all.
func (t *tail) size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
