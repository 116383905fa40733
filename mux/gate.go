package mux

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"time"
)

// gate is the one way onto a socket. Our writer and the control frames of
// coder/websocket take turns, and each turn is whole frames, so that a frame is
// never split by another.
type gate struct {
	net.Conn
	patience time.Duration // for one write of coder's
	events   *eventText    // how an event stream writes; nil on a WebSocket. Its writer's own
	turn     chan struct{} // one token: whoever put it in may write
	// The token guards the fields below.
	shut bool     // nothing may follow: closed, or a frame was cut
	tail [][]byte // the rest of a write that was cut
}

func newGate(c net.Conn, patience time.Duration) *gate {
	return &gate{Conn: c, patience: patience, turn: make(chan struct{}, 1)}
}

// Write is for coder/websocket, which writes one whole control frame at a time:
// its buffer is larger than any. After our close frame it writes into nothing.
func (g *gate) Write(b []byte) (int, error) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.shut {
		return len(b), nil
	}
	if err := g.SetWriteDeadline(time.Now().Add(g.patience)); err != nil {
		return 0, err
	}
	n, err := g.Conn.Write(b)
	g.shut = err != nil || b[0] == finClose
	return n, err
}

// send writes whole frames for our writer. arm sets the write deadline once it
// is our turn. After an error the rest is kept for [gate.close]; the buffers
// may not be used again.
func (g *gate) send(arm func(), bufs ...[]byte) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.shut {
		return ErrClosed
	}
	arm()
	for i, b := range bufs {
		n, err := g.Conn.Write(b)
		if err != nil {
			g.shut = true
			g.tail = append([][]byte{b[n:]}, bufs[i+1:]...)
			return err
		}
	}
	return nil
}

// close ends the frame that was cut, if one was, sends a close frame and waits
// for the peer to hang up, each for at most limit.
func (g *gate) close(code int, reason string, limit time.Duration) {
	if g.sayClose(code, reason, limit) != nil {
		return
	}
	if g.SetReadDeadline(time.Now().Add(limit)) != nil {
		return
	}
	if g.events != nil && !g.endOutput() {
		return // the end of the stream is that we hang up
	}
	// Closing a socket with unread bytes would reset it and could take the close
	// frame with it.
	var scratch [512]byte
	for {
		if _, err := g.Read(scratch[:]); err != nil {
			return
		}
	}
}

func (g *gate) sayClose(code int, reason string, limit time.Duration) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.shut && g.tail == nil {
		return ErrClosed
	}
	if err := g.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	last := closeFrame(code, reason)
	if g.events != nil {
		last = closeEvent(code, reason)
	}
	rest := append(g.tail, last)
	g.shut, g.tail = true, nil
	for _, b := range rest {
		if _, err := g.Conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// hijacker hands coder/websocket our gate and small buffers in place of what
// net/http made.
type hijacker struct {
	http.ResponseWriter
	patience time.Duration
	gate     *gate
}

// Sizes of the buffers given to coder: requests are small, and it writes only
// control frames (at most 129 bytes).
const (
	readBuffer  = 1 << 10
	writeBuffer = 256
)

// Hijack implements [http.Hijacker].
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, brw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	h.gate = newGate(c, h.patience)
	// What the client sent behind its handshake is already buffered.
	n := brw.Reader.Buffered()
	early, err := brw.Reader.Peek(n)
	if err != nil {
		return nil, nil, err
	}
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), h.gate), max(readBuffer, n))
	if _, err := r.Peek(n); err != nil {
		return nil, nil, err
	}
	return h.gate, bufio.NewReadWriter(r, bufio.NewWriterSize(h.gate, writeBuffer)), nil
}
