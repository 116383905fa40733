package client

import (
	"context"
	"errors"
	"sync"
)

// Bounds of the buffer of Frames, in bytes of messages. Past softLimit the socket
// is not read; while a call waits, past hardLimit the connection is given up.
const (
	softLimit = 2 << 20
	hardLimit = 32 << 20
)

// errOverrun is a consumer that waits for a call and does not take frames.
var errOverrun = errors.New("client: the frame buffer is full while a call waits; taking up again from the cursor")

// noticeSize is what a notice of the client's own counts in the buffer.
const noticeSize = 64

// size is what a message counts in the buffer.
func (m Message) size() int { return max(len(m.Raw), noticeSize) }

// queue is the buffer between the connection and the consumer.
type queue struct {
	mu    sync.Mutex
	items []Message     // guarded by mu
	bytes int           // guarded by mu
	calls int           // guarded by mu: calls that wait for a response
	err   error         // guarded by mu: why no more will come
	wake  chan struct{} // guarded by mu: closed and replaced at each change

	soft, hard int // softLimit and hardLimit, but in tests
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}), soft: softLimit, hard: hardLimit}
}

// changed wakes whoever waits; the lock is held.
func (q *queue) changed() {
	close(q.wake)
	q.wake = make(chan struct{})
}

// room waits until a frame may be added. It blocks while the buffer is full,
// unless a call waits; past the hard bound that is errOverrun.
func (q *queue) room(ctx context.Context) error {
	for {
		wake, err := q.full()
		if wake == nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// full returns what to wait for, or why waiting is of no use.
func (q *queue) full() (wake chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.bytes < q.soft:
		return nil, nil
	case q.calls == 0:
		return q.wake, nil
	case q.bytes >= q.hard:
		return nil, errOverrun
	}
	return nil, nil
}

// put adds a frame. Whoever took its place in the order first asked for room, so
// that no frame is lost between the two.
func (q *queue) put(m Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, m)
	q.bytes += m.size()
	q.changed()
}

// pop takes the next frame, waiting for one; after the last one the error.
func (q *queue) pop(ctx context.Context) (Message, error) {
	for {
		m, wake, err := q.tryPop()
		if wake == nil {
			return m, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		}
	}
}

func (q *queue) tryPop() (Message, chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		if q.err != nil {
			return Message{}, nil, q.err
		}
		return Message{}, q.wake, nil
	}
	m := q.items[0]
	q.items[0] = Message{}
	q.items = q.items[1:]
	q.bytes -= m.size()
	q.changed()
	return m, nil, nil
}

// waiting counts the calls that wait for a response.
func (q *queue) waiting(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls += n
	q.changed()
}

// end says that nothing more will come.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
	q.changed()
}
