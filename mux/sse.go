package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
)

// EventsOptions ask for a stream of Server-Sent Events.
type EventsOptions struct {
	AcceptOptions
	// Subscribe is what the stream carries; the client cannot change it.
	Subscribe SubscribeRequest
	// Refuse builds the answer to a stream that is not opened: a status and a JSON
	// body. err is [ErrShutdown], [ErrNoSocket], a [*SubscribeError] or what
	// reading the log gave.
	Refuse func(err error) (status int, body []byte)
}

// ErrNoSocket means that the socket of a request cannot be taken over, as with
// HTTP/2.
var ErrNoSocket = errors.New("mux: a stream of events needs HTTP/1.1")

// SubscribeError names the session that could not be subscribed. It wraps
// [ErrNoSession] or a [*CursorError].
type SubscribeError struct {
	SessionID frames.SessionID
	Err       error
}

func (e *SubscribeError) Error() string { return fmt.Sprintf("session %s: %v", e.SessionID, e.Err) }
func (e *SubscribeError) Unwrap() error { return e.Err }

// AcceptEvents answers r with a stream of the frames that o asks for and returns
// its connection; the HTTP handler may return. It is all or nothing: if one session
// cannot be subscribed, the stream is refused. On an error the response is written
// already. It needs HTTP/1.1, since it takes the socket over; the end of the stream
// is that the host hangs up.
//
// The frames, rings, cursors and bounds are those of a WebSocket. Reading gives
// nothing: Read blocks until the client hangs up.
func (h *Hub) AcceptEvents(w http.ResponseWriter, r *http.Request, o EventsOptions) (*Conn, error) {
	c := h.newConn(r, o.AcceptOptions)
	hj := &hijacker{ResponseWriter: w, patience: h.cfg.WriteTimeout}
	if _, _, err := hj.Hijack(); err != nil {
		status, body := o.Refuse(ErrNoSocket)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return nil, fmt.Errorf("%w: %w", ErrNoSocket, err)
	}
	c.gate = hj.gate
	c.gate.events = &eventText{heard: &c.missed, epochs: map[frames.SessionID]frames.Epoch{}}
	c.ws = &mute{gate: c.gate, turn: make(chan struct{}, 1)}
	err := h.join(r.Context(), c, o.Subscribe)
	if err == nil {
		err = c.head(http.StatusOK, w.Header(), "text/event-stream", fmt.Appendf(nil, "retry: %d\n\n", retryMs))
	}
	if err != nil {
		h.turnAway(c, w.Header(), o.Refuse, err)
		return nil, err
	}
	h.wg.Go(c.run)
	return c, nil
}

// join registers c and makes its subscriptions, before anything writes to it.
func (h *Hub) join(ctx context.Context, c *Conn, req SubscribeRequest) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return ErrShutdown
	}
	h.conns[c] = struct{}{}
	h.mu.Unlock()
	var failed error
	err := c.Subscribe(ctx, req, func(rs []SubscribeResult) []byte {
		for _, r := range rs {
			if r.Err != nil && failed == nil {
				failed = &SubscribeError{r.SessionID, r.Err}
			}
		}
		return nil
	})
	if err != nil && len(req.Sessions) > 0 {
		return &SubscribeError{req.Sessions[0].SessionID, err}
	}
	if err == nil {
		err = failed
	}
	return err
}

// turnAway forgets c, which has no writer, and answers why.
func (h *Hub) turnAway(c *Conn, header http.Header, refuse func(error) (int, []byte), why error) {
	h.leave(c)
	c.fail(&ending{err: why})
	status, body := refuse(why)
	if err := c.head(status, header, "application/json", body); err != nil {
		h.cfg.Logger.Debug("mux: a stream was refused without an answer", "err", err)
	}
	if c.gate.endOutput() && c.gate.SetReadDeadline(time.Now().Add(h.cfg.CloseTimeout)) == nil {
		_, _ = io.Copy(io.Discard, c.gate.Conn) // until the peer has the answer
	}
	_ = c.gate.Conn.Close()
	close(c.done)
}

// head writes the response's head and the beginning of its body.
func (c *Conn) head(status int, header http.Header, kind string, body []byte) error {
	header.Set("Content-Type", kind)
	header.Set("X-Accel-Buffering", "no")
	header.Set("Cache-Control", "no-store")
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	if err := header.Write(&b); err != nil {
		return err
	}
	if status != http.StatusOK {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("Connection: close\r\n\r\n")
	b.Write(body)
	return c.gate.send(func() { _ = c.gate.SetWriteDeadline(time.Now().Add(c.hub.cfg.CloseTimeout)) }, b.Bytes())
}

// endOutput says that nothing more comes, and reports whether it could: then the
// peer can hang up first and loses nothing.
func (g *gate) endOutput() bool {
	half, ok := g.Conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// mute is the reading side of an event stream: the client has nothing to say, and
// what it says is dropped.
type mute struct {
	gate *gate
	turn chan struct{} // one token, while somebody reads
}

// Reader blocks until the client hangs up.
func (m *mute) Reader(context.Context) (websocket.MessageType, io.Reader, error) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	if _, err := io.Copy(io.Discard, m.gate.Conn); err != nil {
		return 0, nil, err
	}
	return 0, nil, io.EOF
}

// CloseNow hangs up and waits until Reader has returned.
func (m *mute) CloseNow() error {
	err := m.gate.Conn.Close()
	m.turn <- struct{}{}
	<-m.turn
	return err
}
