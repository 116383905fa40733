package hosttest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
)

// Watch is one connection that reads all the time, keeps what it got in order and
// notices every broken rule of order. Its methods are safe for concurrent use.
type Watch struct {
	sock *websocket.Conn
	wg   sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next message
	next    int
	waits   map[int]chan Reply
	got     []Got
	book    book
	err     error
	held    chan struct{} // not nil: nothing is read until it is closed
}

// Got is one message as it came.
type Got struct {
	Raw   []byte
	Frame frames.Frame  // nil for a response
	Event *frames.Event // of a `session/event`
}

// Reply is the response to one call.
type Reply struct {
	Result json.RawMessage `json:"result"`
	Error  *ReplyError     `json:"error"`
}

// ReplyError is the error of a response.
type ReplyError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Kind returns the kind of the error, "ok" where there is none, or its code.
func (r Reply) Kind() string {
	if r.Error == nil {
		return "ok"
	}
	var d struct{ Kind string }
	if json.Unmarshal(r.Error.Data, &d) == nil && d.Kind != "" {
		return d.Kind
	}
	return fmt.Sprint(r.Error.Code)
}

// NewWatch starts to read sock; [Watch.Close] ends it.
func NewWatch(sock *websocket.Conn) *Watch {
	w := &Watch{sock: sock, waits: map[int]chan Reply{}, changed: make(chan struct{}), book: newBook()}
	sock.SetReadLimit(4 << 20)
	w.wg.Go(w.read)
	return w
}

// Close cuts the connection without a goodbye, and waits.
func (w *Watch) Close() {
	w.Resume()
	_ = w.sock.CloseNow()
	w.wg.Wait()
}

// Hold makes w read no more, but for the one message that it may be reading.
func (w *Watch) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == nil {
		w.held = make(chan struct{})
	}
}

// Resume makes w read on.
func (w *Watch) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil {
		close(w.held)
		w.held = nil
	}
}

// await blocks while w is held.
func (w *Watch) await() {
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	if held != nil {
		<-held
	}
}

func (w *Watch) read() {
	for {
		w.await()
		_, b, err := w.sock.Read(context.Background())
		w.mu.Lock()
		if err != nil {
			w.end(err)
		} else {
			w.take(b)
		}
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (w *Watch) end(err error) {
	w.err = err
	for id, ch := range w.waits {
		close(ch)
		delete(w.waits, id)
	}
}

// take takes in one message.
func (w *Watch) take(b []byte) {
	var env struct {
		ID     *int   `json:"id"`
		Method string `json:"method"`
		Reply
	}
	if err := json.Unmarshal(b, &env); err != nil {
		w.book.fault("no JSON: %v: %.200s", err, b)
		return
	}
	g := Got{Raw: b}
	if env.Method == "" {
		w.got = append(w.got, g)
		w.respond(env.ID, env.Reply)
		return
	}
	f, err := frames.DecodeFrame(b)
	if err != nil {
		w.book.fault("no frame: %v: %.200s", err, b)
		return
	}
	g.Frame = f
	if len(b) > frames.MaxFrame {
		w.book.fault("%s has %d bytes, more than %d", f.FrameType(), len(b), frames.MaxFrame)
	}
	if se, ok := f.(*frames.SessionEvent); ok {
		e, err := frames.DecodeEvent(se.Event)
		if err != nil {
			w.book.fault("no event: %v: %.200s", err, b)
			return
		}
		g.Event = &e
	}
	w.got = append(w.got, g)
	w.book.frame(f, g.Event)
}

func (w *Watch) respond(id *int, r Reply) {
	if id == nil {
		w.book.fault("a response without an id: %+v", r.Error)
		return
	}
	ch := w.waits[*id]
	delete(w.waits, *id)
	if ch == nil {
		w.book.fault("a second response to call %d", *id)
		return
	}
	ch <- r
}

// Call makes one call and waits for its response.
func (w *Watch) Call(ctx context.Context, method string, params any) (Reply, error) {
	wait, err := w.Start(ctx, method, params)
	if err != nil {
		return Reply{}, err
	}
	return wait()
}

// Start sends one call; wait waits for its response. It returns when the call is
// written.
func (w *Watch) Start(ctx context.Context, method string, params any) (wait func() (Reply, error), err error) {
	ch := make(chan Reply, 1)
	w.mu.Lock()
	if w.err != nil {
		defer w.mu.Unlock()
		return nil, w.err
	}
	w.next++
	id := w.next
	w.waits[id] = ch
	w.mu.Unlock()
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, fmt.Errorf("hosttest: %w", err)
	}
	if err := w.sock.Write(ctx, websocket.MessageText, b); err != nil {
		return nil, fmt.Errorf("hosttest: %w", err)
	}
	return func() (Reply, error) {
		select {
		case r, ok := <-ch:
			if !ok {
				return Reply{}, fmt.Errorf("hosttest: %s: the connection ended: %w", method, w.Err())
			}
			return r, nil
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
	}, nil
}

// Next returns the next message from place *at on for which ok holds, and moves
// *at behind it; it waits for it where it has not come yet.
func (w *Watch) Next(ctx context.Context, at *int, ok func(g Got) bool) (Got, error) {
	for {
		w.mu.Lock()
		fresh, err, changed := w.got[min(*at, len(w.got)):], w.err, w.changed
		w.mu.Unlock()
		for _, g := range fresh {
			*at++
			if ok(g) {
				return g, nil
			}
		}
		if err != nil {
			return Got{}, fmt.Errorf("hosttest: the connection ended: %w", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Got{}, context.Cause(ctx)
		}
	}
}

// Got returns everything that came, in order.
func (w *Watch) Got() []Got {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.got)
}

// Err returns why the connection ended, nil while it is open.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// CloseCode returns the code the connection was closed with: 0 while it is open,
// -1 where it ended without one.
func (w *Watch) CloseCode() int {
	if err := w.Err(); err != nil {
		return int(websocket.CloseStatus(err))
	}
	return 0
}

// Faults returns every broken rule that was noticed.
func (w *Watch) Faults() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.book.faults)
}

// Cards returns what this connection was told waits, and not that it ended.
func (w *Watch) Cards() []frames.RequestID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.book.cards))
}

// Added returns the sessions that `host/session-added` told of.
func (w *Watch) Added() []frames.SessionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.book.added))
}

// Cursor returns the last durable event received of a session, and whether its
// live events follow.
func (w *Watch) Cursor(sid frames.SessionID) (seq frames.Seq, live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.book.parts[sid]; p != nil {
		return p.cursor, p.live
	}
	return 0, false
}

// Subscribed returns the sessions whose baseline came.
func (w *Watch) Subscribed() []frames.SessionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.book.parts))
}

// View returns what the connection makes of a session: the fold as JSON, and the
// open turn as JSON.
func (w *Watch) View(sid frames.SessionID) (fold, live string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.book.parts[sid]
	if p == nil {
		return "", "", fmt.Errorf("hosttest: no baseline of %s came", sid)
	}
	f, err := json.Marshal(p.view)
	if err != nil {
		return "", "", fmt.Errorf("hosttest: %w", err)
	}
	l, err := json.Marshal(p.view.Live())
	if err != nil {
		return "", "", fmt.Errorf("hosttest: %w", err)
	}
	return string(f), string(l), nil
}
