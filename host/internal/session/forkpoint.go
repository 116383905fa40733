package session

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// ForkPointError reports a seq that is not the end of a turn.
type ForkPointError struct {
	At frames.Seq // 0: none was named, and no turn has ended
	// Before and After are the nearest ends of turns; 0 where there is none.
	Before, After frames.Seq
}

func (e *ForkPointError) Error() string {
	switch {
	case e.At == 0 && e.Before == 0 && e.After == 0:
		return "no turn of the session has ended yet: fork it when one has"
	case e.Before == 0 && e.After == 0:
		return fmt.Sprintf("event %d ends no turn, and no other does: fork the session when a turn has ended", e.At)
	case e.After == 0:
		return fmt.Sprintf("event %d ends no turn: the last one that does is %d", e.At, e.Before)
	case e.Before == 0:
		return fmt.Sprintf("event %d ends no turn: the first one that does is %d", e.At, e.After)
	}
	return fmt.Sprintf("event %d ends no turn: the nearest that do are %d and %d", e.At, e.Before, e.After)
}

// ForkExpiredError reports the end of a turn whose events are no longer kept.
type ForkExpiredError struct {
	At, First, Head frames.Seq
	Epoch           frames.Epoch
}

func (e *ForkExpiredError) Error() string {
	return fmt.Sprintf("event %d is no longer kept: fork at the end of a turn from %d on", e.At, e.First)
}

// forkExpired makes the error of a point that was trimmed.
func (m *Manager) forkExpired(sid frames.SessionID, at frames.Seq) error {
	s, first, err := m.span(sid)
	if err != nil {
		return err
	}
	return &ForkExpiredError{At: at, First: first, Head: s.Head, Epoch: s.Epoch}
}

// forkPoint returns the seq of the turn's end that a fork goes on from.
func (m *Manager) forkPoint(ctx context.Context, sid frames.SessionID, at *frames.Seq) (frames.Seq, error) {
	s, first, err := m.span(sid)
	if err != nil {
		return 0, err
	}
	if at == nil {
		end, err := m.turnEndBefore(ctx, sid, s.Head+1, first)
		switch {
		case err != nil || end > 0:
			return end, err
		case first > 1:
			return 0, m.forkExpired(sid, first-1)
		}
		return 0, &ForkPointError{}
	}
	if *at > 0 && *at < first {
		return 0, m.forkExpired(sid, *at)
	}
	p := &ForkPointError{At: *at}
	if *at >= first && *at <= s.Head {
		evs, err := m.page(ctx, sid, *at-1, 1, 1)
		if err != nil {
			return 0, err
		}
		if len(evs) == 1 && evs[0].Type == frames.TurnEndEvent {
			return *at, nil
		}
	}
	if p.Before, err = m.turnEndBefore(ctx, sid, min(*at, s.Head+1), first); err != nil {
		return 0, err
	}
	if p.After, err = m.turnEndAfter(ctx, sid, max(*at, first-1), s.Head); err != nil {
		return 0, err
	}
	return 0, p
}

// lookStep is how many events are read at once in search of a turn's end.
const lookStep = 64

// turnEndBefore returns the last turn's end before end, 0 if there is none.
func (m *Manager) turnEndBefore(ctx context.Context, sid frames.SessionID, end, first frames.Seq) (frames.Seq, error) {
	for end > first {
		from := max(first, end-min(end, lookStep))
		evs, _, err := m.stretch(ctx, sid, from, end)
		if err != nil {
			return 0, err
		}
		for i := len(evs) - 1; i >= 0; i-- {
			if evs[i].Type == frames.TurnEndEvent {
				return evs[i].Seq, nil
			}
		}
		end = from
	}
	return 0, nil
}

// turnEndAfter returns the first turn's end after a seq, 0 if there is none.
func (m *Manager) turnEndAfter(ctx context.Context, sid frames.SessionID, after, head frames.Seq) (frames.Seq, error) {
	for after < head {
		evs, err := m.page(ctx, sid, after, lookStep, pageBytes)
		if err != nil {
			return 0, err
		}
		if len(evs) == 0 {
			break
		}
		for _, e := range evs {
			if e.Type == frames.TurnEndEvent {
				return e.Seq, nil
			}
			after = e.Seq
		}
	}
	return 0, nil
}

// baseOf returns the fold of what was trimmed from a log, nil if nothing was. It
// and the log from its seq on are the whole, also where more is trimmed meanwhile;
// reading on then says so.
func (m *Manager) baseOf(ctx context.Context, sid frames.SessionID) (*frames.View, error) {
	b, err := m.cfg.Store.Get(ctx, store.TableBase, string(sid))
	if err != nil {
		return nil, &StorageError{err}
	}
	if b == nil {
		return nil, nil //nolint:nilnil // nothing was trimmed
	}
	v := frames.NewView()
	if err := json.Unmarshal(b, v); err != nil {
		return nil, &StorageError{fmt.Errorf("%w: the base of session %s: %v", store.ErrCorrupt, sid, err)}
	}
	return v, nil
}
