package pending_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// recorder is a session's disk and frames: it notes what was decided.
type recorder struct {
	mu      sync.Mutex
	decided []pending.Settlement
	before  func(ctx context.Context, s pending.Settlement) error // the disk
}

func (rec *recorder) Decided(ctx context.Context, r pending.Request, s pending.Settlement, placed func()) error {
	if !s.Outcome.Allows() {
		placed()
	}
	var err error
	if rec.before != nil {
		err = rec.before(ctx, s)
	}
	if s.Outcome.Allows() {
		if err != nil {
			return err
		}
		placed()
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.decided = append(rec.decided, s)
	return err
}

// all returns what was published.
func (rec *recorder) all() []pending.Settlement {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return append([]pending.Settlement(nil), rec.decided...)
}

func opened(context.Context) error { return nil }

func input() *pending.Approval {
	raw := []byte(`{"command":"ls -l"}`)
	canonical, hash, err := frames.InputHash(raw)
	if err != nil {
		panic(err)
	}
	return &pending.Approval{
		Tool: frames.Tool{Name: "shell"}, Input: raw, Canonical: canonical, Hash: hash,
		Options: []frames.Outcome{frames.AllowedOnce, frames.AllowedAlways, frames.Rejected},
		Agent:   "helper", Cwd: "/project",
	}
}

func approval(id frames.RequestID) pending.Request {
	now := time.Now()
	return pending.Request{
		ID: id, Session: "s1", Root: "s1", Turn: "t1", Call: "c1", Kind: pending.KindApproval,
		Approval: input(), AskedAt: now, ExpiresAt: now.Add(5 * time.Minute),
	}
}

// result is what Ask returned, and when.
type result struct {
	pending.Settlement
	err error
	at  time.Time
}

// ask asks in its own goroutine.
func ask(ctx context.Context, t *pending.Table, r pending.Request, rec pending.Recorder) <-chan result {
	out := make(chan result, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := t.Ask(ctx, r, rec, opened)
		out <- result{s, err, time.Now()}
	})
	return out
}

// An unanswered approval is a rejection, exactly at its deadline, with nobody
// connected.
func TestAskFailsClosedAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, rec := pending.New(pending.Config{}), &recorder{}
		r := approval("r1")
		got := <-ask(t.Context(), tab, r, rec)
		if got.err != nil || got.Outcome != frames.Rejected || got.Cause != frames.CauseTimeout {
			t.Errorf("Ask = %v, %v; want rejected/timeout", got.Settlement, got.err)
		}
		if !got.at.Equal(r.ExpiresAt) {
			t.Errorf("settled at %v, want exactly %v", got.at, r.ExpiresAt)
		}
	})
}
