package session_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// spends is a turn that takes a second and uses what u says.
func spends(u frames.Usage) turnFunc {
	return func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
		return agent.Result{Usage: &u}, pause(ctx, second)
	}
}

// A prompt that waits while the budget is used up is blocked when its turn comes,
// and the log says why; it does not run later. What raises the budget lets prompts
// in again.
func TestQueuedPromptOverBudgetIsBlocked(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spends(frames.Usage{InputTokens: 30, OutputTokens: 30}))
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Tokens: 50}})
		r.prompt(sid, "go")
		q := []session.PromptAnswer{r.prompt(sid, "second"), r.prompt(sid, "third")}
		_ = pause(r.t.Context(), 2*second)
		r.wait()
		if got := said(r, sid); !slices.Equal(got, []string{"go"}) {
			t.Errorf("turns for %v, want go only", got)
		}
		blocked, gone := every[frames.PromptBlocked](r, sid), every[frames.PromptDequeued](r, sid)
		if len(blocked) != 2 || len(gone) != 2 {
			t.Fatalf("%d blocked, %d dequeued; want both prompts", len(blocked), len(gone))
		}
		for i := range q {
			if blocked[i].PromptID != q[i].ID || blocked[i].Reason == "" || gone[i].PromptID != q[i].ID {
				t.Errorf("prompt %d: blocked %+v, dequeued %+v", i, blocked[i], gone[i])
			}
		}
		_, err := r.tryPrompt(sid, "fourth")
		if e, ok := errors.AsType[*session.BudgetError](err); !ok || e.What != "tokens" {
			t.Errorf("prompt: %v, want a BudgetError of tokens", err)
		}
		r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Tokens: 500}})
		r.prompt(sid, "fifth")
		r.restart()
		if got := said(r, sid); !slices.Equal(got, []string{"go", "fifth"}) {
			t.Errorf("turns for %v, want go and fifth", got)
		}
	})
}

// Costs add up exactly, over restarts too, and the prompt that comes when the
// budget is reached is refused; a budget that only warns refuses nothing.
func TestCostBudgetIsExact(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spends(frames.Usage{Cost: "0.1"}))
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Cost: "0.3"}})
		for range 3 {
			r.prompt(sid, "go")
			_ = pause(r.t.Context(), 2*second)
			r.wait()
			r.restart()
		}
		_, err := r.tryPrompt(sid, "go")
		if e, ok := errors.AsType[*session.BudgetError](err); !ok || e.What != "cost" {
			t.Errorf("prompt: %v, want a BudgetError of cost", err)
		}
		r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Cost: "0.3", Action: "warn"}})
		r.prompt(sid, "go")
	})
}

// What an agent says it cost counts only if it is money: nothing else wears out,
// refills or breaks a budget.
func TestAgentsCostsAreMoney(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Cost: "1", Tokens: 100}})
		for _, cost := range []string{"-5", "1e999999", "0x10", "9/1", "NaN", "", "0.99"} {
			r.agent.on("go", spends(frames.Usage{Cost: cost, InputTokens: -1000}))
			r.prompt(sid, "go")
			_ = pause(r.t.Context(), 2*second)
		}
		r.agent.on("go", spends(frames.Usage{Cost: "0.01", InputTokens: 1}))
		r.prompt(sid, "go")
		_ = pause(r.t.Context(), 2*second)
		_, err := r.tryPrompt(sid, "go")
		if e, ok := errors.AsType[*session.BudgetError](err); !ok || e.What != "cost" {
			t.Errorf("prompt: %v, want a BudgetError of cost", err)
		}
	})
}
