package editor

import (
	"context"
	"fmt"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
)

// opening is a session that the editor waits for: all that is stored of it and of
// those below must have come.
type opening struct {
	waits []waiter
	// listed are the sessions to wait for, nil until the host told; seen those that
	// came meanwhile.
	listed map[frames.SessionID]bool
	seen   map[frames.SessionID]bool
}

// waiter is a request of the editor that opens a session.
type waiter struct {
	in   acprpc.Inbound
	then func(*thread)
}

// attach follows a session with those below it, and calls then when it is here.
func (b *bridge) attach(in acprpc.Inbound, sid frames.SessionID, then func(*thread)) {
	w := waiter{in, then}
	if waits, ok := b.leaving[sid]; ok {
		b.leaving[sid] = append(waits, func() { b.attach(in, sid, then) })
		return
	}
	th := b.threads[sid]
	switch {
	case th == nil:
	case th.opening != nil:
		th.opening.waits = append(th.opening.waits, w)
		return
	case !th.live:
		th.opening = &opening{waits: []waiter{w}, listed: map[frames.SessionID]bool{sid: true}, seen: map[frames.SessionID]bool{}}
		return
	default:
		b.open(th, w)
		return
	}
	th = b.newThread(sid, nil)
	th.opening = &opening{waits: []waiter{w}, seen: map[frames.SessionID]bool{}}
	b.beside(func(ctx context.Context) func() {
		entry := rpc.SubscribeSession{SessionID: sid, Since: new(frames.Seq), Tree: true}
		got, err := b.host.Subscribe(ctx, rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{entry}})
		if err == nil {
			err = entryError(got)
		}
		return func() { b.subscribed(th, got, err) }
	})
}

// entryError is what was wrong with the one session that was asked for.
func entryError(got rpc.SubscribeResult) error {
	for _, s := range got {
		if s.Error != nil {
			return fmt.Errorf("session %s: %s", s.SessionID, s.Error.Message)
		}
	}
	return nil
}

// subscribed takes the host's answer for a session that is being opened.
func (b *bridge) subscribed(th *thread, got rpc.SubscribeResult, err error) {
	if th.opening == nil {
		return // closed meanwhile
	}
	if err != nil {
		b.drop(th, err)
		return
	}
	th.opening.listed = map[frames.SessionID]bool{}
	for _, s := range got {
		th.opening.listed[s.SessionID] = true
	}
	b.complete(th)
}

// noteLive notes that all that is stored of a session has come.
func (b *bridge) noteLive(f frames.Frame) {
	var sid frames.SessionID
	switch f := f.(type) {
	case *frames.SessionLive:
		if th := b.threads[f.SessionID]; f.More || th != nil && !th.begun {
			return
		}
		sid = f.SessionID
	case *frames.SessionUnsubscribed:
		if f.Reason == byRequest {
			return
		}
		sid = f.SessionID
	default:
		return
	}
	for _, th := range b.threads {
		if th.opening != nil {
			th.opening.seen[sid] = true
			b.complete(th)
		}
	}
}

// complete opens a session when everything is here.
func (b *bridge) complete(th *thread) {
	o := th.opening
	if o == nil || o.listed == nil {
		return
	}
	for sid := range o.listed {
		if !o.seen[sid] {
			return
		}
	}
	th.opening = nil
	for _, w := range o.waits {
		b.open(th, w)
	}
}

// open gives a session to the editor. What was asked there before is asked again.
func (b *bridge) open(th *thread, w waiter) {
	th.own = true
	for _, other := range b.threads {
		if other.below(th) {
			other.withdrawCards()
		}
	}
	w.then(th)
	for _, other := range th.family() {
		other.told = true
		other.askAll(other.live)
	}
}

// added takes a session that was born in a tree. Forks are conversations of their
// own.
func (b *bridge) added(f *frames.SessionAdded) {
	parent := b.threads[f.Session.ParentSessionID]
	if parent == nil || f.Session.Origin != frames.OriginSubagent {
		return
	}
	th := b.threads[f.SessionID]
	if th == nil {
		th = b.newThread(f.SessionID, parent)
	}
	th.title, th.agent, th.cwd = f.Session.Title, f.Session.Agent, f.Session.Cwd
	if parent.told && !th.told {
		th.announce()
		th.told = true
	}
}
