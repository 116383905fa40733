package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// Session is one session and its descendants as a client follows them. Its methods
// consume the client's [Client.Frames], so that the client can follow one Session
// only, from one goroutine.
type Session struct {
	ID frames.SessionID

	c      *Client
	folder Folder
}

// Open creates a session and follows it with its tree from the first event. It
// blocks for the calls; where a connection breaks meanwhile it makes them again.
func (c *Client) Open(ctx context.Context, p rpc.CreateParams) (*Session, error) {
	p.RequestID = cmp.Or(p.RequestID, rand.Text())
	s, err := again(func() (frames.Session, error) { return c.Create(ctx, p) })
	if err != nil {
		return nil, err
	}
	return c.Attach(ctx, s.SessionID)
}

// Attach follows a session that exists, as [Client.Open] does.
func (c *Client) Attach(ctx context.Context, sid frames.SessionID) (*Session, error) {
	entry := rpc.SubscribeSession{SessionID: sid, Since: new(frames.Seq), Tree: true}
	if _, err := c.Subscribe(ctx, rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{entry}}); err != nil {
		return nil, err
	}
	return &Session{ID: sid, c: c}, nil
}

// again makes a call until its outcome is known; an id of the client's own in its
// params makes that safe.
func again[R any](call func() (R, error)) (R, error) {
	for {
		got, err := call()
		if _, lost := errors.AsType[*LostError](err); !lost {
			return got, err
		}
	}
}

// Prompt sends a prompt of a text, unless "", and further blocks, and returns the
// turn that it gets. It queues behind a running turn.
func (s *Session) Prompt(ctx context.Context, text string, more ...frames.ContentBlock) (frames.TurnID, error) {
	p := rpc.PromptParams{SessionID: s.ID, PromptID: frames.PromptID(rand.Text())}
	if text != "" {
		p.Content = append(p.Content, frames.Text(text))
	}
	p.Content = append(p.Content, more...)
	got, err := again(func() (rpc.PromptResult, error) { return s.c.Prompt(ctx, p) })
	return got.TurnID, err
}

// View is the session as far as its frames were taken; nil before the first. The
// next call of Wait changes it.
func (s *Session) View() *frames.View { return s.folder.View(s.ID) }

// Wait takes frames until the turn has ended, and returns the view then. Each, if
// not nil, sees every frame of the tree once it is folded, and may answer requests;
// its error ends the wait. A turn that ended otherwise than completed gives a
// *[TurnError] beside the view.
func (s *Session) Wait(ctx context.Context, turn frames.TurnID, each func(frames.Frame) error) (*frames.View, error) {
	if done, err := s.ended(turn); done {
		return s.View(), err
	}
	for f, err := range s.c.Frames(ctx) {
		if err != nil {
			return s.View(), err
		}
		if err := s.take(f, each); err != nil {
			return s.View(), err
		}
		if done, err := s.ended(turn); done {
			return s.View(), err
		}
	}
	return s.View(), ErrClosed // Frames ends with an error
}

func (s *Session) take(f frames.Frame, each func(frames.Frame) error) error {
	if _, err := s.folder.Apply(f); err != nil {
		return err
	}
	if each != nil {
		if err := each(f); err != nil {
			return err
		}
	}
	if u, ok := f.(*frames.SessionUnsubscribed); ok && u.SessionID == s.ID {
		return fmt.Errorf("client: session %s can no longer be followed: %s", s.ID, u.Reason)
	}
	return nil
}

// ended reports whether the turn has ended, and how if not completed.
func (s *Session) ended(turn frames.TurnID) (bool, error) {
	v := s.View()
	if v == nil {
		return false, nil
	}
	for i := len(v.Turns) - 1; i >= 0; i-- {
		switch t := v.Turns[i]; {
		case t.TurnID != turn:
		case t.Reason == "":
			return false, nil
		case t.Reason != frames.TurnCompleted:
			return true, &TurnError{Reason: t.Reason, Message: t.Message}
		default:
			return true, nil
		}
	}
	return false, nil
}

// TurnError is a turn that ended otherwise than completed.
type TurnError struct {
	Reason  frames.TurnEndReason
	Message string
}

func (e *TurnError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("client: the turn ended %s", e.Reason)
	}
	return fmt.Sprintf("client: the turn ended %s: %s", e.Reason, e.Message)
}
