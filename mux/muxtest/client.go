package muxtest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
)

// Message is one message that a client got: a frame, or a response.
type Message struct {
	Raw []byte
	// Frame is the decoded frame, nil for a response.
	Frame frames.Frame
	// Event is the decoded event of a `session/event`, else nil.
	Event *frames.Event
}

// Type returns the frame's type, "" for a response.
func (m Message) Type() frames.FrameType {
	if m.Frame == nil {
		return ""
	}
	return m.Frame.FrameType()
}

// Client records everything that one socket receives, in order.
type Client struct {
	WS *websocket.Conn

	t   testing.TB
	wg  sync.WaitGroup
	mu  sync.Mutex
	got []Message
	err error
}

// Watch starts to read ws until it ends; it is closed with t.
func Watch(t testing.TB, ws *websocket.Conn) *Client {
	c := &Client{WS: ws, t: t}
	c.wg.Go(c.read)
	t.Cleanup(func() {
		_ = ws.CloseNow()
		c.wg.Wait()
	})
	return c
}

func (c *Client) read() {
	for {
		kind, b, err := c.WS.Read(context.Background())
		if err == nil && kind != websocket.MessageText {
			c.t.Errorf("got a message of kind %v, want text", kind)
		}
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.mu.Unlock()
			return
		}
		c.got = append(c.got, Decode(c.t, b))
		c.mu.Unlock()
	}
}

// Decode decodes one message; one that is no valid frame fails t.
func Decode(t testing.TB, b []byte) Message {
	m := Message{Raw: b}
	if !bytes.Contains(b[:min(len(b), 64)], []byte(`"method":`)) {
		return m
	}
	f, err := frames.DecodeFrame(b)
	if err != nil {
		t.Errorf("DecodeFrame(%.200s): %v", b, err)
		return m
	}
	m.Frame = f
	if e, ok := f.(*frames.SessionEvent); ok {
		ev, err := frames.DecodeEvent(e.Event)
		if err != nil {
			t.Errorf("DecodeEvent(%.200s): %v", e.Event, err)
			return m
		}
		m.Event = &ev
	}
	return m
}

// Messages returns what came so far.
func (c *Client) Messages() []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// Take returns what came since the last Take.
func (c *Client) Take() []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.got
	c.got = nil
	return got
}

// CloseCode returns the code the socket was closed with, 0 while it is open and
// -1 if it ended without one.
func (c *Client) CloseCode() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return 0
	}
	return int(websocket.CloseStatus(c.err))
}

// Wait blocks until the socket has ended.
func (c *Client) Wait() { c.wg.Wait() }
