package pending

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// The words of a policy.
const (
	ModeAsk  = "ask"
	ModeDeny = "deny"

	RuleAllow = "allow"
	RuleDeny  = "deny"
	RuleAsk   = "ask"

	anyTool = "*"
)

// Bounds of a policy.
const (
	DefaultAskTimeout = 300 * time.Second
	MinAskTimeout     = time.Second
	MaxAskTimeout     = 7 * 24 * time.Hour
	MaxRules          = 1000
)

// Decision is what a policy says of a call. The zero Decision denies.
type Decision uint8

// The decisions of a policy.
const (
	Deny Decision = iota
	Allow
	Ask
)

// Verdict is the judgment of one call. The zero Verdict denies.
type Verdict struct {
	Decision Decision
	// Rule is the number of the rule that decided, from 1; 0 if it was the mode
	// or the default.
	Rule int
}

// Judge says what p decides of a call of tool with the given canonical input:
// the first deny rule that matches, else the first ask rule, else the first allow
// rule, else ask: where rules disagree the stricter one holds, in any order. The mode "deny" turns ask into deny. It fails
// closed: an unknown mode denies everything, and so does a rule with an unknown
// decision for whatever it matches. An input that cannot be compared matches
// everything in a rule that denies or asks, and nothing in one that allows.
//
// Of the call only name and input count, never what an agent says of it.
func Judge(p frames.Policy, tool string, canonical []byte) Verdict {
	if !slices.Contains([]string{"", ModeAsk, ModeDeny}, p.Mode) {
		return Verdict{}
	}
	best := Verdict{Decision: Ask}
	for i, r := range p.Rules {
		d := decisionOf(r)
		if !matches(r, d, tool, canonical) {
			continue
		}
		switch {
		case d == Deny:
			return Verdict{Decision: Deny, Rule: i + 1}
		case best.Rule == 0, d == Ask && best.Decision == Allow:
			best = Verdict{Decision: d, Rule: i + 1}
		}
	}
	if best.Decision == Ask && p.Mode == ModeDeny {
		return Verdict{}
	}
	return best
}

// Decide says what becomes of a call before anybody is asked; line is the session
// that makes it and those above it, in any order: what p decides, and where that is to ask, whether a grant allows it, which is
// returned then. A grant beats neither a deny rule nor the mode "deny". A call of which
// only the kind is known is allowed by no rule with a name.
func (t *Table) Decide(p frames.Policy, a *Approval, line ...frames.SessionID) (Verdict, *Grant) {
	if a.KindOnly {
		p.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r frames.Rule) bool { return decisionOf(r) == Allow && r.Tool != "*" })
	}
	v := Judge(p, a.Tool.Name, a.Canonical)
	if v.Decision != Ask {
		return v, nil
	}
	g, ok := t.grants.Match(a.Agent, a.Tool.Name, a.Cwd, a.Canonical, line, t.cfg.Now())
	if !ok {
		return v, nil
	}
	return Verdict{Decision: Allow}, &g
}

// decisionOf reads the word of a rule; one that is unknown denies.
func decisionOf(r frames.Rule) Decision {
	switch r.Decision {
	case RuleAllow:
		return Allow
	case RuleAsk:
		return Ask
	default:
		return Deny
	}
}

// matches reports whether a rule that decides d speaks of the call.
func matches(r frames.Rule, d Decision, tool string, canonical []byte) bool {
	if r.Tool != anyTool && r.Tool != tool {
		return false
	}
	if len(r.Input) == 0 {
		return true
	}
	want, err := ruleInput(r)
	if err != nil {
		return d != Allow
	}
	return bytes.Equal(want, canonical)
}

// ruleInput returns the canonical form of a rule's input. A bare null is refused:
// who writes it means "no input given", which matches everything.
func ruleInput(r frames.Rule) ([]byte, error) {
	c, err := frames.Canonical(r.Input)
	if err == nil && string(c) == "null" {
		return nil, fmt.Errorf("the input is null: leave it out to match any input")
	}
	return c, err
}

// CheckPolicy returns why p is not a policy, nil if it is one.
func CheckPolicy(p frames.Policy) error {
	if !slices.Contains([]string{"", ModeAsk, ModeDeny}, p.Mode) {
		return fmt.Errorf("policy: mode is %q, want %q or %q", p.Mode, ModeAsk, ModeDeny)
	}
	if ms := p.AskTimeoutMs; ms != 0 && (ms < MinAskTimeout.Milliseconds() || ms > MaxAskTimeout.Milliseconds()) {
		return fmt.Errorf("policy: askTimeoutMs is %d, want %d to %d, or 0 for %d",
			ms, MinAskTimeout.Milliseconds(), MaxAskTimeout.Milliseconds(), DefaultAskTimeout.Milliseconds())
	}
	if len(p.Rules) > MaxRules {
		return fmt.Errorf("policy: %d rules, want at most %d", len(p.Rules), MaxRules)
	}
	for i, r := range p.Rules {
		if err := checkRule(r); err != nil {
			return fmt.Errorf("policy: rules[%d]: %w", i, err)
		}
	}
	return nil
}

func checkRule(r frames.Rule) error {
	if r.Tool == "" {
		return fmt.Errorf("tool is empty, want an exact tool name or %q", anyTool)
	}
	if !slices.Contains([]string{RuleAllow, RuleDeny, RuleAsk}, r.Decision) {
		return fmt.Errorf("decision is %q, want %q, %q or %q", r.Decision, RuleAllow, RuleDeny, RuleAsk)
	}
	if len(r.Input) == 0 {
		return nil
	}
	if _, err := ruleInput(r); err != nil {
		return fmt.Errorf("input: want the whole input as I-JSON: %w", err)
	}
	return nil
}

// AskTimeout returns how long an approval under p waits for its answer. A value
// out of bounds is brought within them.
func AskTimeout(p frames.Policy) time.Duration {
	if p.AskTimeoutMs == 0 {
		return DefaultAskTimeout
	}
	ms := min(max(p.AskTimeoutMs, MinAskTimeout.Milliseconds()), MaxAskTimeout.Milliseconds())
	return time.Duration(ms) * time.Millisecond
}
