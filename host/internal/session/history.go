package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// Bounds of one page of history.
const (
	maxPage      = 1000
	maxPageBytes = 512 << 10
	pageBytes    = 256 << 10
)

// ExpiredError reports events that are no longer kept, and what is. It is
// [store.ErrTrimmed].
type ExpiredError struct {
	First, Head frames.Seq
	Epoch       frames.Epoch
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("the events before %d are no longer kept: read on after %d, or take the view for what they add up to", e.First, e.First-1)
}

// Unwrap returns [store.ErrTrimmed].
func (e *ExpiredError) Unwrap() error { return store.ErrTrimmed }

// History returns a page of events: those after a seq, oldest first from there,
// or the last ones before a seq. It reads about as much as it returns. Events after
// a seq of which the next is no longer kept are an [ExpiredError]; those before one
// begin with the oldest that is.
func (m *Manager) History(ctx context.Context, sid frames.SessionID, after, before *frames.Seq, limit, maxBytes int) (Page, error) {
	if after != nil && before != nil {
		return Page{}, &ParamError{"after", "give either after or before"}
	}
	s, first, err := m.span(sid)
	if err != nil {
		return Page{}, err
	}
	p := Page{First: first, Head: s.Head, Events: []frames.Encoded{}}
	limit = min(cmp.Or(max(limit, 0), store.DefaultLimit), maxPage)
	maxBytes = min(cmp.Or(max(maxBytes, 0), pageBytes), maxPageBytes)
	if after == nil {
		end := s.Head + 1
		if before != nil {
			end = min(*before, end)
		}
		return m.pageBefore(ctx, sid, p, end, limit, maxBytes)
	}
	p.Events, err = m.page(ctx, sid, *after, limit, maxBytes)
	if first, ok := m.noticed(sid, err); ok {
		return Page{}, &ExpiredError{first, s.Head, s.Epoch}
	}
	if n := len(p.Events); n > 0 {
		p.More = p.Events[n-1].Seq < p.Head
	}
	return p, err
}

// noticed reports whether err says that a log was trimmed, and where it begins; the
// reader may be the first to know.
func (m *Manager) noticed(sid frames.SessionID, err error) (frames.Seq, bool) {
	e, ok := errors.AsType[*store.TrimmedError](err)
	if !ok {
		return 0, false
	}
	m.trimmed(sid, e.First)
	return e.First, true
}

// span returns the summary of a session and the oldest seq that is kept.
func (m *Manager) span(sid frames.SessionID) (frames.Session, frames.Seq, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.dir.byID[sid]
	if e == nil {
		return frames.Session{}, 0, ErrNoSession
	}
	return e.sum, max(e.first, 1), nil
}

// page reads events after a seq.
func (m *Manager) page(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]frames.Encoded, error) {
	evs, err := m.cfg.Store.Read(ctx, sid, after, limit, maxBytes)
	if err != nil {
		return nil, readError(err)
	}
	out := make([]frames.Encoded, len(evs))
	for i, e := range evs {
		t := frames.EventType(e.Type)
		out[i] = frames.Encoded{Seq: e.Seq, Class: frames.ClassOf(t), Type: t, Data: e.Data}
	}
	return out, nil
}

func readError(err error) error {
	switch {
	case errors.Is(err, store.ErrDeleted):
		return ErrNoSession
	case errors.Is(err, store.ErrTrimmed):
		return fmt.Errorf("session: read the log: %w", err)
	}
	return &StorageError{err}
}

// pageBefore fills a page with the last events before end that fit. It goes back
// in steps that are about as large as what still fits.
func (m *Manager) pageBefore(ctx context.Context, sid frames.SessionID, p Page, end frames.Seq, limit, maxBytes int) (Page, error) {
	size, step := 0, 16
	for end > p.First && len(p.Events) < limit && size < maxBytes {
		step = min(step, limit-len(p.Events), int(end-p.First))
		evs, n, err := m.stretch(ctx, sid, end-frames.Seq(step), end)
		if first, ok := m.noticed(sid, err); ok {
			p.First = first // and step is smaller in the next round
			continue
		}
		if err != nil {
			return p, err
		}
		p.Events, end = append(evs, p.Events...), end-frames.Seq(step)
		size += n
		step = max(1, (maxBytes-size)*len(p.Events)/max(size, 1))
	}
	for size > maxBytes && len(p.Events) > 1 {
		size -= len(p.Events[0].Data)
		p.Events = p.Events[1:]
	}
	p.More = len(p.Events) > 0 && p.Events[0].Seq > p.First
	return p, nil
}

// stretch reads the events from from up to before end, and tells their size.
func (m *Manager) stretch(ctx context.Context, sid frames.SessionID, from, end frames.Seq) (out []frames.Encoded, size int, err error) {
	for from < end {
		evs, err := m.page(ctx, sid, from-1, int(end-from), pageBytes)
		if err != nil {
			return nil, 0, err
		}
		if len(evs) == 0 {
			return nil, 0, &StorageError{fmt.Errorf("%w: session %s has no event %d", store.ErrCorrupt, sid, from)}
		}
		for _, e := range evs {
			size += len(e.Data)
		}
		out, from = append(out, evs...), evs[len(evs)-1].Seq+1
	}
	return out, size, nil
}

// events yields the decoded events after a seq; an error is the last pair.
func (m *Manager) events(ctx context.Context, sid frames.SessionID, after frames.Seq) iter.Seq2[frames.Event, error] {
	return func(yield func(frames.Event, error) bool) {
		for {
			evs, err := m.cfg.Store.Read(ctx, sid, after, 0, 0)
			if err != nil {
				yield(frames.Event{}, err)
				return
			}
			for _, s := range evs {
				after = s.Seq
				e, err := frames.DecodeEvent(s.Data)
				if err != nil {
					err = fmt.Errorf("%w: seq %d: %v", store.ErrCorrupt, s.Seq, err)
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
			if len(evs) == 0 {
				return
			}
		}
	}
}

// past is what an agent reads of its session, from the oldest event that is kept.
func (m *Manager) past(ctx context.Context, sid frames.SessionID, after frames.Seq, limit int) ([]frames.Event, error) {
	limit = min(max(limit, 0), maxPage)
	evs, err := m.cfg.Store.Read(ctx, sid, after, limit, maxPageBytes)
	if first, ok := m.noticed(sid, err); ok {
		evs, err = m.cfg.Store.Read(ctx, sid, first-1, limit, maxPageBytes)
	}
	if err != nil {
		return nil, readError(err)
	}
	out := make([]frames.Event, 0, len(evs))
	for _, s := range evs {
		e, err := frames.DecodeEvent(s.Data)
		if err != nil {
			return nil, fmt.Errorf("history: seq %d: %w", s.Seq, err)
		}
		out = append(out, e)
	}
	return out, nil
}
