package muxtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Do sends one request to h over a pipe of its own and returns the response; close
// its body. h may take the connection over. It ends with t.
func Do(t testing.TB, h http.Handler, r *http.Request) *http.Response {
	t.Helper()
	client, server := net.Pipe()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(r.Context())
	t.Cleanup(func() { cancel(); _ = client.Close(); wg.Wait() })
	wg.Go(func() {
		w := &takeable{hijackable: hijackable{httptest.NewRecorder(), server}}
		h.ServeHTTP(w, r.WithContext(ctx))
		if !w.taken {
			_ = w.Result().Write(server) // fails when the client has hung up
			_ = server.Close()
		}
	})
	resp, err := http.ReadResponse(bufio.NewReader(client), r)
	if err != nil {
		t.Fatalf("%s %s over a pipe: %v", r.Method, r.URL, err)
	}
	resp.Body = &hangUp{resp.Body, client}
	return resp
}

// takeable is hijackable and tells whether it was.
type takeable struct {
	hijackable
	taken bool
}

func (w *takeable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.taken = true
	return w.hijackable.Hijack()
}

// hangUp is a body whose end is the connection's.
type hangUp struct {
	io.ReadCloser
	conn net.Conn
}

func (b *hangUp) Close() error { return errors.Join(b.conn.Close(), b.ReadCloser.Close()) }

// ServerEvent is one Server-Sent Event, or a comment.
type ServerEvent struct {
	Type, Data, ID, Retry, Comment string
}

// Stream records a stream of Server-Sent Events.
type Stream struct {
	t    testing.TB
	body io.ReadCloser
	wg   sync.WaitGroup
	mu   sync.Mutex
	got  []ServerEvent
	over bool
}

// Events starts to read body until it ends; it is closed with t.
func Events(t testing.TB, body io.ReadCloser) *Stream {
	s := &Stream{t: t, body: body}
	s.wg.Go(s.read)
	t.Cleanup(s.Close)
	return s
}

// Close hangs up and waits.
func (s *Stream) Close() {
	_ = s.body.Close()
	s.wg.Wait()
}

// Got returns what came so far.
func (s *Stream) Got() []ServerEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// Over reports whether the host has ended the stream.
func (s *Stream) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Wait blocks until the stream has ended.
func (s *Stream) Wait() { s.wg.Wait() }

func (s *Stream) read() {
	defer func() {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
	}()
	lines := bufio.NewReader(s.body)
	var e ServerEvent
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if line != "" && !errors.Is(err, io.ErrClosedPipe) {
				s.t.Errorf("the stream ended within a line: %q", line)
			}
			return
		}
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			s.mu.Lock()
			s.got = append(s.got, e)
			s.mu.Unlock()
			e = ServerEvent{}
			continue
		}
		s.field(&e, line)
	}
}

// field takes in one line of an event.
func (s *Stream) field(e *ServerEvent, line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	into := map[string]*string{"": &e.Comment, "event": &e.Type, "data": &e.Data, "id": &e.ID, "retry": &e.Retry}[name]
	if into == nil || *into != "" {
		s.t.Errorf("the line %.200q is out of place in a stream of events", line)
		return
	}
	*into = value
}
