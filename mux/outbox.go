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
	lone []byte  // ready frames that nothing was added to yet: written from where they are
	buf  []byte  // of lent
	lent *[]byte // of the pool; nil while buf is not used
	sent int64
}

// scratch lends buffers to passes, so that an idle connection holds none.
var scratch = sync.Pool{New: func() any { return new(make([]byte, 0, 4<<10)) }}

// pending returns how many bytes are gathered and not written.
func (o *outbox) pending() int { return len(o.lone) + len(o.buf) }

// message adds one text message.
func (o *outbox) message(msg []byte) error {
	if o.gate.events != nil {
		return o.streamed(msg)
	}
	return o.frame(finText, msg)
}

// frame adds one frame with the given first byte. An event stream has no pings and
// pongs.
func (o *outbox) frame(first byte, payload []byte) error {
	if t := o.gate.events; t != nil {
		t.pinged()
		return nil
	}
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

// ready adds frames that have their headers already; they may not change.
func (o *outbox) ready(b []byte) error {
	if o.gate.events != nil {
		return o.streamReady(b)
	}
	if o.pending() == 0 {
		o.lone = b
		return nil
	}
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
	o.lone = b
	return nil
}

// event adds one event of session sid as a frame.
func (o *outbox) event(sid frames.SessionID, overhead int, event []byte) error {
	n := overhead + len(event)
	if o.gate.events != nil {
		return o.streamed(frames.AppendSessionEvent(make([]byte, 0, n), sid, event))
	}
	if err := o.space(maxHeader + n); err != nil {
		return err
	}
	o.buf = frames.AppendSessionEvent(appendHeader(o.buf, finText, n), sid, event)
	return nil
}

// space prepares buf for n more bytes, and flushes where that would be too much
// for one write.
func (o *outbox) space(n int) error {
	if p := o.pending(); p > 0 && p+n > o.max || len(o.lone) >= o.max/4 {
		if err := o.flush(); err != nil {
			return err
		}
	}
	if o.lent == nil {
		o.lent = scratch.Get().(*[]byte)
		o.buf = (*o.lent)[:0]
	}
	o.buf = append(o.buf, o.lone...)
	o.lone = nil
	return nil
}

// flush writes what is gathered.
func (o *outbox) flush() error {
	b := o.buf
	if o.lone != nil { // then buf is empty
		b = o.lone
	}
	if len(b) == 0 {
		return nil
	}
	if err := o.write(b); err != nil {
		return err
	}
	o.lone, o.buf = nil, o.buf[:0]
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
	err := o.flush()
	if err == nil && o.lent != nil && cap(o.buf) <= 2*o.max {
		*o.lent = o.buf[:0]
		scratch.Put(o.lent)
	}
	o.lone, o.buf, o.lent = nil, nil, nil
	return err
}
