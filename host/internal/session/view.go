package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// Bounds of the folds that are kept: of one, and of all, in bytes of JSON.
const (
	maxView  = 8 << 20
	maxViews = 32 << 20
	// maxRefolds bounds how often a fold is begun anew because of trims.
	maxRefolds = 4
)

// views keeps the folds that were asked for last, so that asking again reads only
// what happened since.
type views struct {
	mu    sync.Mutex
	kept  []viewed // guarded by mu; used least recently first
	bytes int      // guarded by mu
}

// viewed is a fold, and its JSON. Whoever has taken it out may go on with it.
type viewed struct {
	sid   frames.SessionID
	epoch frames.Epoch
	view  *frames.View
	json  json.RawMessage
}

// take takes out the fold of a session; the zero value if there is none.
func (vs *views) take(sid frames.SessionID, epoch frames.Epoch) viewed {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	i := slices.IndexFunc(vs.kept, func(v viewed) bool { return v.sid == sid })
	if i < 0 {
		return viewed{}
	}
	v := vs.kept[i]
	vs.kept = slices.Delete(vs.kept, i, i+1)
	vs.bytes -= len(v.json)
	if v.epoch != epoch {
		return viewed{}
	}
	return v
}

// put keeps a fold. The oldest ones make room for it.
func (vs *views) put(v viewed) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if len(v.json) > maxView || slices.ContainsFunc(vs.kept, func(o viewed) bool { return o.sid == v.sid }) {
		return
	}
	vs.kept = append(vs.kept, v)
	vs.bytes += len(v.json)
	n := 0
	for ; vs.bytes > maxViews; n++ {
		vs.bytes -= len(vs.kept[n].json)
	}
	vs.kept = slices.Delete(vs.kept, 0, n)
}

// View returns the fold of the session's durable events as JSON, and the seq up
// to which it goes, which clients were told of. It reads the log from where the fold was last asked for, or
// from what stands for the trimmed part of it.
func (m *Manager) View(ctx context.Context, sid frames.SessionID) (json.RawMessage, frames.Seq, error) {
	s, _, err := m.span(sid)
	if err != nil {
		return nil, 0, err
	}
	v := m.views.take(sid, s.Epoch)
	if v.view != nil && v.view.Seq == s.Head {
		m.views.put(v)
		return v.json, v.view.Seq, nil
	}
	v.sid, v.epoch = sid, s.Epoch
	if err := m.foldOn(ctx, &v, s.Head); err != nil {
		return nil, 0, readError(err)
	}
	if v.json, err = json.Marshal(v.view); err != nil {
		return nil, 0, fmt.Errorf("session %s: its view: %w", sid, err)
	}
	seq := v.view.Seq
	m.views.put(v)
	return v.json, seq, nil
}

// foldOn brings a fold up to a head. Where what comes next was trimmed, it begins
// with the base: at first, and whenever a trim comes in between.
func (m *Manager) foldOn(ctx context.Context, v *viewed, head frames.Seq) (err error) {
	if v.view == nil {
		v.view = frames.NewView()
	}
	for range maxRefolds {
		if err = m.foldTo(ctx, v.sid, v.view, head); !errors.Is(err, store.ErrTrimmed) {
			return err
		}
		if v.view, _, err = m.base(ctx, v.sid); err != nil {
			return err
		}
	}
	return err
}
