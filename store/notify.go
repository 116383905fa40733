package store

import (
	"context"
	"sync"

	"github.com/muxhost/muxhost/frames"
)

// Notifier wakes the tailers of a log when it changes. The zero Notifier is
// ready. It costs a writer one map look-up per changed session.
type Notifier struct {
	mu   sync.Mutex // guards logs; nothing blocks under it
	logs map[frames.SessionID]*watch
}

// watch is one log that somebody tails; wake is closed at the next change.
type watch struct {
	wake chan struct{}
	n    int
}

// Changed wakes whoever tails the log.
func (n *Notifier) Changed(sid frames.SessionID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.logs[sid]; w != nil {
		close(w.wake)
		w.wake = make(chan struct{})
	}
}

// ChangedAll wakes every tailer.
func (n *Notifier) ChangedAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.logs {
		close(w.wake)
		w.wake = make(chan struct{})
	}
}

func (n *Notifier) join(sid frames.SessionID) *watch {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.logs[sid]
	if w == nil {
		if n.logs == nil {
			n.logs = map[frames.SessionID]*watch{}
		}
		w = &watch{wake: make(chan struct{})}
		n.logs[sid] = w
	}
	w.n++
	return w
}

func (n *Notifier) leave(sid frames.SessionID, w *watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.n--; w.n == 0 {
		delete(n.logs, sid)
	}
}

func (n *Notifier) next(w *watch) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return w.wake
}

// Reader is the part of a [Store] that a tailer reads from.
type Reader interface {
	Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]Event, error)
}

// NewTailer returns a [Tailer] for engines whose every change of a log is told
// to n after it can be read from r. It holds at most one page of events.
func NewTailer(r Reader, n *Notifier, sid frames.SessionID, after frames.Seq) Tailer {
	return &tailer{r: r, n: n, w: n.join(sid), sid: sid, after: after}
}

type tailer struct {
	r     Reader
	n     *Notifier
	w     *watch
	sid   frames.SessionID
	after frames.Seq
	page  []Event
	done  bool
}

// Next implements [Tailer].
func (t *tailer) Next(ctx context.Context) (Event, error) {
	for len(t.page) == 0 {
		if t.done {
			return Event{}, ErrClosed
		}
		wake := t.n.next(t.w) // before reading: a change in between is not missed
		page, err := t.r.Read(ctx, t.sid, t.after, 64, 64<<10)
		if err != nil {
			return Event{}, err
		}
		if t.page = page; len(page) > 0 {
			break
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
	ev := t.page[0]
	t.page, t.after = t.page[1:], ev.Seq
	return ev, nil
}

// Close implements [Tailer]. It is safe to call twice.
func (t *tailer) Close() error {
	if !t.done {
		t.done, t.page = true, nil
		t.n.leave(t.sid, t.w)
	}
	return nil
}
