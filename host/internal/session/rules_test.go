package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// operator is what adds rules; it notes for whom.
type operator struct {
	mu    sync.Mutex
	adds  frames.Policy
	err   error
	calls []string
}

func (o *operator) set(p frames.Policy, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.adds, o.err = p, err
}

func (o *operator) rules(agent, cwd string) (frames.Policy, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, agent+" "+cwd)
	return o.adds, o.err
}

// operated runs f with a rig whose operator adds rules.
func operated(t *testing.T, f func(r *rig, o *operator)) {
	t.Helper()
	o := &operator{}
	bubble(t, func(r *rig) { f(r, o) }, func(c *session.Config) { c.Rules = o.rules })
}

func rule(tool, decision string) frames.Rule { return frames.Rule{Tool: tool, Decision: decision} }

func rules(rs ...frames.Rule) frames.Policy { return frames.Policy{Rules: rs} }

// governs returns a session's policy as JSON, as its log and its record say.
func (r *rig) governs(sid frames.SessionID) string {
	r.t.Helper()
	v := r.view(sid)
	b, err := json.Marshal(v.Policy)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// decides asks for a call of a tool outside of turns, and returns the outcome, "asked"
// where a person is.
func (r *rig) decides(sid frames.SessionID, tool string) frames.Outcome {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
	defer cancel()
	bg := r.knows(sid).Background
	d, err := bg.Ask(ctx, agent.Approval{Call: "c", Tool: frames.Tool{Name: tool}, Input: json.RawMessage(`{}`)})
	if err != nil {
		r.t.Fatal(err)
	}
	if d.Outcome == frames.Cancelled {
		return "asked"
	}
	return d.Outcome
}

// The operator's rules are added to the client's: nothing of the client's is lost,
// and the stricter one holds.
func TestOperatorsRulesAreAdded(t *testing.T) {
	deny := frames.Policy{Mode: "deny"}
	for _, tt := range []struct {
		name      string
		client    *frames.Policy
		adds      frames.Policy
		want      string
		decisions map[string]frames.Outcome
	}{
		{"nothing", nil, frames.Policy{}, `null`, map[string]frames.Outcome{"a": "asked"}},
		{
			"allow", nil, rules(rule("a", "allow")), `{"rules":[{"tool":"a","decision":"allow"}]}`,
			map[string]frames.Outcome{"a": frames.AllowedOnce, "b": "asked"},
		},
		{
			"the client denies", new(rules(rule("a", "deny"))), rules(rule("*", "allow")),
			`{"rules":[{"tool":"a","decision":"deny"},{"tool":"*","decision":"allow"}]}`,
			map[string]frames.Outcome{"a": frames.Rejected, "b": frames.AllowedOnce},
		},
		{
			"the client allows", new(rules(rule("*", "allow"))), rules(rule("a", "deny"), rule("b", "ask")),
			`{"rules":[{"tool":"*","decision":"allow"},{"tool":"a","decision":"deny"},{"tool":"b","decision":"ask"}]}`,
			map[string]frames.Outcome{"a": frames.Rejected, "b": "asked", "c": frames.AllowedOnce},
		},
		{
			"both", new(rules(rule("a", "allow"))), rules(rule("a", "allow"), rule("b", "allow")),
			`{"rules":[{"tool":"a","decision":"allow"},{"tool":"b","decision":"allow"}]}`, nil,
		},
		{
			"the client's mode is deny", &deny, rules(rule("a", "allow")), `{"mode":"deny","rules":[{"tool":"a","decision":"allow"}]}`,
			map[string]frames.Outcome{"a": frames.AllowedOnce, "b": frames.Rejected},
		},
		{"the operator's mode is deny", nil, deny, `{"mode":"deny"}`, map[string]frames.Outcome{"a": frames.Rejected}},
		{"the operator's mode is ask", &deny, frames.Policy{Mode: "ask"}, `{"mode":"deny"}`, nil},
		{"a longer timeout", nil, frames.Policy{AskTimeoutMs: 900_000}, `null`, nil},
		{"a shorter timeout", nil, frames.Policy{AskTimeoutMs: 9000}, `{"askTimeoutMs":9000}`, nil},
		{"shorter than the client's", &frames.Policy{AskTimeoutMs: 900_000}, frames.Policy{AskTimeoutMs: 400_000}, `{"askTimeoutMs":400000}`, nil},
		{"longer than the client's", &frames.Policy{AskTimeoutMs: 9000}, frames.Policy{AskTimeoutMs: 10_000}, `{"askTimeoutMs":9000}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			operated(t, func(r *rig, o *operator) {
				o.set(tt.adds, nil)
				sid := r.create(session.CreateArgs{Policy: tt.client})
				if got := r.governs(sid); got != tt.want {
					t.Errorf("the policy is %s, want %s", got, tt.want)
				}
				if o.calls[0] != "scripted "+r.dir {
					t.Errorf("asked for %q, want the agent and its directory", o.calls[0])
				}
				for tool, want := range tt.decisions {
					if got := r.decides(sid, tool); got != want {
						t.Errorf("%s: %s, want %s", tool, got, want)
					}
				}
			})
		})
	}
}

// An error of the operator's refuses a create, a spawn and a new policy, with its
// text, and changes nothing; so do rules that are none.
func TestOperatorRefusesSessions(t *testing.T) {
	operated(t, func(r *rig, o *operator) {
		refused := func(what string, err error) {
			t.Helper()
			e, ok := errors.AsType[*session.ParamError](err)
			if !ok || !strings.Contains(e.Error(), "project:3: no") && !strings.Contains(e.Error(), "sometimes") {
				t.Errorf("%s: %v, want the operator's error", what, err)
			}
		}
		sid := r.create(session.CreateArgs{})
		spawned := make(chan error, 1)
		r.agent.on("spawn", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
			spawned <- err
			return agent.Result{}, nil
		})
		for _, bad := range []func(){
			func() { o.set(frames.Policy{}, errors.New("project:3: no")) },
			func() { o.set(frames.Policy{Mode: "sometimes"}, nil) },
		} {
			bad()
			refused("create", r.m.Create(r.t.Context(), session.CreateArgs{Cwd: r.dir}, nil))
			refused("configure", r.m.Configure(r.t.Context(), session.ConfigureArgs{Session: sid, Policy: &frames.Policy{}}, nil))
			r.prompt(sid, "spawn")
			refused("spawn", <-spawned)
			r.wait()
		}
		if all, _, err := r.m.List(session.Filter{}); err != nil || len(all) != 1 {
			t.Errorf("%d sessions, %v; want one", len(all), err)
		}
		if n := len(every[frames.SessionConfigured](r, sid)); n != 0 {
			t.Errorf("configured %d times, want never", n)
		}
		r.configure(session.ConfigureArgs{Session: sid, Title: new("no policy, no question")})
	})
}

// A new policy of the client's takes the operator's rules as they are now; a mode
// that the operator denies settles what is pending.
func TestConfigureTakesTheOperatorsRulesAnew(t *testing.T) {
	operated(t, func(r *rig, o *operator) {
		o.set(rules(rule("a", "deny")), nil)
		sid := r.create(session.CreateArgs{Policy: new(rules(rule("*", "allow")))})
		o.set(frames.Policy{Mode: "deny", Rules: []frames.Rule{rule("b", "deny")}}, nil)
		bg := r.knows(sid).Background
		got := make(chan agent.Answers, 1)
		r.goes(func() { a, _ := bg.Question(r.t.Context(), frames.Question{Question: "?"}); got <- a })
		r.wait()
		r.configure(session.ConfigureArgs{Session: sid, Policy: new(rules(rule("c", "allow")))})
		if a := <-got; a.Cause != frames.CauseModeChange {
			t.Errorf("the question ended %+v, want mode-change", a)
		}
		if got, want := r.governs(sid), `{"mode":"deny","rules":[{"tool":"c","decision":"allow"},{"tool":"b","decision":"deny"}]}`; got != want {
			t.Errorf("the policy is %s, want %s", got, want)
		}
	})
}

// When a session wakes, what the operator denies by now is added and what it allows
// is what it allows now; what restricts stays, and an error leaves all as it is.
func TestWakingSessionsOnlyGetStricter(t *testing.T) {
	operated(t, func(r *rig, o *operator) {
		o.set(frames.Policy{AskTimeoutMs: 60_000, Rules: []frames.Rule{rule("a", "allow"), rule("b", "deny")}}, nil)
		sid := r.create(session.CreateArgs{Policy: new(rules(rule("c", "allow")))})
		fork := sid
		for i, tt := range []struct {
			adds   frames.Policy
			err    error
			want   string
			events int
		}{
			{
				rules(rule("a", "deny")), nil,
				`{"rules":[{"tool":"c","decision":"allow"},{"tool":"a","decision":"deny"},{"tool":"b","decision":"deny"}],"askTimeoutMs":60000}`, 1,
			},
			{
				frames.Policy{},
				errors.New("project:3: no"),
				`{"rules":[{"tool":"c","decision":"allow"},{"tool":"a","decision":"deny"},{"tool":"b","decision":"deny"}],"askTimeoutMs":60000}`, 1,
			},
			{
				rules(rule("b", "deny"), rule("a", "deny")), nil,
				`{"rules":[{"tool":"c","decision":"allow"},{"tool":"a","decision":"deny"},{"tool":"b","decision":"deny"}],"askTimeoutMs":60000}`, 1,
			},
			{
				frames.Policy{Mode: "deny", AskTimeoutMs: 9000, Rules: []frames.Rule{rule("d", "allow")}},
				nil,
				`{"mode":"deny","rules":[{"tool":"c","decision":"allow"},{"tool":"d","decision":"allow"},{"tool":"a","decision":"deny"},{"tool":"b","decision":"deny"}],"askTimeoutMs":9000}`, 2,
			},
		} {
			o.set(tt.adds, tt.err)
			r.prompt(sid, "x")
			r.wait()
			r.restart()
			r.prompt(sid, "x")
			r.wait()
			if got, n := r.governs(sid), len(every[frames.SessionConfigured](r, sid)); got != tt.want || n != tt.events {
				t.Errorf("%d: the policy is %s after %d changes, want %s after %d", i, got, n, tt.want, tt.events)
			}
			if told := framesOf[*frames.AgentError](r.pub, sid); len(told) > 0 != (tt.err != nil) {
				t.Errorf("%d: told %+v", i, told)
			}
			if i == 0 {
				fork = r.fork(session.ForkArgs{Session: sid}).SessionID
			}
		}
		o.set(frames.Policy{}, nil)
		r.prompt(fork, "x")
		r.wait()
		if got, want := r.governs(fork), `{"rules":[{"tool":"c","decision":"allow"},{"tool":"a","decision":"deny"},{"tool":"b","decision":"deny"}],"askTimeoutMs":60000}`; got != want {
			t.Errorf("the fork's policy is %s, want %s", got, want)
		}
	})
}

// Rules that together with those of before are more than a policy holds leave a session
// that wakes as it was, and it wakes.
func TestTooManyRulesDoNotKeepASessionFromWaking(t *testing.T) {
	many := func(prefix string, n, size int) frames.Policy {
		var p frames.Policy
		for i := range n {
			p.Rules = append(p.Rules, rule(prefix+strings.Repeat("<", size)+strconv.Itoa(i), "deny"))
		}
		return p
	}
	for name, c := range map[string]struct{ before, then frames.Policy }{
		"many":  {many("a", 900, 1), many("b", 900, 1)},
		"large": {many("a", 11, 1920), many("b", 11, 1920)},
	} {
		t.Run(name, func(t *testing.T) {
			operated(t, func(r *rig, o *operator) {
				o.set(c.before, nil)
				sid := r.create(session.CreateArgs{})
				was := r.governs(sid)
				o.set(c.then, nil)
				r.restart()
				r.prompt(sid, "x")
				r.wait()
				if len(framesOf[*frames.AgentError](r.pub, sid)) != 1 || r.governs(sid) != was {
					t.Errorf("told %+v", framesOf[*frames.AgentError](r.pub, sid))
				}
			})
		})
	}
}

// What the operator allowed once is gone from all sessions that wake after it took
// that back: also from forks, and from those that were configured meanwhile.
func TestAllowRulesThatTheOperatorTookBackAreGone(t *testing.T) {
	operated(t, func(r *rig, o *operator) {
		o.set(rules(rule("a", "allow")), nil)
		sid := r.create(session.CreateArgs{Policy: new(rules(rule("c", "allow")))})
		r.prompt(sid, "x")
		r.wait()
		fork := r.fork(session.ForkArgs{Session: sid}).SessionID
		configured := r.create(session.CreateArgs{})
		r.configure(session.ConfigureArgs{Session: configured, Policy: new(rules(rule("c", "allow")))})
		o.set(frames.Policy{}, nil)
		r.restart()
		for _, s := range []frames.SessionID{sid, fork, configured} {
			r.prompt(s, "x")
			r.wait()
			if got, want := r.governs(s), `{"rules":[{"tool":"c","decision":"allow"}]}`; got != want {
				t.Errorf("%s: the policy is %s, want %s", s, got, want)
			}
		}
	})
}

// A client that reads a policy, changes it and writes it back does not make the
// operator's allow rules its own.
func TestAllowRulesThatAreWrittenBackStayTheOperators(t *testing.T) {
	operated(t, func(r *rig, o *operator) {
		o.set(rules(rule("a", "allow"), rule("b", "allow")), nil)
		sid := r.create(session.CreateArgs{Policy: new(rules(rule("b", "allow"), rule("c", "allow")))})
		p := *r.view(sid).Policy
		p.Rules = append(p.Rules, rule("d", "deny"))
		r.configure(session.ConfigureArgs{Session: sid, Policy: &p})
		if got := r.decides(sid, "a"); got != frames.AllowedOnce {
			t.Errorf("a: %s, want it allowed still", got)
		}
		o.set(frames.Policy{}, nil)
		r.restart()
		r.prompt(sid, "x")
		r.wait()
		if got, want := r.governs(sid), `{"rules":[{"tool":"b","decision":"allow"},{"tool":"c","decision":"allow"},{"tool":"d","decision":"deny"}]}`; got != want {
			t.Errorf("the policy is %s, want %s", got, want)
		}
	})
}

// What the operator allows an agent is not passed on to the agents that it spawns;
// what restricts it, and what the client allowed, is.
func TestChildrenInheritNoAllowRulesOfTheOperator(t *testing.T) {
	operated(t, func(r *rig, o *operator) {
		r.agent.on("spawn", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("kid")}})
			return agent.Result{}, err
		})
		o.set(rules(rule("a", "allow"), rule("b", "deny")), nil)
		sid := r.create(session.CreateArgs{Policy: new(rules(rule("c", "allow")))})
		o.set(rules(rule("d", "allow")), nil)
		r.prompt(sid, "spawn")
		r.wait()
		kid := r.children(sid)[0]
		if got, want := r.governs(kid), `{"rules":[{"tool":"c","decision":"allow"},{"tool":"b","decision":"deny"},{"tool":"d","decision":"allow"}]}`; got != want {
			t.Errorf("the child's policy is %s, want %s", got, want)
		}
	})
}

// A child in another directory obeys what the operator demands of its agent in its
// parent's too: what is forbidden there is not left by going below it.
func TestChildrenElsewhereObeyTheRulesOfTheirParentsDirectory(t *testing.T) {
	var dir string
	bubble(t, func(r *rig) {
		dir = r.dir
		below := filepath.Join(r.dir, "below")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		spawned := make(chan error, 2)
		r.agent.on("spawn", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for _, name := range []string{"scripted", "forbidden"} {
				_, err := t.Spawn(ctx, agent.Spawn{Agent: name, Cwd: below, Prompt: []frames.ContentBlock{frames.Text("kid")}})
				spawned <- err
			}
			return agent.Result{}, nil
		})
		sid := r.create(session.CreateArgs{Policy: &frames.Policy{}})
		r.prompt(sid, "spawn")
		r.wait()
		if err := <-spawned; err != nil {
			t.Fatal(err)
		}
		if err := <-spawned; err == nil || !strings.Contains(err.Error(), "not here") {
			t.Errorf("an agent that is forbidden in the parent's directory: %v", err)
		}
		if got, want := r.governs(r.children(sid)[0]), `{"rules":[{"tool":"late","decision":"deny"}]}`; got != want {
			t.Errorf("the child's policy is %s, want %s", got, want)
		}
	}, func(c *session.Config) {
		c.Drivers["forbidden"] = newDriver("forbidden")
		calls := 0
		c.Rules = func(agent, cwd string) (frames.Policy, error) {
			switch calls++; {
			case cwd != dir && dir != "", calls == 1: // the session's own directory is asked about first
				return frames.Policy{}, nil
			case agent == "forbidden":
				return frames.Policy{}, errors.New("not here")
			}
			return rules(rule("late", "deny"), rule("x", "allow")), nil
		}
	})
}
