package session

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/pending"
)

// A session's policy is what its client asked for, the record's Own, and what the
// operator of the host adds for this agent and directory. Both together are stored
// and shown. When the session wakes the operator is asked again; its allow rules are
// those of now, but what denies or asks stays until the policy is configured anew: a
// file in the session's directory decides it too, and an agent may write there.

// withRules returns what governs a session of the agent in cwd whose client asked for
// own; nil if nothing does.
func (m *Manager) withRules(own *frames.Policy, agent, cwd string) (*frames.Policy, error) {
	if m.cfg.Rules == nil {
		return own, nil
	}
	added, err := m.cfg.Rules(agent, cwd)
	if err != nil {
		return nil, &ParamError{"policy", err.Error()}
	}
	p := m.merge(own, &added)
	if err := checkSettings(p, "", nil); err != nil {
		return nil, err
	}
	return p, nil
}

// merge returns a policy with the rules of both, the mode deny if one has it, and
// the smaller timeout; nil if that is nothing.
func (m *Manager) merge(a, b *frames.Policy) *frames.Policy {
	p := frames.Policy{}
	if a != nil {
		p = frames.Policy{Mode: a.Mode, AskTimeoutMs: a.AskTimeoutMs, Rules: slices.Clone(a.Rules)}
	}
	if b.Mode != "" && b.Mode != pending.ModeAsk { // one that is unknown is refused
		p.Mode = b.Mode
	}
	usual := m.cfg.AskTimeout.Milliseconds()
	if ms := b.AskTimeoutMs; ms != 0 && ms < cmp.Or(p.AskTimeoutMs, usual) {
		p.AskTimeoutMs = ms
	}
	for _, r := range b.Rules {
		if !hasRule(p.Rules, r) {
			p.Rules = append(p.Rules, r)
		}
	}
	if a == nil && p.Mode == "" && p.AskTimeoutMs == 0 && len(p.Rules) == 0 {
		return nil
	}
	return &p
}

func hasRule(rules []frames.Rule, r frames.Rule) bool {
	return slices.ContainsFunc(rules, func(o frames.Rule) bool {
		return o.Tool == r.Tool && o.Decision == r.Decision && bytes.Equal(o.Input, r.Input)
	})
}

// strict returns what of p restricts; what it allows is left out.
func strict(p *frames.Policy) *frames.Policy {
	if p == nil {
		return &frames.Policy{}
	}
	s := frames.Policy{Mode: p.Mode, AskTimeoutMs: p.AskTimeoutMs}
	for _, r := range p.Rules {
		if r.Decision != pending.RuleAllow {
			s.Rules = append(s.Rules, r)
		}
	}
	return &s
}

// bequest is the policy of what a session spawns, before the operator's rules for
// that: all that restricts the session, and what its own client allowed.
func (m *Manager) bequest(own, policy *frames.Policy) *frames.Policy {
	if own == nil {
		return policy
	}
	return m.merge(own, strict(policy))
}

// given returns what of a policy that a session is configured with is its client's. Who
// changes a policy reads all of it and writes it back: the operator's allow rules in it
// stay the operator's, who may take them back.
func (m *Manager) given(sid frames.SessionID, p *frames.Policy) *frames.Policy {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.dir.byID[sid]
	if e == nil || e.own == nil || e.policy == nil {
		return p
	}
	own := *p
	own.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r frames.Rule) bool {
		return r.Decision == pending.RuleAllow && hasRule(e.policy.Rules, r) && !hasRule(e.own.Rules, r)
	})
	return &own
}

// bind has a child obey what the operator demands of its agent in its parent's
// directory, also where its own is another: what forbids an agent there, or a call,
// is not left by going below it.
func (m *Manager) bind(c *CreateArgs, cwd string) error {
	if m.cfg.Rules == nil || c.Cwd == cwd {
		return nil
	}
	added, err := m.cfg.Rules(c.Agent, cwd)
	if err != nil {
		return &ParamError{"policy", err.Error()}
	}
	c.Policy = m.merge(c.Policy, strict(&added))
	return nil
}

// ownOf returns what the record keeps as the client's policy, nil if that is the
// session's: own, where the operator added something.
func ownOf(own, policy *frames.Policy) *frames.Policy {
	switch {
	case samePolicy(own, policy):
		return nil
	case own == nil:
		return &frames.Policy{}
	}
	return own
}

// samePolicy reports whether two policies say the same, in any order.
func samePolicy(a, b *frames.Policy) bool {
	if a == nil || b == nil {
		return a == b
	}
	within := func(a, b []frames.Rule) bool {
		return !slices.ContainsFunc(a, func(r frames.Rule) bool { return !hasRule(b, r) })
	}
	return a.Mode == b.Mode && a.AskTimeoutMs == b.AskTimeoutMs && within(a.Rules, b.Rules) && within(b.Rules, a.Rules)
}

// review asks the operator again for a session that wakes. Where that fails the
// session keeps what it has, and people are told.
func (a *actor) review() error {
	if a.m.cfg.Rules == nil || a.quiet {
		return nil
	}
	own := a.rec.Own
	if own == nil {
		own = a.rec.Policy
	}
	p, err := a.m.withRules(own, a.rec.Agent, a.rec.Cwd)
	if err == nil && a.rec.Policy != nil {
		p = a.m.merge(p, strict(a.rec.Policy))
		err = checkSettings(p, "", nil) // both together may be too much
	}
	if err != nil {
		a.log.Warn("the rules for a session could not be read", "error", err)
		a.complain("the rules for this session could not be read, those that it had hold on: " + err.Error())
		return nil
	}
	if samePolicy(p, a.rec.Policy) {
		return nil
	}
	c := &commit{next: a.rec.clone()}
	c.next.Policy, c.next.Own = p, ownOf(own, p)
	c.add(frames.SessionConfigured{Policy: p})
	return a.commit(c)
}
