package client

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/muxhost/muxhost/frames"
)

// Folder keeps the view of every session from the frames of a client. The zero
// value is ready. It is for one goroutine.
type Folder struct {
	views map[frames.SessionID]*frames.View
}

// Apply folds one frame and returns the session it belongs to, "" for none.
func (d *Folder) Apply(f frames.Frame) (frames.SessionID, error) {
	sid := SessionOf(f)
	if sid == "" {
		if _, ok := f.(*frames.HostSubscribed); ok {
			return "", d.voidCards()
		}
		return "", nil
	}
	switch f := f.(type) {
	case *Reset:
		delete(d.views, sid)
		return sid, nil
	case *frames.SessionRemoved:
		if f.Reason == "deleted" {
			delete(d.views, sid)
		}
		return sid, nil
	}
	if d.views == nil {
		d.views = make(map[frames.SessionID]*frames.View)
	}
	v := d.views[sid]
	if v == nil {
		v = frames.NewView()
		d.views[sid] = v
	}
	if err := v.ApplyFrame(f); err != nil {
		return sid, fmt.Errorf("fold %s of session %s: %w", f.FrameType(), sid, err)
	}
	return sid, nil
}

// voidCards begins the host's baseline, which repeats what still waits.
func (d *Folder) voidCards() error {
	for sid, v := range d.views {
		if err := v.ApplyFrame(frames.HostSubscribed{}); err != nil {
			return fmt.Errorf("fold host/subscribed of session %s: %w", sid, err)
		}
	}
	return nil
}

// View returns the view of a session, nil where nothing came. It is shared: the
// next Apply changes it.
func (d *Folder) View(sid frames.SessionID) *frames.View { return d.views[sid] }

// Views yields every view, by session id.
func (d *Folder) Views() iter.Seq2[frames.SessionID, *frames.View] {
	return func(yield func(frames.SessionID, *frames.View) bool) {
		for _, sid := range slices.Sorted(maps.Keys(d.views)) {
			if !yield(sid, d.views[sid]) {
				return
			}
		}
	}
}

// SessionOf names the session that a frame belongs to, "" for none.
func SessionOf(f frames.Frame) frames.SessionID {
	switch f := f.(type) {
	case *Reset:
		return f.SessionID
	case *frames.SessionAdded:
		return f.SessionID
	case *frames.SessionUpdated:
		return f.SessionID
	case *frames.SessionRemoved:
		return f.SessionID
	case *frames.SessionStatus:
		return f.SessionID
	case *frames.AgentError:
		return f.SessionID
	case *frames.SessionSubscribed:
		return f.SessionID
	case *frames.SessionBase:
		return f.SessionID
	case *frames.SessionEvent:
		return f.SessionID
	case *frames.SessionLive:
		return f.SessionID
	case *frames.SessionLagging:
		return f.SessionID
	case *frames.SessionUnsubscribed:
		return f.SessionID
	case *frames.ApprovalRequested:
		return f.SessionID
	case *frames.ApprovalResolved:
		return f.SessionID
	case *frames.QuestionRequested:
		return f.SessionID
	case *frames.QuestionResolved:
		return f.SessionID
	}
	return ""
}
