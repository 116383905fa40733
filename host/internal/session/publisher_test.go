package session_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
)

// publisher notes what clients would see, and checks what holds at any time.
type publisher struct {
	mu     sync.Mutex
	flaws  []string
	known  map[frames.SessionID]*shown
	order  []string // Add, SetLive, Remove and the types of events and frames
	blobs  map[frames.BlobID][]byte
	noRoom error // of every Put
}

// full makes every Put fail.
func (p *publisher) full(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noRoom = err
}

// shown is what was published of one session.
type shown struct {
	summary frames.Session
	live    bool
	events  []frames.Encoded
	frames  []frames.Frame
	status  []frames.SessionStatus
	head    frames.Seq
	first   frames.Seq // as was said last
	turn    *frames.TurnSnapshot
	open    map[string]bool
	marks   []int // len(events) at each placed
}

func newPublisher() *publisher {
	return &publisher{known: map[frames.SessionID]*shown{}, blobs: map[frames.BlobID][]byte{}}
}

func (p *publisher) flaw(format string, args ...any) {
	p.flaws = append(p.flaws, fmt.Sprintf(format, args...))
}

// check reports what was wrong at any time.
func (p *publisher) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flaws {
		t.Error(f)
	}
	for sid, s := range p.known {
		for key := range s.open {
			t.Errorf("%s: request %s was shown and never resolved", sid, key)
		}
	}
}

func (p *publisher) of(sid frames.SessionID) *shown {
	s := p.known[sid]
	if s == nil {
		p.flaw("%s was published before it was added", sid)
		s = &shown{open: map[string]bool{}}
		p.known[sid] = s
	}
	return s
}

func (p *publisher) Add(s frames.Session, first frames.Seq, live bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[s.SessionID] != nil {
		p.flaw("%s was added twice", s.SessionID)
	}
	p.known[s.SessionID] = &shown{summary: s, live: live, head: s.Head, first: first, open: map[string]bool{}}
	p.order = append(p.order, "add "+string(s.SessionID))
}

func (p *publisher) SetLive(sid frames.SessionID, live bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(sid)
	if s.live == live {
		p.flaw("%s was set live=%v twice", sid, live)
	}
	s.live = live
	p.order = append(p.order, fmt.Sprintf("live %s %v", sid, live))
}

func (p *publisher) Trimmed(sid frames.SessionID, first frames.Seq) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(sid).first = first
	p.order = append(p.order, fmt.Sprintf("trimmed %s %d", sid, first))
}

func (p *publisher) Remove(sid frames.SessionID, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, sid)
	p.order = append(p.order, "remove "+string(sid)+" "+reason)
}

func (p *publisher) Publish(sid frames.SessionID, u session.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(sid)
	for _, e := range u.Events {
		if e.Class.Durable() {
			if s.head++; e.Seq != s.head {
				p.flaw("%s: seq %d (%s) was published after %d", sid, e.Seq, e.Type, s.head-1)
				s.head = e.Seq
			}
		}
		s.events = append(s.events, e)
		p.order = append(p.order, fmt.Sprintf("%s %s", e.Type, sid))
	}
	s.turn = u.Turn
	for _, n := range u.Notices {
		s.frames = append(s.frames, n.Frame)
		p.order = append(p.order, fmt.Sprintf("%s %s", n.Frame.FrameType(), sid))
		switch {
		case n.Key == "":
		case n.Settle && !s.open[n.Key], !n.Settle && s.open[n.Key]:
			p.flaw("%s: notice %s settle=%v out of turn", sid, n.Key, n.Settle)
		case n.Settle:
			delete(s.open, n.Key)
		default:
			s.open[n.Key] = true
		}
	}
	if u.Status != nil {
		s.status = append(s.status, *u.Status)
	}
	if u.Summary != nil {
		s.summary = *u.Summary
	}
}

// placed notes when a response was placed.
func (p *publisher) placed(sid frames.SessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.known[sid]; s != nil {
		s.marks = append(s.marks, len(s.events))
	}
	p.order = append(p.order, "placed "+string(sid))
}

// Put implements session.Blobs.
func (p *publisher) Put(_ context.Context, r io.Reader) (frames.BlobID, int64, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	sum := sha256.Sum256(b)
	id := frames.BlobID("sha256-" + hex.EncodeToString(sum[:]))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noRoom != nil {
		return "", 0, p.noRoom
	}
	p.blobs[id] = bytes.Clone(b)
	return id, int64(len(b)), nil
}

// Open implements what reads blobs.
func (p *publisher) Open(_ context.Context, id frames.BlobID) (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.blobs[id]
	if !ok {
		return nil, errNoBlob
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

var errNoBlob = errors.New("there is no such blob")

// status returns the last published status.
func (p *publisher) status(sid frames.SessionID) frames.SessionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(sid)
	if len(s.status) == 0 {
		return frames.SessionStatus{}
	}
	return s.status[len(s.status)-1]
}

// framesOf returns the frames of one type that were published.
func framesOf[F any](p *publisher, sid frames.SessionID) []F {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []F
	for _, f := range p.of(sid).frames {
		if v, ok := f.(F); ok {
			out = append(out, v)
		}
	}
	return out
}

// events returns a copy of the events that were published.
func (p *publisher) events(sid frames.SessionID) []frames.Encoded {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.of(sid).events)
}

// script returns what was published, in order.
func (p *publisher) script() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order)
}
