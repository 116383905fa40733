package mcp

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// writeTimeout is how long a caller may take to read what it is sent.
const writeTimeout = 10 * time.Second

// errGone is why a call ends whose caller hung up or does not read.
var errGone = errors.New("mcp: the caller is gone")

// post is the response to one POST: an event stream that its call keeps alive.
// Library and call write to it; slot is held by the one that does. It is no mutex,
// because a write may take up to writeTimeout.
type post struct {
	http.ResponseWriter
	rc     *http.ResponseController
	slot   chan struct{}
	closed bool            // guarded by slot
	ctx    context.Context //nolint:containedctx // of the request: done when the caller hung up
}

func newPost(w http.ResponseWriter, r *http.Request) *post {
	return &post{
		ResponseWriter: w, rc: http.NewResponseController(w), slot: make(chan struct{}, 1), ctx: r.Context(),
	}
}

// hold does f while nobody else writes; after close it fails.
func (p *post) hold(f func() error) error {
	p.slot <- struct{}{}
	defer func() { <-p.slot }()
	if p.closed {
		return errGone
	}
	if err := p.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return f()
}

// Write implements [http.ResponseWriter]. It fails once the request is over.
func (p *post) Write(b []byte) (n int, err error) {
	err = p.hold(func() error {
		n, err = p.ResponseWriter.Write(b)
		return err
	})
	return n, err
}

// FlushError is what [http.ResponseController] calls.
func (p *post) FlushError() error { return p.hold(p.rc.Flush) }

// comment sends an event stream's comment, which says nothing but that we live.
// The response's header has to be complete.
func (p *post) comment() error {
	return p.hold(func() error {
		if _, err := p.ResponseWriter.Write([]byte(": wait\n\n")); err != nil {
			return err
		}
		return p.rc.Flush()
	})
}

// close is called before the request's handler returns: nothing may be written then.
func (p *post) close() {
	_ = p.hold(func() error {
		p.closed = true
		return nil
	})
}
