package mux

import (
	"sync"

	"github.com/muxhost/muxhost/frames"
)

// outbox gathers frames into few writes, each ending on a frame boundary.
type outbox struct {
	gate *gate
	arm  func() // sets the write deadline
	max  int
	buf  []byte // of the pool; nil between passes
	sent int64
}

// scratch lends buffers to passes, so that an idle connection holds none.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// message adds one text message.
func (o *outbox) message(msg []byte) error { return o.frame(finText, msg) }

// frame adds one frame with the given first byte.
func (o *outbox) frame(first byte, payload []byte) error {
	if err := o.space(maxHeader + len(payload)); err != nil {
		return err
	}
	if len(payload) < o.max {
		o.buf = append(appendHeader(o.buf, first, len(payload)), payload...)
		return nil
	}
	var h [maxHeader]byte
	return o.write(appendHeader(h[:0], first, len(payload)), payload)
}

// ready adds frames that have their headers already. Long runs are written from
// where they are.
func (o *outbox) ready(b []byte) error {
	if err := o.space(len(b)); err != nil {
		return err
	}
	if len(b) < o.max/4 {
		o.buf = append(o.buf, b...)
		return nil
	}
	if err := o.flush(); err != nil {
		return err
	}
	return o.write(b)
}

// event adds one event of session sid as a frame.
func (o *outbox) event(sid frames.SessionID, overhead int, event []byte) error {
	n := overhead + len(event)
	if err := o.space(maxHeader + n); err != nil {
		return err
	}
	o.buf = frames.AppendSessionEvent(appendHeader(o.buf, finText, n), sid, event)
	return nil
}

// space flushes if n more bytes would make the buffer too long.
func (o *outbox) space(n int) error {
	if len(o.buf) > 0 && len(o.buf)+n > o.max {
		if err := o.flush(); err != nil {
			return err
		}
	}
	if o.buf == nil {
		o.buf = *scratch.Get().(*[]byte)
	}
	return nil
}

// flush writes what is gathered.
func (o *outbox) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	if err := o.write(o.buf); err != nil {
		return err
	}
	o.buf = o.buf[:0]
	return nil
}

func (o *outbox) write(bufs ...[]byte) error {
	for _, b := range bufs {
		o.sent += int64(len(b))
	}
	return o.gate.send(o.arm, bufs...)
}

// done flushes and gives the buffer back. After an error the buffer is left to
// the gate, which may still owe the end of a frame.
func (o *outbox) done() error {
	if err := o.flush(); err != nil {
		o.buf = nil
		return err
	}
	if o.buf != nil && cap(o.buf) <= 2*o.max {
		b := o.buf[:0]
		scratch.Put(&b)
	}
	o.buf = nil
	return nil
}
