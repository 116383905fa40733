package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// usage is a model's report of what it used.
func usage(tokens int64, cost string) frames.Payload {
	return frames.ModelEnd{Attempt: 1, Model: "m", Status: "ok", Usage: &frames.Usage{InputTokens: tokens, Cost: cost}}
}

// refused wants err to be that of a budget that is used up.
func refused(err error) error {
	if !errors.Is(err, agent.ErrBudget) {
		return errors.Join(errors.New("want ErrBudget"), err)
	}
	return nil
}

// nextSteps tries each kind of further step, which has to be refused.
var nextSteps = map[string]func(ctx context.Context, t agent.Turn) error{
	"step": func(ctx context.Context, t agent.Turn) error { return refused(t.Emit(ctx, frames.StepStart{Step: 2})) },
	"model": func(ctx context.Context, t agent.Turn) error {
		return refused(t.Emit(ctx, frames.TodoWrite{}, frames.ModelStart{}))
	},
	"raw": func(ctx context.Context, t agent.Turn) error {
		return refused(t.Emit(ctx, agent.Raw{Type: frames.StepStartEvent, Data: []byte(`{"step":2}`)}))
	},
	"spawn": func(ctx context.Context, t agent.Turn) error {
		_, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
		return refused(err)
	},
	"task": func(ctx context.Context, t agent.Turn) error {
		_, err := t.Task(ctx, "command", "make")
		return refused(err)
	},
	"tool": func(ctx context.Context, t agent.Turn) error {
		d, err := t.Ask(ctx, ask("c1", `{}`))
		if err != nil || d.Outcome != frames.Rejected || d.Cause != frames.CausePolicy || !strings.Contains(d.Feedback, "budget") {
			return errors.Join(errors.New("want a rejection by policy"), err)
		}
		return nil
	},
}

// Once the budget is used up the next step of the turn is refused, whatever kind
// of step it is: the turn ends so, its context says why, and raising the budget
// lets the session go on.
func TestUsedUpBudgetRefusesTheNextStep(t *testing.T) {
	for name, next := range nextSteps {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
					for i, u := range []frames.Payload{usage(49, ""), usage(1, "")} {
						if err := t.Emit(ctx, frames.StepStart{Step: i}, frames.ModelStart{Attempt: 1}); err != nil {
							r.t.Errorf("step %d within the budget: %v", i, err)
						}
						if err := t.Emit(ctx, u, frames.StepEnd{Step: i}); err != nil {
							r.t.Error(err)
						}
					}
					if err := ctx.Err(); err != nil {
						r.t.Errorf("%v before another step was tried", err)
					}
					if err := next(ctx, t); err != nil {
						r.t.Error(err)
					}
					if err := context.Cause(ctx); !errors.Is(err, agent.ErrBudget) {
						r.t.Errorf("the cause is %v, want ErrBudget", err)
					}
					return agent.Result{}, t.Emit(context.WithoutCancel(ctx), frames.TodoWrite{}) // its last words
				})
				sid := r.create(session.CreateArgs{
					Budget: &frames.Budget{Tokens: 50},
					Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}}},
				})
				r.prompt(sid, "go")
				r.wait()
				if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnBudgetExceeded || !strings.Contains(end.Message, "tokens") {
					t.Errorf("the turn ended %+v, want budget-exceeded of tokens", end)
				}
				if n := len(every[frames.TodoWrite](r, sid)); n != 1 {
					t.Errorf("%d last words, want 1, and none of what was refused", n)
				}
				if _, err := r.tryPrompt(sid, "hello"); !errors.Is(err, agent.ErrBudget) {
					t.Errorf("prompt: %v, want the budget", err)
				}
				r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Tokens: 51}})
				r.prompt(sid, "hello")
				r.wait()
				if end := last[frames.TurnEnd](r, sid); end.Reason != frames.TurnCompleted {
					t.Errorf("after it was raised: %+v", end)
				}
			})
		})
	}
}

