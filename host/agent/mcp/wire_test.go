package mcp_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/host/agent"
)

// wire speaks the protocol by hand.
type wire struct {
	t  *testing.T
	o  agent.ToolOffer
	id string
}

// newWire begins a protocol session.
func newWire(t *testing.T, o agent.ToolOffer) *wire {
	t.Helper()
	w := &wire{t: t, o: o}
	s := w.call(initialize)
	defer s.Close()
	w.id = s.resp.Header.Get("Mcp-Session-Id")
	s.data()
	return w
}

// stream is a response that comes bit by bit.
type stream struct {
	t    *testing.T
	resp *http.Response
	r    *bufio.Reader
}

// call sends one message and returns once the host begins to answer.
func (w *wire) call(msg string) *stream {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.o.URL(), strings.NewReader(msg))
	if err != nil {
		w.t.Fatal(err)
	}
	withToken(w.o)(r)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if w.id != "" {
		r.Header.Set("Mcp-Session-Id", w.id)
		r.Header.Set("Mcp-Protocol-Version", "2025-06-18")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &stream{t: w.t, resp: resp, r: bufio.NewReader(resp.Body)}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("%s: %s %s", msg, resp.Status, b)
	}
	return s
}

// line returns the next line that is not empty.
func (s *stream) line() string {
	s.t.Helper()
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream ended: %v", err)
		}
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
}

// data returns the next message.
func (s *stream) data() string {
	s.t.Helper()
	for {
		if text, ok := strings.CutPrefix(s.line(), "data: "); ok {
			return text
		}
	}
}

// Close hangs up.
func (s *stream) Close() error { return s.resp.Body.Close() }
