//go:build realagents && linux

package realagents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// watcher is a client that follows sessions and remembers what it was told.
type watcher struct {
	*client.Client

	name string
	wg   sync.WaitGroup

	mu        sync.Mutex // guards what follows
	changed   chan struct{}
	folder    client.Folder
	deltas    map[frames.SessionID]int
	approvals map[frames.RequestID]*frames.ApprovalRequested
	questions map[frames.RequestID]*frames.QuestionRequested
	resolved  map[frames.RequestID]*frames.ApprovalResolved
	below     map[frames.SessionID][]frames.SessionID // by root: descendants
	failures  []*frames.AgentError
	err       error
}

// watch connects a client.
func watch(ctx context.Context, name, url, token string) (*watcher, error) {
	c, err := client.Dial(ctx, client.Options{URL: url, Token: token, Label: name, MaxBackoff: time.Second})
	if err != nil {
		return nil, err
	}
	w := &watcher{
		Client: c, name: name, changed: make(chan struct{}), deltas: map[frames.SessionID]int{},
		approvals: map[frames.RequestID]*frames.ApprovalRequested{},
		questions: map[frames.RequestID]*frames.QuestionRequested{},
		resolved:  map[frames.RequestID]*frames.ApprovalResolved{},
		below:     map[frames.SessionID][]frames.SessionID{},
	}
	w.wg.Go(func() {
		for f, err := range c.Frames(context.Background()) {
			w.take(f, err)
		}
	})
	return w, nil
}

func (w *watcher) close() {
	_ = w.Client.Close()
	w.wg.Wait()
}

// take folds and notes a frame.
func (w *watcher) take(f frames.Frame, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		close(w.changed)
		w.changed = make(chan struct{})
	}()
	if err == nil {
		_, err = w.folder.Apply(f)
	}
	if err != nil && !errors.Is(err, client.ErrClosed) {
		w.err = errors.Join(w.err, fmt.Errorf("%s: %w", w.name, err))
		return
	}
	switch f := f.(type) {
	case *frames.SessionEvent:
		var e struct{ Type frames.EventType }
		if json.Unmarshal(f.Event, &e) == nil && e.Type == frames.AssistantDeltaEvent {
			w.deltas[f.SessionID]++
		}
	case *frames.SessionSubscribed: // what still waits is repeated
		maps.DeleteFunc(w.approvals, func(_ frames.RequestID, a *frames.ApprovalRequested) bool { return a.SessionID == f.SessionID })
		maps.DeleteFunc(w.questions, func(_ frames.RequestID, q *frames.QuestionRequested) bool { return q.SessionID == f.SessionID })
	case *frames.SessionAdded:
		root := f.Session.RootSessionID
		if root != f.SessionID && !slices.Contains(w.below[root], f.SessionID) {
			w.below[root] = append(w.below[root], f.SessionID)
		}
	case *frames.ApprovalRequested:
		w.approvals[f.ID] = f
	case *frames.ApprovalResolved:
		delete(w.approvals, f.ID)
		w.resolved[f.ID] = f
	case *frames.QuestionRequested:
		w.questions[f.ID] = f
	case *frames.QuestionResolved:
		delete(w.questions, f.ID)
	case *frames.AgentError:
		w.failures = append(w.failures, f)
	}
}

// follow subscribes to a session and its descendants from their start.
func (w *watcher) follow(ctx context.Context, sid frames.SessionID) error {
	_, err := w.Subscribe(ctx, rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: sid, Since: new(frames.Seq), Tree: true}}})
	return err
}

// until waits until done, which is called under the watcher's lock, says so.
func (w *watcher) until(ctx context.Context, what string, done func() bool) error {
	for {
		w.mu.Lock()
		ok, err, changed := done(), w.err, w.changed
		w.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s did not see %s: %w", w.name, what, context.Cause(ctx))
		}
	}
}

// turn is a turn of a session as the watcher sees it. It is called under the lock.
func (w *watcher) turn(sid frames.SessionID, id frames.TurnID) *frames.Turn {
	v := w.folder.View(sid)
	if v == nil {
		return nil
	}
	for i, t := range v.Turns {
		if t.TurnID == id {
			return &v.Turns[i]
		}
	}
	return nil
}

// durable is the JSON of what a session folds to, and the view itself.
func (w *watcher) durable(sid frames.SessionID) ([]byte, *frames.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.folder.View(sid)
	if v == nil {
		return nil, nil, fmt.Errorf("%s has no view of session %s", w.name, sid)
	}
	d := v.Durable()
	b, err := json.Marshal(d)
	return b, d, err
}

// equal reports how two views differ.
func equal(a, b []byte) error {
	if bytes.Equal(a, b) {
		return nil
	}
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(0, at-80)
	return fmt.Errorf("views differ at byte %d: …%s… and …%s…", at, a[from:min(len(a), at+80)], b[from:min(len(b), at+80)])
}