// A turn that begins no further step ends by itself; one that goes on to use what
// is used up is ended.
func TestFurtherUseEndsTheTurn(t *testing.T) {
	for _, c := range []struct {
		more frames.Payload
		want frames.TurnEndReason
	}{
		{frames.StepEnd{Usage: &frames.Usage{InputTokens: 60}}, frames.TurnCompleted}, // the same use, told again
		{frames.UsageUpdated{Usage: frames.Usage{InputTokens: 60, Cost: "3"}}, frames.TurnCompleted},
		{usage(1, ""), frames.TurnBudgetExceeded},
		{frames.UsageUpdated{Usage: frames.Usage{InputTokens: 61}}, frames.TurnBudgetExceeded},
	} {
		bubble(t, func(r *rig) {
			r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
				if err := errors.Join(t.Emit(ctx, usage(60, "")), t.Emit(ctx, c.more)); err != nil {
					r.t.Error(err)
				}
				return agent.Result{}, pause(ctx, second)
			})
			sid := r.create(session.CreateArgs{Budget: &frames.Budget{Tokens: 50}})
			r.prompt(sid, "go")
			_ = pause(r.t.Context(), 2*second)
			if end := last[frames.TurnEnd](r, sid); end.Reason != c.want {
				t.Errorf("after %+v: %+v, want %s", c.more, end, c.want)
			}
		})
	}
}

// What a turn used is the largest account of it, not their sum, and it is the
// same when the host crashes in the middle of the turn or restarts after it.
func TestUseIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		say  []frames.Payload
		end  frames.Usage
		used int64
	}{
		"all the same": {[]frames.Payload{
			frames.ModelEnd{Usage: &frames.Usage{InputTokens: 30, OutputTokens: 10}},
			frames.StepEnd{Usage: &frames.Usage{InputTokens: 40}},
			frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text("x")}, Blocks: []int{0}, Usage: &frames.Usage{OutputTokens: 40}},
			frames.UsageUpdated{Usage: frames.Usage{InputTokens: 40}},
		}, frames.Usage{}, 40},
		"two steps":             {[]frames.Payload{frames.StepEnd{Usage: &frames.Usage{InputTokens: 20}}, frames.StepEnd{Usage: &frames.Usage{InputTokens: 25}}}, frames.Usage{}, 45},
		"an account":            {[]frames.Payload{frames.UsageUpdated{Usage: frames.Usage{InputTokens: 20}}, frames.UsageUpdated{Usage: frames.Usage{InputTokens: 33}}}, frames.Usage{}, 33},
		"an account begun anew": {[]frames.Payload{frames.UsageUpdated{Usage: frames.Usage{InputTokens: 20}}, frames.UsageUpdated{Usage: frames.Usage{InputTokens: 13}}}, frames.Usage{}, 33},
		"nonsense":              {[]frames.Payload{frames.StepEnd{Usage: &frames.Usage{InputTokens: -5, Cost: "1e9"}}, usage(1, "NaN")}, frames.Usage{}, 1},
	} {
		for _, how := range []string{"crash in the turn", "restart after it"} {
			t.Run(name+", "+how, func(t *testing.T) {
				bubble(t, func(r *rig) {
					r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
						err := t.Emit(ctx, c.say...)
						if how == "crash in the turn" {
							<-ctx.Done()
						}
						return agent.Result{Usage: &c.end}, err
					})
					sid := r.create(session.CreateArgs{})
					r.prompt(sid, "go")
					r.wait()
					check := func(when string) {
						for _, limit := range []int64{c.used, c.used + 1} {
							r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Tokens: limit}})
							_, err := r.tryPrompt(sid, "context")
							if fits := limit > c.used; (err == nil) != fits {
								t.Errorf("%s, with a budget of %d: %v; want that %d were used", when, limit, err, c.used)
							}
							r.wait()
						}
					}
					if how == "restart after it" {
						check("at once")
						r.restart()
					} else {
						r.crash()
					}
					check("after the start")
				})
			})
		}
	}
}

// What an agent tells of its account between turns counts as far as the turns did
// not tell it.
func TestAccountBetweenTurnsCounts(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spends(frames.Usage{InputTokens: 30}))
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Tokens: 41}})
		r.prompt(sid, "go")
		_ = pause(r.t.Context(), 2*second)
		say := func(n int64) {
			if err := r.agent.last.Background.Emit(r.t.Context(), frames.UsageUpdated{Usage: frames.Usage{InputTokens: n}}); err != nil {
				t.Error(err)
			}
		}
		say(30)
		say(40)
		r.restart()
		r.prompt(sid, "hello")
		r.wait()
		say(41)
		r.restart()
		if _, err := r.tryPrompt(sid, "hello"); !errors.Is(err, agent.ErrBudget) {
			t.Errorf("prompt: %v, want the budget used up by 41", err)
		}
	})
}

