package session_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// wild is a turn that does a bit of everything, below depth levels of children.
func wild(r *rig, seed uint64, depth int) turnFunc {
	return func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
		rnd := rand.New(rand.NewPCG(seed, uint64(len(t.ID()))))
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range 4 {
			wg.Go(func() { _ = t.Text(ctx, i, "some words") })
			if err := t.Emit(ctx, frames.ToolCall{CallID: frames.CallID(fmt.Sprint(i)), Name: "sh"}); err != nil {
				return agent.Result{}, err
			}
			wg.Go(func() { _, _ = t.Ask(ctx, ask("c", `{}`)) })
			r.wildOutside(background(ctx), rnd.IntN(6))
			if depth > 0 {
				if k, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text(fmt.Sprintf("wild%d", depth-1))}}); err == nil && rnd.IntN(2) == 0 {
					wg.Go(func() { _, _ = k.Wait(ctx) })
				}
			}
			if err := pause(ctx, time.Duration(rnd.IntN(1000))*time.Millisecond); err != nil {
				return agent.Result{}, err
			}
		}
		if rnd.IntN(4) == 0 {
			panic("boom")
		}
		return agent.Result{}, nil
	}
}

// wildOutside asks outside of turns, for some time.
func (r *rig) wildOutside(bg agent.Background, what int) {
	r.goes(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(what)*time.Second)
		defer cancel()
		switch {
		case what < 2:
			_, _ = bg.Ask(ctx, ask("o", `{}`))
		case what < 4:
			_, _ = bg.Question(ctx, frames.Question{Question: "?"})
		}
	})
}

// Whatever happens at once, every log ends closed: each turn, request, tool call
// and child that began has exactly one end, and what was published is the log.
func TestLogsEndClosedWhateverHappens(t *testing.T) {
	for seed := range uint64(6) {
		bubble(t, func(r *rig) {
			for d := range 3 {
				r.agent.on(fmt.Sprintf("wild%d", d), wild(r, seed, d))
			}
			rnd := rand.New(rand.NewPCG(seed, 1))
			var roots []frames.SessionID
			for range 3 {
				roots = append(roots, r.create(session.CreateArgs{Policy: &frames.Policy{AskTimeoutMs: 2000}}))
			}
			for range 60 {
				r.poke(rnd, roots[rnd.IntN(len(roots))], seed)
				time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			}
			r.disk.fail(nil)
			time.Sleep(time.Minute)
			r.stop()
			all, _, err := r.m.List(session.Filter{Limit: session.MaxList})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				r.wantClosed(s.SessionID, seed)
			}
			r.start()
		})
	}
}

// poke does one thing at random.
func (r *rig) poke(rnd *rand.Rand, sid frames.SessionID, seed uint64) {
	switch rnd.IntN(7) {
	case 0, 1:
		_, _ = r.tryPrompt(sid, "wild2")
	case 2:
		_, _ = r.tryPrompt(sid, "wild1", mode(frames.ModeSteer))
	case 3:
		r.cancel(sid, "", rnd.IntN(3) > 0)
	case 4, 5:
		if as := r.approvals(sid); len(as) > 0 {
			a := as[rnd.IntN(len(as))]
			_ = r.answer(a.SessionID, a.ID, frames.AllowedOnce)
		}
	case 6:
		if seed%3 == 0 {
			r.disk.fail(store.ErrFull)
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			r.disk.fail(nil)
		}
	}
}

// wantClosed checks that whatever began in a log has ended, once.
func (r *rig) wantClosed(sid frames.SessionID, seed uint64) {
	r.t.Helper()
	open := map[string]int{}
	for _, e := range r.log(sid) {
		p, err := e.Payload()
		if err != nil {
			r.t.Fatal(err)
		}
		switch v := p.(type) {
		case *frames.TurnStart:
			open["turn "+string(e.TurnID)]++
		case *frames.TurnEnd:
			open["turn "+string(e.TurnID)]--
		case *frames.ApprovalAsked:
			open["ask "+string(v.ID)]++
		case *frames.ApprovalDecided:
			open["ask "+string(v.ID)]--
		case *frames.ToolCall:
			open["tool "+string(e.TurnID+"/")+string(v.CallID)]++
		case *frames.ToolResult:
			open["tool "+string(e.TurnID+"/")+string(v.CallID)]--
		case *frames.QuestionAsked:
			open["ask "+string(v.ID)]++
		case *frames.QuestionDecided:
			open["ask "+string(v.ID)]--
		case *frames.AgentSpawned:
			open["child "+string(v.ChildSessionID)]++
		case *frames.AgentCompleted:
			open["child "+string(v.ChildSessionID)]--
		}
	}
	for what, n := range open {
		if n != 0 {
			r.t.Errorf("seed %d: log of %s: %s is off by %d", seed, sid, what, n)
		}
	}
	if got, want := r.pub.head(sid), frames.Seq(len(r.log(sid))); got != want {
		r.t.Errorf("seed %d: %s was published up to %d, want %d", seed, sid, got, want)
	}
}

// head returns the last seq that was published.
func (p *publisher) head(sid frames.SessionID) frames.Seq {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(sid).head
}
