package pending_test

import (
	"context"
	"sync"
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
	var err error
	if rec.before != nil {
		err = rec.before(ctx, s)
	}
	if err == nil {
		placed()
	} else if s.Outcome.Allows() {
		return err
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
	return askWith(ctx, t, r, rec, opened)
}

// askWith is ask with an opened callback.
func askWith(ctx context.Context, t *pending.Table, r pending.Request, rec pending.Recorder, opened func(context.Context) error) <-chan result {
	out := make(chan result, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := t.Ask(ctx, r, rec, opened)
		out <- result{s, err, time.Now()}
	})
	return out
}

// question is a request with one question of each form.
func question(id frames.RequestID) pending.Request {
	return pending.Request{
		ID: id, Session: "s1", Root: "s1", Turn: "t1", Kind: pending.KindQuestion, AskedAt: time.Now(),
		Questions: []frames.Question{
			{ID: "color", Question: "Which?", Options: []frames.QuestionOption{{Label: "red"}, {Label: "blue"}}},
			{ID: "many", Question: "Which ones?", MultiSelect: true, AllowText: true, Options: []frames.QuestionOption{{Label: "a"}, {Label: "b"}}},
			{ID: "free", Question: "Why?"},
		},
	}
}

// reply is a client's answer to an approval.
func reply(id frames.RequestID, o frames.Outcome, client frames.ClientID) pending.Answer {
	return pending.Answer{Session: "s1", ID: id, Kind: pending.KindApproval, Outcome: o, By: &frames.By{ClientID: client}}
}

// disk is a grant store in memory that may fail.
type disk struct {
	mu   sync.Mutex
	rows map[frames.GrantID]pending.Grant
	fail error
}

func (d *disk) Load(context.Context) ([]pending.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []pending.Grant
	for _, g := range d.rows {
		out = append(out, g)
	}
	return out, d.fail
}

func (d *disk) Save(_ context.Context, g pending.Grant) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if d.rows == nil {
		d.rows = make(map[frames.GrantID]pending.Grant)
	}
	d.rows[g.ID] = g
	return nil
}

// breakWith makes every later call fail with err; nil mends the disk.
func (d *disk) breakWith(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

func (d *disk) row(id frames.GrantID) pending.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rows[id]
}
