package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/store"
)

// publisher hands what sessions publish to the hub: it encodes the frames of
// notices, once, and decides nothing.
type publisher struct {
	hub *mux.Hub
	log *slog.Logger

	mu    sync.Mutex    // guards added
	added chan struct{} // closed by the next Add
}

var _ session.Publisher = (*publisher)(nil)

func newPublisher(hub *mux.Hub, log *slog.Logger) *publisher {
	return &publisher{hub: hub, log: log, added: make(chan struct{})}
}

// Add makes a session known to the hub.
func (p *publisher) Add(s frames.Session, first frames.Seq, live bool) {
	p.hub.Add(mux.Session{Summary: s, First: first, Live: live})
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.added)
	p.added = make(chan struct{})
}

// birthTime bounds how long a session that exists may be unknown to the hub.
const birthTime = 2 * time.Second

// await returns once the hub knows sid, if it is about to: a session can be named
// in a response or a list a moment before it is announced. exists tells whether
// there is such a session.
func (p *publisher) await(ctx context.Context, sid frames.SessionID, exists func(frames.SessionID) bool) {
	ctx, cancel := context.WithTimeout(ctx, birthTime)
	defer cancel()
	for {
		p.mu.Lock()
		added := p.added
		p.mu.Unlock()
		if _, known := p.hub.Head(sid); known || !exists(sid) {
			return
		}
		select {
		case <-added:
		case <-ctx.Done():
			return
		}
	}
}

// SetLive tells the hub that a session woke or went cold.
func (p *publisher) SetLive(sid frames.SessionID, live bool) { p.hub.SetLive(sid, live) }

// Trimmed tells the hub that a log begins at first.
func (p *publisher) Trimmed(sid frames.SessionID, first frames.Seq) { p.hub.Trimmed(sid, first) }

// Remove tells the hub that a session is gone.
func (p *publisher) Remove(sid frames.SessionID, reason string) { p.hub.Remove(sid, reason) }

// Publish makes an update visible at one cut.
func (p *publisher) Publish(sid frames.SessionID, u session.Update) {
	out := mux.Update{Events: u.Events, Turn: u.Turn, Status: u.Status, Summary: u.Summary}
	for _, n := range u.Notices {
		b, err := frames.EncodeFrame(n.Frame)
		if err != nil { // sizes are checked where the frame is made
			p.log.Error("a frame could not be encoded and was not sent", slog.String("type", string(n.Frame.FrameType())), slog.Any("err", err))
			continue
		}
		out.Notices = append(out.Notices, mux.Notice{Kind: noticeKind(n), Key: n.Key, Frame: b})
	}
	p.hub.Publish(sid, out)
}

func noticeKind(n session.Notice) mux.NoticeKind {
	switch {
	case n.Key == "":
		return mux.Pass
	case n.Settle:
		return mux.Settle
	}
	return mux.Raise
}

// hubLog is where the hub reads the durable past.
type hubLog struct{ store store.Store }

var _ mux.Log = hubLog{}

// Read returns events after after, as they were encoded.
func (l hubLog) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, maxBytes int) ([]frames.Encoded, error) {
	evs, err := l.store.Read(ctx, sid, after, 0, maxBytes)
	if e, ok := errors.AsType[*store.TrimmedError](err); ok {
		err = &mux.TrimmedError{First: e.First}
	}
	if err != nil {
		return nil, fmt.Errorf("host: read the log of %s: %w", sid, err)
	}
	out := make([]frames.Encoded, len(evs))
	for i, e := range evs {
		t := frames.EventType(e.Type)
		out[i] = frames.Encoded{Seq: e.Seq, Class: frames.ClassOf(t), Type: t, Data: e.Data}
	}
	return out, nil
}

// Base returns the fold of what was trimmed, nil if nothing was.
func (l hubLog) Base(ctx context.Context, sid frames.SessionID) (json.RawMessage, error) {
	b, err := l.store.Get(ctx, store.TableBase, string(sid))
	if err != nil {
		return nil, fmt.Errorf("host: read the base of %s: %w", sid, err)
	}
	return b, nil
}