// A tree cannot use more than the budget of its root: what children use counts
// above, each of their turns is one, and they are stopped too. After a restart it
// is the same.
func TestChildrenUseTheirAncestorsBudgets(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("mid"))
		r.agent.on("mid", spawns("leaf"))
		var inLeaf error
		r.agent.on("leaf", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			if err := t.Emit(ctx, usage(10, "0.5")); err != nil {
				return agent.Result{}, err
			}
			inLeaf = t.Emit(ctx, frames.StepStart{})
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Cost: "0.5"}})
		r.prompt(sid, "go")
		r.wait()
		mid := r.children(sid)[0]
		leaf := r.children(mid)[0]
		if e, ok := errors.AsType[*session.BudgetError](inLeaf); !ok || e.Session != sid || e.What != "cost" {
			t.Errorf("the grandchild's step: %v, want the root's budget of cost", inLeaf)
		}
		if end := last[frames.TurnEnd](r, leaf); end.Reason != frames.TurnBudgetExceeded {
			t.Errorf("the grandchild ended %+v", end)
		}
		if c := last[frames.AgentCompleted](r, mid); c.Status != "budget-exceeded" {
			t.Errorf("its parent was told %+v", c)
		}
		for range 2 {
			for _, s := range []frames.SessionID{sid, mid, leaf} {
				if _, err := r.tryPrompt(s, "hello"); !errors.Is(err, agent.ErrBudget) {
					t.Errorf("prompt of %s: %v, want the budget", s, err)
				}
			}
			if err := r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir, Parent: mid}, nil); !errors.Is(err, agent.ErrBudget) {
				t.Errorf("create below: %v, want the budget", err)
			}
			r.restart()
		}
		r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Turns: 4}})
		r.prompt(leaf, "hello") // the tree's fourth turn
		r.wait()
		if _, err := r.tryPrompt(sid, "hello"); !errors.Is(err, agent.ErrBudget) {
			t.Errorf("the fifth turn of the tree: %v, want the budget of turns", err)
		}
	})
}

// What descendants used counts for budgets above after they are deleted, and after a
// restart too: once, however they are deleted.
func TestDeletedChildrenHaveUsedTheBudget(t *testing.T) {
	for _, tree := range []bool{true, false} {
		bubble(t, func(r *rig) {
			r.agent.on("go", spawns("mid"))
			r.agent.on("mid", spawns("leaf"))
			r.agent.on("leaf", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
				return agent.Result{}, t.Emit(ctx, usage(10, "0.5"))
			})
			sid := r.create(session.CreateArgs{})
			r.prompt(sid, "go")
			r.wait()
			mid := r.children(sid)[0]
			leaf := r.children(mid)[0]
			if !tree {
				if err := r.m.Delete(r.t.Context(), nil, leaf, false, nil, nil); err != nil {
					t.Fatal(err)
				}
				r.restart()
			}
			if err := r.m.Delete(r.t.Context(), nil, mid, tree, nil, nil); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, b := range []frames.Budget{{Tokens: 10}, {Cost: "0.5"}, {Turns: 3}} {
					r.configure(session.ConfigureArgs{Session: sid, Budget: &b})
					if _, err := r.tryPrompt(sid, "hello"); !errors.Is(err, agent.ErrBudget) {
						t.Errorf("tree %v: prompt with the budget %+v: %v, want it used up", tree, b, err)
					}
				}
				r.restart()
			}
			r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Tokens: 11, Cost: "0.6", Turns: 4}})
			r.prompt(sid, "hello")
			r.wait()
		})
	}
}

// A turn that overdraws takes with it what it spawned, and ends after that.
func TestOverdrawnTurnEndsItsChildren(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			if _, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}}); err != nil {
				return agent.Result{}, err
			}
			_ = pause(ctx, second)
			return agent.Result{}, errors.Join(t.Emit(ctx, usage(50, "")), t.Emit(ctx, frames.StepStart{}))
		})
		var kid agent.Decision
		r.agent.on("kid", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			kid, _ = t.Ask(ctx, ask("c1", `{}`))
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Tokens: 50}})
		r.prompt(sid, "go")
		_ = pause(r.t.Context(), 2*second)
		if end := last[frames.TurnEnd](r, r.children(sid)[0]); end.Reason != frames.TurnBudgetExceeded || kid.Outcome != frames.Cancelled || kid.Cause != frames.CauseCascade {
			t.Errorf("the child ended %+v, its call %+v; want budget-exceeded, cancelled by cascade", end, kid)
		}
		r.wantTypes(sid, "turn/start", "user/message", "agent/spawned", "model/end", "agent/completed", "turn/end")
	})
}

