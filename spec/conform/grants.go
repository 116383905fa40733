package conform

import (
	"slices"
	"time"
)

func grantChecks() []Check {
	return []Check{
		{ID: "stored", Section: "1, 6.6", Says: "allowed-always stores a grant: agent, tool, cwd, input, scope, since when, until when, by whom.", run: grantStored},
		{ID: "covers", Section: "6.6", Says: "A grant lets the same call run unasked: approval/decided names it, and its use is counted.", run: grantCovers},
		{ID: "other-input", Section: "6.6", Says: "A grant covers exactly its input.", run: grantOtherInput},
		{ID: "other-tree", Section: "6.6", Says: "A grant for the session does not reach another tree.", run: grantOtherTree},
		{ID: "tree", Section: "6.6", Says: "A grant for the session covers its whole tree.", run: grantTree},
		{ID: "open", Section: "6.6", Says: "A grant settles nothing that is already pending.", run: grantOpen},
		{ID: "deny", Section: "6.6", Says: "A grant never beats a deny rule.", run: grantDeny},
		{ID: "for", Section: "5", Says: "forMs is how long a grant holds, 8 h by default.", run: grantFor},
		{ID: "revoked", Section: "5", Says: "A revoked grant covers nothing and is not listed.", run: grantRevoked},
		{ID: "revoke-unknown", Section: "7", Says: "A grant that does not exist is grant-not-found.", run: func(t *T) { t.dial().refused("grants.revoke", obj{"id": "none"}, "grant-not-found") }},
		{ID: "once", Section: "5", Says: "allowed-once stores no grant.", run: grantOnce},
		{ID: "project", Section: "6.6", Says: "A grant for the project covers every session in the same cwd.", alone: true, run: grantProject},
	}
}

// always answers the first request of a session with allowed-always.
func (t *T) always(more ...obj) (session, *peer, obj) {
	s, p := t.asking(1)
	p.allow(p.asked(s), "allowed-always", more...)
	p.event(s, "turn/end")
	g := p.grantOf(s)
	t.must(g != nil, "a grant in grants.list", "none")
	return s, p, g
}

// grantOf finds the grant that was given in a session's tree.
func (p *peer) grantOf(s session) obj {
	for _, g := range p.ok("grants.list", obj{}).objs("grants") {
		if g.str("rootSessionId") == s.id {
			return g
		}
	}
	return nil
}

// covered runs a turn that the grant must cover, and returns the decision.
func (p *peer) covered(s session) obj {
	from := p.mark()
	p.turn(s, "go")
	names := p.names(s, from)
	p.t.must(!slices.Contains(names, "approval/requested"), "nothing is asked", names)
	for _, e := range p.eventsOf(s, from) {
		if e.str("type") == "approval/decided" {
			return e.obj("data")
		}
	}
	p.t.fail("approval/decided", "%s", p.recent())
	return nil
}

func grantStored(t *T) {
	s, p, g := t.always()
	for k, want := range map[string]any{"agent": t.r.opt.Agent, "tool": "load", "cwd": s.summary.str("cwd"), "input": obj{"n": 1}, "scope": "session", "rootSessionId": s.id, "used": 0} {
		t.equal(k, g.get(k), want)
	}
	t.must(g.str("id") != "" && isTime(g.str("createdAt")) && isTime(g.str("expiresAt")), "id, createdAt, expiresAt", g)
	t.equal("by.clientId", g.str("by.clientId"), p.ok("host.describe", obj{}).str("you.clientId"))
}

func grantCovers(t *T) {
	s, p, g := t.always()
	d := p.covered(s)
	t.must(d.str("grant") == g.str("id") && d.str("origin") == "policy" && d.str("outcome") != "rejected", "decided by the grant", d)
	t.equal("used", p.grantOf(s).num("used"), 1)
}

func grantOtherInput(t *T) {
	p := t.dial()
	s := t.session(p, asks(2, 1))
	p.subscribe(s)
	p.prompt(s, "go")
	p.allow(p.card(s), "allowed-always")
	t.equal("the next input asked for", p.card(s).get("input"), obj{"n": 2})
}

func grantOtherTree(t *T) {
	t.always()
	s, p := t.asking(1)
	p.stillPending(p.asked(s))
}

func grantTree(t *T) {
	s, p, g := t.always()
	kid := t.session(p, asks(1, 1), obj{"parentSessionId": s.id})
	p.subscribe(kid)
	t.equal("grant of the child's decision", p.covered(kid).str("grant"), g.str("id"))
}

func grantOpen(t *T) {
	s, p := t.asking(1)
	kid := t.session(p, asks(1, 1), obj{"parentSessionId": s.id})
	p.subscribe(kid)
	p.prompt(kid, "go")
	card := p.card(kid)
	p.allow(p.asked(s), "allowed-always")
	p.event(s, "turn/end")
	p.stillPending(card)
}

func grantDeny(t *T) {
	s, p, _ := t.always()
	p.ok("session.configure", obj{"sessionId": s.id, "policy": obj{"rules": list{obj{"tool": "load", "decision": "deny"}}}})
	d := p.covered(s)
	t.must(d.str("outcome") == "rejected" && d.str("origin") == "policy", "rejected by policy", d)
}

func grantFor(t *T) {
	for want, more := range map[time.Duration]obj{8 * time.Hour: {}, time.Minute: {"grant": obj{"forMs": 60_000}}} {
		_, _, g := t.always(more)
		from, _ := time.Parse(time.RFC3339, g.str("createdAt"))
		to, _ := time.Parse(time.RFC3339, g.str("expiresAt"))
		t.must(to.Sub(from) == want, "a grant that holds for "+want.String(), g)
	}
}

func grantRevoked(t *T) {
	s, p, g := t.always()
	p.ok("grants.revoke", obj{"id": g.str("id")})
	t.must(p.grantOf(s) == nil, "no grant in grants.list", g)
	p.prompt(s, "go")
	p.stillPending(p.card(s))
}

func grantOnce(t *T) {
	s, p := t.asking(1)
	p.allow(p.asked(s), "allowed-once")
	p.event(s, "turn/end")
	t.must(p.grantOf(s) == nil, "no grant", p.grantOf(s))
}

func grantProject(t *T) {
	s, p, g := t.always(obj{"grant": obj{"scope": "project", "forMs": 60_000}})
	t.after = append(t.after, func() { t.r.revokeGrant(g.str("id")) })
	t.equal("scope", g.str("scope"), "project")
	other := t.session(p, asks(1, 1))
	p.subscribe(other)
	t.equal("grant of the other session's decision", p.covered(other).str("grant"), g.str("id"))
	p.ok("grants.revoke", obj{"id": g.str("id")})
	p.prompt(s, "go")
	p.stillPending(p.card(s))
}

// revokeGrants takes back what was granted in the trees of sessions.
func (r *runner) revokeGrants(sids []string) {
	r.clean(func() {
		for _, g := range r.broom.call("grants.list", obj{}).obj().objs("grants") {
			if slices.Contains(sids, g.str("rootSessionId")) {
				r.broom.call("grants.revoke", obj{"id": g.str("id")})
			}
		}
	})
}

// revokeGrant takes a grant back whatever became of its check.
func (r *runner) revokeGrant(id string) {
	r.clean(func() { r.broom.call("grants.revoke", obj{"id": id}) })
}
