package acprpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/muxhost/muxhost/frames"
)

const (
	// MaxLine is the longest message in bytes, the limit of the protocol's own
	// libraries. A longer one is skipped.
	MaxLine = 32 << 20
	// maxOut is how many messages may wait for the peer to read them. One more
	// ends the connection: the peer does not read.
	maxOut = 1024
	// maxWaiting is how many of them may wait while more is produced; see [Conn.Room].
	maxWaiting = 64
)

// Why a connection ends.
var (
	ErrStuck = fmt.Errorf("it does not read what it is sent: %d messages wait; it was ended", maxOut)
	ErrGone  = errors.New("the agent ended")
)

// Inbound is a request or a notification of the peer, as it was written.
type Inbound struct {
	ID     json.RawMessage // as it was written; nil on a notification
	Method string
	Params json.RawMessage // nil if there are none
}

// stream is a tolerant line stream. What is no message is reported and skipped;
// errors and ids may have any form. jsonrpc2 sees the answers to our calls and, of
// the peer's messages, the method only: their bytes are in current.
type stream struct {
	r *bufio.Reader
	w io.WriteCloser
	// limit is the longest line in bytes.
	limit int
	junk  func(line []byte, why string) // called by the reader
	out   chan []byte                   // never closed
	taken chan struct{}                 // holds one when something left out

	// current is the peer's message that is being handled. Only the goroutine
	// that reads touches it.
	current Inbound
	heard   atomic.Int64 // when the peer last said something, Unix nanoseconds

	quit     chan struct{}
	once     sync.Once
	err      error         // why, set before quit is closed
	read     chan struct{} // closed when the output has ended
	stopped  chan struct{} // closed when nothing is written any more
	readOnce sync.Once
	wg       sync.WaitGroup
}

var _ jsonrpc2.ObjectStream = (*stream)(nil)

func newStream(r io.Reader, w io.WriteCloser, limit int, junk func([]byte, string)) *stream {
	s := &stream{
		r: bufio.NewReaderSize(r, 64<<10), w: w, limit: limit, junk: junk,
		out: make(chan []byte, maxOut), taken: make(chan struct{}, 1),
		quit: make(chan struct{}), read: make(chan struct{}), stopped: make(chan struct{}),
	}
	s.heard.Store(time.Now().UnixNano())
	s.wg.Go(s.write)
	return s
}

// write is the only writer of the peer's input.
func (s *stream) write() {
	defer close(s.stopped)
	defer s.w.Close()
	for {
		select {
		case line := <-s.out:
			select {
			case s.taken <- struct{}{}:
			default:
			}
			if _, err := s.w.Write(line); err != nil {
				return // the peer is gone; its exit is noticed elsewhere
			}
		case <-s.quit:
			s.flush()
			return
		}
	}
}

// flush writes what was queued before the end.
func (s *stream) flush() {
	for {
		select {
		case line := <-s.out:
			if _, err := s.w.Write(line); err != nil {
				return
			}
		default:
			return
		}
	}
}

// Room waits until few messages wait for the peer to read them, so that a sender of
// many is as fast as the peer reads. It returns early when ctx ends or nothing is
// written any more. One goroutine may wait at a time.
func (s *stream) Room(ctx context.Context) {
	for len(s.out) >= maxWaiting {
		select {
		case <-s.taken:
		case <-s.stopped:
			return
		case <-s.quit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// send queues one message without blocking.
func (s *stream) send(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("acp: encoding a message: %w", err)
	}
	select {
	case <-s.quit:
		return ErrGone
	default:
	}
	select {
	case s.out <- b.Bytes():
		return nil
	default:
		s.End(ErrStuck)
		return ErrStuck
	}
}

// WriteObject implements [jsonrpc2.ObjectStream].
func (s *stream) WriteObject(v any) error { return s.send(v) }

// answer answers a request of the peer with the id as it was written.
func (s *stream) answer(id json.RawMessage, result any) error {
	return s.send(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}{"2.0", id, result})
}

// refuse answers a request of the peer with an error.
func (s *stream) refuse(id json.RawMessage, code int, message string) error {
	type fault struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	return s.send(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   fault           `json:"error"`
	}{"2.0", id, fault{code, message}})
}

