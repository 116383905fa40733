package mux

import (
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// The open turn is not sent in a pass that began before it was as it is now: a
// response that was queued in between has to leave first.
func TestOpenTurnWaitsForWhatWasQueuedBeforeIt(t *testing.T) {
	top := &topic{sid: "s", overhead: len(frames.AppendSessionEvent(nil, "s", nil)), subs: map[*Conn]*cursor{}}
	top.open(64 << 10)
	cur := &cursor{t: top, armed: -1}
	cur.noted = top.note() // the pass begins, and takes the control queue
	top.mu.Lock()
	top.publish(&Update{Events: []frames.Encoded{{Class: frames.ClassText, Type: frames.AssistantDeltaEvent, Data: []byte(`{}`)}}})
	top.mu.Unlock()
	if _, s := cur.advance(nil); s != stepWait {
		t.Errorf("step %d in the pass that began before the event, want %d (wait)", s, stepWait)
	}
	cur.noted = top.note() // the next pass
	if _, s := cur.advance(nil); s != stepLive {
		t.Errorf("step %d in the next pass, want %d (the open turn)", s, stepLive)
	}
}
