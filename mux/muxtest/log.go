package muxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
)

// Log is a [mux.Log] in memory. The zero value is empty and ready.
type Log struct {
	mu    sync.Mutex
	fail  error
	logs  map[frames.SessionID]*oneLog
	reads int
	bases int
	slow  func() // called by Base without a lock
}

type oneLog struct {
	first  frames.Seq
	events []frames.Encoded
	base   json.RawMessage
}

func (l *Log) of(sid frames.SessionID) *oneLog {
	if l.logs == nil {
		l.logs = map[frames.SessionID]*oneLog{}
	}
	if l.logs[sid] == nil {
		l.logs[sid] = &oneLog{first: 1}
	}
	return l.logs[sid]
}

// Append stores durable events; it panics if they do not follow the head.
func (l *Log) Append(sid frames.SessionID, evs ...frames.Encoded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.of(sid)
	for _, e := range evs {
		if want := o.first + frames.Seq(len(o.events)); e.Seq != want {
			panic(fmt.Sprintf("muxtest: appended event %d to %s, want %d", e.Seq, sid, want))
		}
		o.events = append(o.events, e)
	}
}

// Trim drops events before first and keeps base for them.
func (l *Log) Trim(sid frames.SessionID, first frames.Seq, base json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.of(sid)
	o.events, o.first, o.base = o.events[first-o.first:], first, base
}

// Fail makes Read and Base return err from now on; nil makes them work again.
func (l *Log) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// Reads returns how often Read was called.
func (l *Log) Reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// Read implements [mux.Log].
func (l *Log) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, maxBytes int) ([]frames.Encoded, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if err := errors.Join(l.fail, ctx.Err()); err != nil {
		return nil, err
	}
	o := l.of(sid)
	if after+1 < o.first {
		return nil, fmt.Errorf("muxtest: read %s after %d: %w", sid, after, &mux.TrimmedError{First: o.first})
	}
	var out []frames.Encoded
	n := 0
	for _, e := range o.events[min(int(after+1-o.first), len(o.events)):] {
		if n += len(e.Data); n > maxBytes && len(out) > 0 {
			break
		}
		out = append(out, e)
	}
	return out, nil
}

// Base implements [mux.Log].
func (l *Log) Base(ctx context.Context, sid frames.SessionID) (json.RawMessage, error) {
	l.mu.Lock()
	slow := l.slow
	l.mu.Unlock()
	if slow != nil {
		slow()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bases++
	if err := errors.Join(l.fail, ctx.Err()); err != nil {
		return nil, err
	}
	return l.of(sid).base, nil
}

// Bases returns how often Base was called.
func (l *Log) Bases() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bases
}

// Slow makes Base call f first; nil makes it fast again.
func (l *Log) Slow(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = f
}
