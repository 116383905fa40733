package pending_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

func rule(tool, input, decision string) frames.Rule {
	return frames.Rule{Tool: tool, Input: json.RawMessage(input), Decision: decision}
}

// Deny rules come first, then allow, then ask; what no rule matches is asked, or
// denied in the mode deny; and what cannot be understood denies.
func TestJudge(t *testing.T) {
	const in = `{"a":1,"b":[true]}`
	deny, allow, asks := rule("shell", "", "deny"), rule("shell", "", "allow"), rule("shell", "", "ask")
	for _, c := range []struct {
		name  string
		mode  string
		rules []frames.Rule
		want  pending.Verdict
	}{
		{"nothing", "", nil, pending.Verdict{Decision: pending.Ask}},
		{"mode ask", "ask", nil, pending.Verdict{Decision: pending.Ask}},
		{"mode deny", "deny", nil, pending.Verdict{}},
		{"unknown mode", "yolo", []frames.Rule{allow}, pending.Verdict{}},
		{"mode with another case", "Ask", []frames.Rule{allow}, pending.Verdict{}},
		{"allow", "", []frames.Rule{allow}, pending.Verdict{Decision: pending.Allow, Rule: 1}},
		{"allow in mode deny", "deny", []frames.Rule{allow}, pending.Verdict{Decision: pending.Allow, Rule: 1}},
		{"ask in mode deny", "deny", []frames.Rule{asks}, pending.Verdict{}},
		{"deny after allow", "", []frames.Rule{allow, deny}, pending.Verdict{Rule: 2}},
		{"allow after ask", "", []frames.Rule{asks, allow}, pending.Verdict{Decision: pending.Ask, Rule: 1}},
		{"first allow", "", []frames.Rule{allow, rule("*", "", "allow")}, pending.Verdict{Decision: pending.Allow, Rule: 1}},
		{"allow before ask", "", []frames.Rule{allow, asks}, pending.Verdict{Decision: pending.Ask, Rule: 2}},
		{"broken input asks", "", []frames.Rule{allow, rule("shell", `{"a":1,"a":1}`, "ask")}, pending.Verdict{Decision: pending.Ask, Rule: 2}},
		{"ask rule", "", []frames.Rule{rule("other", "", "allow"), asks, asks}, pending.Verdict{Decision: pending.Ask, Rule: 2}},
		{"any tool", "", []frames.Rule{rule("*", "", "deny"), allow}, pending.Verdict{Rule: 1}},
		{"other tool", "", []frames.Rule{rule("Shell", "", "allow"), rule("shel", "", "deny"), rule("", "", "deny")}, pending.Verdict{Decision: pending.Ask}},
		{"same input, other form", "", []frames.Rule{rule("shell", ` {"b":[true], "\u0061":1.0}`, "allow")}, pending.Verdict{Decision: pending.Allow, Rule: 1}},
		{"part of the input", "", []frames.Rule{rule("shell", `{"a":1}`, "allow")}, pending.Verdict{Decision: pending.Ask}},
		{"other input denied", "", []frames.Rule{rule("shell", `{"a":1}`, "deny")}, pending.Verdict{Decision: pending.Ask}},
		{"broken input allows nothing", "", []frames.Rule{rule("shell", `{"a":1,"a":1,"b":[true]}`, "allow")}, pending.Verdict{Decision: pending.Ask}},
		{"broken input denies all", "", []frames.Rule{allow, rule("shell", `{"a":1,"a":1}`, "deny")}, pending.Verdict{Rule: 2}},
		{"null input allows nothing", "", []frames.Rule{rule("shell", `null`, "allow")}, pending.Verdict{Decision: pending.Ask}},
		{"null input denies all", "", []frames.Rule{rule("shell", `null`, "deny")}, pending.Verdict{Rule: 1}},
		{"unknown decision", "", []frames.Rule{allow, rule("shell", "", "Allow")}, pending.Verdict{Rule: 2}},
		{"no decision", "", []frames.Rule{rule("*", "", "")}, pending.Verdict{Rule: 1}},
		{"unknown decision elsewhere", "", []frames.Rule{allow, rule("other", "", "maybe")}, pending.Verdict{Decision: pending.Allow, Rule: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pending.Judge(frames.Policy{Mode: c.mode, Rules: c.rules}, "shell", []byte(in))
			if got != c.want {
				t.Errorf("Judge = %+v, want %+v", got, c.want)
			}
		})
	}
}

