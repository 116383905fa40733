package mux

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/muxhost/muxhost/frames"
)

// retryMs is how long a browser waits before it comes back by itself, in
// milliseconds. It also comes back after an end that says not to, and only a refusal
// stops it: the sooner, the better.
const retryMs = 1_000

// eventText writes notifications as Server-Sent Events: the method is the event,
// the params are the data, on one line. A durable event of a session has an id,
// SESSION:EPOCH:SEQ, which the client sends back as Last-Event-ID. A heartbeat is a
// comment. The connection's writer owns it.
type eventText struct {
	heard  *atomic.Int32 // pings since the peer was heard
	epochs map[frames.SessionID]frames.Epoch
}

// pinged counts a ping as answered: on an event stream the peer has nothing to say,
// and its socket tells when it is gone.
func (t *eventText) pinged() { t.heard.Store(0) }

// Parts of a notification as [frames.EncodeFrame] writes it.
var (
	markMethod = []byte(`"method":"`)
	markParams = []byte(`,"params":`)
)

// cut takes a notification apart; params is nil if it has none.
func cut(msg []byte) (method, params []byte) {
	head, params, ok := bytes.Cut(msg, markParams)
	if ok {
		params = params[:len(params)-1]
	}
	_, method, _ = bytes.Cut(head, markMethod)
	if i := bytes.IndexByte(method, '"'); i >= 0 {
		method = method[:i]
	}
	return method, params
}

// maxEventHead is more than everything around the params but method and id.
const maxEventHead = 64

// append adds msg to dst as one event.
func (t *eventText) append(dst, msg []byte) ([]byte, error) {
	method, params := cut(msg)
	switch frames.FrameType(method) {
	case frames.HeartbeatFrame:
		return append(dst, ": heartbeat\n\n"...), nil
	case frames.SessionSubscribedFrame, frames.SessionEventFrame:
		var err error
		if dst, err = t.appendID(dst, msg); err != nil {
			return dst, err
		}
	}
	dst = append(append(append(dst, "event: "...), method...), "\ndata: "...)
	at := len(dst)
	if len(params) == 0 {
		params = []byte("{}")
	}
	dst = append(dst, params...)
	for i, b := range dst[at:] { // between tokens a line break is only space
		if b == '\n' || b == '\r' {
			dst[at+i] = ' '
		}
	}
	return append(dst, "\n\n"...), nil
}

// appendID adds the id of a durable event, and notes the epoch that a subscription
// names.
func (t *eventText) appendID(dst, msg []byte) ([]byte, error) {
	f, err := frames.DecodeFrame(msg)
	if err != nil {
		return dst, fmt.Errorf("mux: a frame for an event stream: %w", err)
	}
	switch f := f.(type) {
	case *frames.SessionSubscribed:
		t.epochs[f.SessionID] = f.Epoch
	case *frames.SessionEvent:
		e, err := frames.DecodeEvent(f.Event)
		if err != nil {
			return dst, fmt.Errorf("mux: an event for an event stream: %w", err)
		}
		if e.Seq == 0 {
			return dst, nil
		}
		dst = append(append(append(dst, "id: "...), f.SessionID...), ':')
		dst = append(append(dst, t.epochs[f.SessionID]...), ':')
		dst = append(strconv.AppendUint(dst, uint64(e.Seq), 10), '\n')
	}
	return dst, nil
}

// streamed adds one notification to an event stream.
func (o *outbox) streamed(msg []byte) error {
	if err := o.space(len(msg) + maxEventHead); err != nil {
		return err
	}
	var err error
	o.buf, err = o.gate.events.append(o.buf, msg)
	return err
}

// streamReady adds frames that stand ready for WebSockets to an event stream.
func (o *outbox) streamReady(b []byte) error {
	for len(b) > 0 {
		msg := payloadOf(b)
		n := payloadLen(b)
		if err := o.streamed(msg[:n]); err != nil {
			return err
		}
		b = msg[n:]
	}
	return nil
}

// closeEvent is the last event of a stream that the host ends: what the close code
// of a WebSocket says.
func closeEvent(code int, reason string) []byte {
	data, err := json.Marshal(struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	}{code, reason})
	if err != nil {
		data = []byte("{}")
	}
	return fmt.Appendf(nil, "retry: %d\nevent: mux/closed\ndata: %s\n\n", retryMs, data)
}