// End closes the peer's input once what is queued was written.
func (s *stream) End(err error) {
	s.once.Do(func() { s.err = err; close(s.quit) })
}

// Close implements [jsonrpc2.ObjectStream].
func (s *stream) Close() error {
	s.End(ErrGone)
	return nil
}

// ReadObject reads the next message into v, jsonrpc2's own message type.
func (s *stream) ReadObject(v any) error {
	for {
		line, err := s.line()
		if err != nil {
			s.readOnce.Do(func() { close(s.read) })
			return io.EOF
		}
		s.heard.Store(time.Now().UnixNano())
		b, why := s.decode(line)
		if why != "" {
			s.junk(line, why)
			continue
		}
		if b == nil {
			continue
		}
		if err := json.Unmarshal(b, v); err != nil {
			s.junk(line, err.Error())
			continue
		}
		return nil
	}
}

// line reads one line, or skips one that is too long.
func (s *stream) line() ([]byte, error) {
	var line []byte
	skipping := false
	for {
		part, err := s.r.ReadSlice('\n')
		if !skipping && len(line)+len(part) > s.limit {
			s.junk(line, fmt.Sprintf("a line of more than %d bytes", s.limit))
			line, skipping = nil, true
		}
		if !skipping {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && len(line) == 0:
			return nil, err
		default:
			if skipping {
				skipping = false
				if err != nil {
					return nil, err
				}
				continue
			}
			return line, nil
		}
	}
}

// decode returns what jsonrpc2 is shown of a line: nothing for a blank one. why
// says what is wrong with one that is no message.
func (s *stream) decode(line []byte) (b []byte, why string) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, ""
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if line[0] != '{' {
		return nil, "no JSON object"
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err.Error()
	}
	if IsNull(m.ID) {
		m.ID = nil
	}
	switch {
	case m.Method != nil && *m.Method != "":
		s.current = Inbound{m.ID, *m.Method, m.Params}
		return Marshal(struct {
			Method string `json:"method"`
		}{*m.Method}), ""
	case m.ID == nil:
		return nil, "neither a method nor an id"
	}
	id, ok := ourID(m.ID)
	if !ok {
		return nil, "an answer to an id that is not ours"
	}
	return answerBytes(id, m.Result, m.Error), ""
}

// answerBytes is an answer to one of our calls in the form that jsonrpc2 reads.
func answerBytes(id uint64, result, fault json.RawMessage) []byte {
	if !IsNull(fault) {
		return Marshal(struct {
			ID    uint64          `json:"id"`
			Error *jsonrpc2.Error `json:"error"`
		}{id, readFault(fault)})
	}
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	return Marshal(struct {
		ID     uint64          `json:"id"`
		Result json.RawMessage `json:"result"`
	}{id, result})
}

// readFault reads an error in whatever form the peer wrote it.
func readFault(raw json.RawMessage) *jsonrpc2.Error {
	var m struct {
		Code    json.RawMessage  `json:"code"`
		Message json.RawMessage  `json:"message"`
		Data    *json.RawMessage `json:"data"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return &jsonrpc2.Error{Message: Plain(raw)}
	}
	f := &jsonrpc2.Error{Message: Plain(m.Message), Data: m.Data}
	if n, err := strconv.ParseFloat(Plain(m.Code), 64); err == nil && n > -1e15 && n < 1e15 {
		f.Code = int64(n)
	}
	if f.Message == "" {
		f.Message = Plain(raw)
	}
	return f
}

// ourID reads the id of an answer; ours are positive integers.
func ourID(raw json.RawMessage) (uint64, bool) {
	n, err := strconv.ParseUint(Plain(raw), 10, 63)
	return n, err == nil && n > 0
}

// Plain is the text of a JSON string, and any other value as it is written.
func Plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return frames.ValidText(s)
	}
	return frames.ValidText(string(bytes.TrimSpace(raw)))
}

// IsNull reports whether raw is null or not there.
func IsNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// Marshal encodes what always can be encoded.
func Marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("null") // cannot happen: our own types
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