// A budget that only warns says so once for each limit, in the log of the session
// that has it, whoever used it up, and stops nothing; a new budget warns anew.
func TestWarningIsSaidOncePerLimit(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", spawns("kid", "kid"))
		r.agent.on("kid", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 3 {
				if err := errors.Join(t.Emit(ctx, usage(10, "0.1")), t.Emit(ctx, frames.StepStart{})); err != nil {
					r.t.Error(err)
				}
			}
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Tokens: 20, Turns: 3, Cost: "9", Action: "warn"}})
		said := func() []string {
			var out []string
			for _, e := range every[frames.ErrorReported](r, sid) {
				if e.Code != "budget-exceeded" || e.Retryable {
					t.Errorf("error %+v", e)
				}
				out = append(out, strings.Fields(e.Message)[3])
			}
			return out
		}
		r.prompt(sid, "go")
		r.wait()
		if got := said(); !slices.Equal(got, []string{"tokens"}) {
			t.Errorf("three turns warned of %v, want tokens", got)
		}
		r.restart()
		r.prompt(sid, "go")
		r.wait()
		if got := said(); !slices.Equal(got, []string{"tokens", "turns"}) {
			t.Errorf("six turns warned of %v, want tokens and turns", got)
		}
		r.configure(session.ConfigureArgs{Session: sid, Budget: &frames.Budget{Tokens: 130, Action: "warn"}})
		r.prompt(sid, "go")
		r.wait()
		if got := said(); !slices.Equal(got, []string{"tokens", "turns", "tokens"}) {
			t.Errorf("after a new budget it warned of %v, want tokens once more", got)
		}
		for _, end := range every[frames.TurnEnd](r, sid) {
			if end.Reason != frames.TurnCompleted {
				t.Errorf("a turn ended %+v, want completed", end)
			}
		}
	})
}

// A warning that could not be stored is said at the next use.
func TestWarningIsNotLost(t *testing.T) {
	bubble(t, func(r *rig) {
		kid := ""
		r.agent.on("kid", spends(frames.Usage{InputTokens: 30}))
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Tokens: 20, Action: "warn"}})
		low := r.create(session.CreateArgs{Parent: sid})
		kid = string(low)
		r.disk.set(func(d *disk) {
			d.before = func(evs []store.Event) {
				if evs[0].Type == string(frames.ErrorReportedEvent) {
					r.disk.set(func(d *disk) { d.lost, d.before = store.ErrFull, nil })
				}
			}
		})
		r.prompt(frames.SessionID(kid), "kid")
		_ = pause(r.t.Context(), 2*second)
		if n := len(every[frames.ErrorReported](r, sid)); n != 0 {
			t.Fatalf("%d warnings are stored, want that it failed", n)
		}
		r.restart()
		r.prompt(low, "kid")
		_ = pause(r.t.Context(), 2*second)
		if n := len(every[frames.ErrorReported](r, sid)); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	})
}

// A budget that makes no sense is refused: none limits less than it says.
func TestOddBudgetsAreRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.create(session.CreateArgs{})
		for _, b := range []frames.Budget{
			{Tokens: -1}, {Turns: -1}, {Cost: "-1"}, {Cost: "1e3"}, {Cost: "1/3"}, {Cost: "."}, {Cost: "1.2.3"}, {Action: "stop"},
		} {
			for what, err := range map[string]error{
				"create":    r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir, Budget: &b}, nil),
				"configure": r.m.Configure(r.t.Context(), session.ConfigureArgs{Session: sid, Budget: &b}, nil),
			} {
				if _, ok := errors.AsType[*session.ParamError](err); !ok {
					t.Errorf("%s with %+v: %v, want a ParamError", what, b, err)
				}
			}
		}
	})
}

// A steer begins no turn: the last turn of a budget can be steered, though no
// other prompt is taken.
func TestLastTurnCanBeSteered(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		r.agent.steer = func(context.Context, agent.Prompt) error { return nil }
		sid := r.create(session.CreateArgs{Budget: &frames.Budget{Turns: 1}})
		r.prompt(sid, "go")
		r.wait()
		r.prompt(sid, "left", mode(frames.ModeSteer))
		r.wait()
		if m := last[frames.SteeringMessage](r, sid); m.Content[0].Text != "left" {
			t.Errorf("the agent took %+v", m)
		}
		if _, err := r.tryPrompt(sid, "another"); !errors.Is(err, agent.ErrBudget) {
			t.Errorf("prompt: %v, want the budget of turns", err)
		}
	})
}