// A policy with words or values out of bounds is refused, with the place named.
func TestCheckPolicy(t *testing.T) {
	for _, c := range []struct {
		name string
		p    frames.Policy
		want string // in the message; "" for none
	}{
		{"empty", frames.Policy{}, ""},
		{"whole", frames.Policy{Mode: "deny", AskTimeoutMs: 1000, Rules: []frames.Rule{rule("*", `{"a":1}`, "ask"), rule("x", "", "deny")}}, ""},
		{"mode", frames.Policy{Mode: "allow"}, `mode is "allow"`},
		{"short", frames.Policy{AskTimeoutMs: 999}, "askTimeoutMs is 999"},
		{"negative", frames.Policy{AskTimeoutMs: -1}, "askTimeoutMs is -1"},
		{"long", frames.Policy{AskTimeoutMs: pending.MaxAskTimeout.Milliseconds() + 1}, "want 1000 to 604800000"},
		{"decision", frames.Policy{Rules: []frames.Rule{rule("x", "", "deny"), rule("x", "", "Deny")}}, `rules[1]: decision is "Deny"`},
		{"tool", frames.Policy{Rules: []frames.Rule{rule("", "", "deny")}}, "rules[0]: tool is empty"},
		{"input", frames.Policy{Rules: []frames.Rule{rule("x", `{"a":1,"a":2}`, "deny")}}, "rules[0]: input"},
		{"null", frames.Policy{Rules: []frames.Rule{rule("x", "null", "deny")}}, "leave it out"},
		{"many", frames.Policy{Rules: make([]frames.Rule, pending.MaxRules+1)}, "at most 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := pending.CheckPolicy(c.p)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("CheckPolicy = %v, want %q", err, c.want)
			}
		})
	}
}

// An approval waits as long as its policy says, within bounds.
func TestAskTimeout(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: 5 * time.Minute, 1: time.Second, -5: time.Second, 60_000: time.Minute, 1 << 60: 7 * 24 * time.Hour,
	} {
		if got := pending.AskTimeout(frames.Policy{AskTimeoutMs: ms}); got != want {
			t.Errorf("AskTimeout of %d ms = %v, want %v", ms, got, want)
		}
	}
}

// An always in a session does not open what a rule of another one denies.
func TestDenyRuleBeatsAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := pending.New(pending.Config{Grants: &disk{}})
		always(t, tab, approval("r1"), nil)
		in := input()
		p := frames.Policy{Rules: []frames.Rule{rule("shell", "", "deny")}}
		if v, g := tab.Decide(p, in, "s1"); v.Decision != pending.Deny || g != nil {
			t.Errorf("Decide = %+v, %v; want deny", v, g)
		}
		if v, g := tab.Decide(frames.Policy{Mode: "deny"}, in, "s1"); v.Decision != pending.Deny || g != nil {
			t.Errorf("Decide in mode deny = %+v, %v; want deny", v, g)
		}
		if v, g := tab.Decide(frames.Policy{}, in, "s1"); v.Decision != pending.Allow || g == nil {
			t.Errorf("Decide = %+v, %v; want allow by the grant", v, g)
		}
		if v, g := tab.Decide(frames.Policy{}, in, "s2"); v.Decision != pending.Ask || g != nil {
			t.Errorf("Decide in another tree = %+v, %v; want ask", v, g)
		}
	})
}

// A call of which only the kind is known is allowed by no rule with a name; rules for
// everything allow it, and rules that deny or ask go by the kind too.
func TestAKindAllowsNothing(t *testing.T) {
	tab := pending.New(pending.Config{Grants: &disk{}})
	in := input()
	in.KindOnly = true
	for want, rules := range map[pending.Decision][]frames.Rule{
		pending.Ask:   {rule("shell", "", "allow")},
		pending.Allow: {rule("shell", "", "allow"), rule("*", "", "allow")},
		pending.Deny:  {rule("*", "", "allow"), rule("shell", "", "deny")},
	} {
		if v, _ := tab.Decide(frames.Policy{Rules: rules}, in, "s1"); v.Decision != want {
			t.Errorf("Decide by %v = %v, want %v", rules, v.Decision, want)
		}
	}
}
