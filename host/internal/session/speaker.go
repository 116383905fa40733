package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/store"
)

// speaker is the [agent.Background] of a session. It outlives actors.
type speaker struct {
	m   *Manager
	sid frames.SessionID
}

var _ agent.Background = speaker{}

// Emit implements [agent.Background].
func (s speaker) Emit(ctx context.Context, events ...frames.Payload) error {
	for {
		a, err := s.m.live(s.sid)
		if err != nil {
			return err
		}
		if err := a.say(ctx, nil, events); err != errGone {
			return err
		}
	}
}

// Failed implements [agent.Background].
func (s speaker) Failed(message string) {
	err := s.m.bare(s.sid, func(a *actor) error { a.complain(message); return nil })
	if err != nil {
		s.m.log.Warn("a failure could not be told", "session", string(s.sid), "error", err)
	}
}

// Save implements [agent.Background]. The row is written in the actor, so that it
// cannot come after the session's end.
func (s speaker) Save(ctx context.Context, state json.RawMessage) error {
	if err := frames.CheckJSON(state, frames.JSONLimits{Bytes: agent.MaxState}); err != nil {
		return fmt.Errorf("save: want a JSON value of at most %d bytes as state: %w", agent.MaxState, err)
	}
	row := stateRow(s.sid, bytes.Clone(state))
	return s.m.inActor(ctx, s.sid, func(*actor) error {
		if err := s.m.cfg.Store.Put(s.m.io, row); err != nil {
			return &StorageError{err}
		}
		return nil
	})
}

func stateRow(sid frames.SessionID, state []byte) store.Row {
	return store.Row{Table: store.TableState, Key: string(sid), Value: state}
}

// state returns what the agent of a session kept last, nil if nothing.
func (m *Manager) state(ctx context.Context, sid frames.SessionID) (json.RawMessage, error) {
	b, err := m.cfg.Store.Get(ctx, store.TableState, string(sid))
	if err != nil {
		return nil, &StorageError{err}
	}
	return b, nil
}

// Title implements [agent.Background].
func (s speaker) Title(ctx context.Context, title string) error {
	title = clipTitle(title)
	if title == "" {
		return nil
	}
	return s.m.in(ctx, s.sid, func(a *actor) error { return a.entitle(title) })
}

// clipTitle makes one line of a title, of at most maxTitle bytes.
func clipTitle(s string) string {
	s, _ = frames.Preview(strings.Join(strings.Fields(frames.ValidText(s)), " "), maxTitle)
	return s
}

// entitle takes an agent's title, where the session has none of a person's.
func (a *actor) entitle(title string) error {
	if a.rec.Named || a.rec.Title != "" && !a.rec.Titled || a.rec.Title == title {
		return nil
	}
	c := &commit{next: a.rec.clone(), summary: true}
	c.next.Title, c.next.Titled = title, true
	c.add(frames.SessionRenamed{Title: title})
	return a.commit(c)
}

// base is what an agent reads of the part of its log that was trimmed.
func (s speaker) base(ctx context.Context) (*frames.View, frames.Seq, error) {
	v, err := s.m.baseOf(ctx, s.sid)
	if err != nil || v == nil {
		return nil, 0, err
	}
	return v, v.Seq, nil
}

// readBlob opens a blob for an agent.
func (s speaker) readBlob(ctx context.Context, id frames.BlobID) (io.ReadCloser, error) {
	if s.m.cfg.OpenBlob == nil {
		return nil, fmt.Errorf("read blob %s: this host keeps no blobs", id)
	}
	return s.m.cfg.OpenBlob(ctx, id)
}
