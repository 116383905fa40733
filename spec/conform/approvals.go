package conform

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

func approvalChecks() []Check {
	return append([]Check{
		{ID: "card", Section: "4", Says: "approval/requested tells id, lineage, turnId, callId, tool, input, inputHash, options, askedAt, expiresAt.", run: cardFields},
		{ID: "hash", Section: "6.5", Says: "inputHash is the SHA-256 over the RFC 8785 form of the whole input.", run: cardHash},
		{ID: "allowed", Section: "6", Says: "allowed-once lets the call run: resolved by reply, the result is no error.", run: approvalAllowed},
		{ID: "rejected", Section: "6.4", Says: "A rejection is handed to the agent, and the turn goes on.", run: approvalRejected},
		{ID: "by", Section: "4", Says: "approval/resolved names who answered, and the feedback.", run: approvalBy},
		{ID: "response-first", Section: "2", Says: "The winner's response precedes approval/resolved.", run: approvalResponseFirst},
		{ID: "race", Section: "6.1, 8.3", Says: "Of any number of clients that answer at once one wins; the others get approval-not-pending.", run: approvalRace},
		{ID: "late", Section: "6.1", Says: "A late answer gets approval-not-pending with the outcome, its origin and who gave it.", run: approvalLate},
		{ID: "repeat", Section: "6.1", Says: "Whoever repeats an answer is told that its own stood.", run: approvalRepeat},
		{ID: "hash-wrong", Section: "6.5", Says: "An answer with another inputHash is input-hash-mismatch, and the request stays pending.", run: hashWrong},
		{ID: "hash-right", Section: "6.5", Says: "An answer with the right inputHash is accepted.", run: hashRight},
		{ID: "unparsed", Section: "6.4", Says: "An answer that does not parse settles nothing.", run: approvalUnparsed},
		{ID: "unknown", Section: "6.1", Says: "An id that is not pending is approval-not-pending.", run: approvalUnknown},
		{ID: "other-session", Section: "6.5", Says: "An id counts in its own session only.", run: approvalOtherSession},
		{ID: "second", Section: "6.5", Says: "Of two requests the one that was named is settled, and the other stays.", run: approvalSecond},
		{ID: "parallel", Section: "6", Says: "Requests that are open at once are independent.", run: approvalParallel},
		{ID: "status", Section: "4", Says: "While a request is open the state is requires-action.", run: approvalStatus},
		{ID: "timeout", Section: "6.4", Says: "At its deadline a request is rejected by timeout, and the turn goes on.", run: approvalTimeout},
		{ID: "expires", Section: "5", Says: "expiresAt is askTimeoutMs after askedAt, 300 s by default.", run: approvalExpires},
		{ID: "mode-deny", Section: "5, 6.4", Says: "In the mode deny nothing is asked; what would be asked is rejected by policy.", run: modeDeny},
		{ID: "mode-change", Section: "6.4", Says: "When the mode turns to deny what is open is rejected by mode-change.", run: modeChange},
		{ID: "rule-allow", Section: "5, 6.4", Says: "An allow rule lets the call run unasked, by policy.", run: ruleDecides("allow", "allowed-once", list{obj{"tool": "load", "decision": "allow"}})},
		{ID: "rule-deny", Section: "5, 6.4", Says: "A deny rule rejects the call unasked, by policy.", run: ruleDecides("deny", "rejected", list{obj{"tool": "load", "decision": "deny"}})},
		{ID: "rule-deny-first", Section: "5", Says: "Deny rules come first, in whatever order they are written.", run: ruleDecides("deny", "rejected", list{obj{"tool": "load", "decision": "allow"}, obj{"tool": "load", "decision": "deny"}})},
		{ID: "rule-input", Section: "5", Says: "A rule with an input matches exactly that input.", run: ruleInput},
		{ID: "rule-other-tool", Section: "5", Says: "A rule for another tool decides nothing.", run: ruleOtherTool},
		{ID: "audit", Section: "6.7", Says: "Every ask and every decision is a durable event: approval/asked, approval/decided.", run: approvalAudit},
		{ID: "closed", Section: "6", Says: "Closing a session settles its requests as cancelled.", run: approvalClosed},
	}, reachChecks()...)
}

func cardFields(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	s := t.session(p, asks(1, 1), obj{"parentSessionId": root.id})
	p.subscribe(s)
	turn := p.prompt(s, "go").str("turnId")
	c := p.card(s)
	for k, want := range map[string]any{"rootSessionId": root.id, "parentSessionId": root.id, "depth": 1, "turnId": turn, "tool.name": "load", "input": obj{"n": 1}} {
		t.equal(k, c.get(k), want)
	}
	t.must(c.str("id") != "" && c.str("callId") != "" && c.str("inputHash") != "", "id, callId, inputHash", c)
	t.must(isTime(c.str("askedAt")) && isTime(c.str("expiresAt")), "askedAt and expiresAt", c)
	t.must(slices.Contains(c.strs("options"), "allowed-once") && slices.Contains(c.strs("options"), "rejected"), "options with allowed-once and rejected", c)
}

func cardHash(t *T) {
	s, p := t.asking(1)
	sum := sha256.Sum256([]byte(`{"n":1}`))
	t.equal("inputHash", firstOf(p, s, "approval/requested", 0).str("inputHash"), hex.EncodeToString(sum[:]))
}

// asked returns the card of a session's first request.
func (p *peer) asked(s session) obj { return firstOf(p, s, "approval/requested", 0) }

func approvalAllowed(t *T) {
	s, p := t.asking(1)
	p.allow(p.asked(s), "allowed-once")
	f := p.frame("approval/resolved", s).params
	t.must(f.str("outcome") == "allowed-once" && f.str("origin") == "reply", "allowed-once by reply", f)
	t.must(!p.event(s, "tool/result").flag("data.isError"), "a result that is no error", p.recent())
	t.equal("reason", p.event(s, "turn/end").str("data.reason"), "completed")
}

func approvalRejected(t *T) {
	s, p := t.asking(1)
	p.allow(p.asked(s), "rejected")
	f := p.frame("approval/resolved", s).params
	t.must(f.str("outcome") == "rejected" && f.str("origin") == "reply", "rejected by reply", f)
	t.must(p.event(s, "tool/result").flag("data.isError"), "a result that is an error", p.recent())
	t.equal("reason", p.event(s, "turn/end").str("data.reason"), "completed")
}

func approvalBy(t *T) {
	s, p := t.asking(1)
	other := t.dial()
	me := other.ok("host.describe", obj{}).obj("you")
	other.allow(p.asked(s), "rejected", obj{"feedback": "not now é"})
	f := p.frame("approval/resolved", s).params
	t.must(f.str("by.clientId") == me.str("clientId") && f.str("by.label") == me.str("label"), "by the client that answered", f)
	t.equal("feedback", f.str("feedback"), "not now é")
}

func approvalResponseFirst(t *T) {
	s, p := t.asking(1)
	from := p.mark()
	r := p.respond(p.asked(s), "allowed-once")
	for _, m := range p.since(from)[:r.at-from] {
		t.must(m.method != "approval/resolved", "the response, then approval/resolved", string(m.raw))
	}
	p.frame("approval/resolved", s)
}

func approvalRace(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	params := obj{"sessionId": s.id, "id": card.str("id")}
	var peers []*peer
	var calls []string
	for range 10 {
		peers = append(peers, t.dial())
	}
	for i, q := range peers {
		calls = append(calls, q.send("approval.respond", params.with(obj{"outcome": []string{"allowed-once", "rejected"}[i%2]})))
	}
	won := -1
	for i, q := range peers {
		switch r := q.response(calls[i]); r.kind() {
		case "ok":
			t.must(won < 0, "one winner", "two clients were accepted")
			won = i
		case "approval-not-pending":
		default:
			t.fail("ok or approval-not-pending", "%s", r)
		}
	}
	t.must(won >= 0, "one winner", "nobody was accepted")
	outcome := []string{"allowed-once", "rejected"}[won%2]
	t.equal("the outcome told", p.frame("approval/resolved", s).params.str("outcome"), outcome)
	t.equal("the agent was rejected", p.event(s, "tool/result").flag("data.isError"), outcome == "rejected")
	p.event(s, "turn/end")
	n := 0
	for _, m := range p.since(0) {
		if m.method == "approval/resolved" && m.params.str("id") == card.str("id") {
			n++
		}
	}
	t.equal("approval/resolved frames", n, 1)
}

func approvalLate(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	other := t.dial()
	p.allow(card, "rejected")
	me := p.ok("host.describe", obj{}).str("you.clientId")
	r := other.respond(card, "allowed-once")
	if r.kind() != "approval-not-pending" {
		t.fail("approval-not-pending", "%s", r)
	}
	d := r.err.data.obj("details")
	t.must(d.str("outcome") == "rejected" && d.str("origin") == "reply" && d.str("by.clientId") == me, "details: rejected, reply, by the winner", d)
	t.must(p.event(s, "tool/result").flag("data.isError"), "the first answer stands", p.recent())
}

func approvalRepeat(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	p.allow(card, "allowed-once")
	d := p.refused("approval.respond", obj{"sessionId": s.id, "id": card.str("id"), "outcome": "allowed-once"}, "approval-not-pending")
	t.must(d.str("outcome") == "allowed-once" && d.str("by.clientId") == p.ok("host.describe", obj{}).str("you.clientId"), "details: allowed-once, by me", d)
}

// stillPending fails unless the card can still be answered.
func (p *peer) stillPending(card obj) { p.allow(card, "rejected") }

func hashWrong(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	sum := sha256.Sum256([]byte(`{"n":2}`))
	r := p.respond(card, "allowed-once", obj{"inputHash": hex.EncodeToString(sum[:])})
	if r.kind() != "input-hash-mismatch" {
		t.fail("input-hash-mismatch", "%s", r)
	}
	p.stillPending(card)
}

func hashRight(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	p.allow(card, "allowed-once", obj{"inputHash": card.str("inputHash")})
}

func approvalUnparsed(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	on := obj{"sessionId": s.id, "id": card.str("id")}
	for _, bad := range []obj{{"outcome": "yes"}, {"outcome": nil}, {"outcome": true}, {}, {"Outcome": "allowed-once"}, {"outcome": "allowed-once", "grant": obj{}}, {"outcome": "cancelled"}} {
		p.refused("approval.respond", on.with(bad), "-32602")
	}
	p.stillPending(card)
}

func approvalUnknown(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.refused("approval.respond", obj{"sessionId": s.id, "id": "none", "outcome": "rejected"}, "approval-not-pending")
	p.refused("approval.respond", obj{"sessionId": nobodyID, "id": "none", "outcome": "rejected"}, "session-not-found")
}

func approvalOtherSession(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	other := t.session(p, echoes)
	p.refused("approval.respond", obj{"sessionId": other.id, "id": card.str("id"), "outcome": "allowed-once"}, "approval-not-pending")
	p.stillPending(card)
}

func approvalSecond(t *T) {
	s, p := t.asking(2)
	var cards []obj
	for _, m := range p.since(0) {
		if m.method == "approval/requested" {
			cards = append(cards, m.params)
		}
	}
	p.allow(cards[1], "allowed-once")
	t.equal("the id resolved", p.frame("approval/resolved", s).params.str("id"), cards[1].str("id"))
	p.stillPending(cards[0])
}

func approvalParallel(t *T) {
	s, p := t.asking(5)
	ids := map[string]bool{}
	for _, m := range p.since(0) {
		if m.method == "approval/requested" {
			ids[m.params.str("id")] = true
			p.allow(m.params, "allowed-once")
		}
	}
	t.equal("different ids", len(ids), 5)
	p.event(s, "turn/end")
	t.must(slices.ContainsFunc(p.eventsOf(s, 0), func(e obj) bool { return e.str("data.content.0.text") == "5 of 5 allowed" }), "the agent heard five allows", p.recent())
}

func approvalStatus(t *T) {
	s, p := t.asking(2)
	sum := p.ok("session.get", obj{"sessionId": s.id}).obj("session")
	t.must(sum.str("state") == "requires-action" && sum.num("pending") == 2, "requires-action, pending 2", sum)
}

func approvalTimeout(t *T) {
	s, p := t.asking(1, obj{"policy": obj{"askTimeoutMs": 1000}})
	f := p.frame("approval/resolved", s).params
	t.must(f.str("outcome") == "rejected" && f.str("origin") == "timeout" && !f.has("by"), "rejected by timeout, by nobody", f)
	t.must(p.event(s, "tool/result").flag("data.isError"), "a result that is an error", p.recent())
	t.equal("reason", p.event(s, "turn/end").str("data.reason"), "completed")
}

func approvalExpires(t *T) {
	for ms, more := range map[int64]obj{300_000: {}, 60_000: {"policy": obj{"askTimeoutMs": 60_000}}} {
		s, p := t.asking(1, more)
		c := p.asked(s)
		asked, _ := time.Parse(time.RFC3339, c.str("askedAt"))
		expires, _ := time.Parse(time.RFC3339, c.str("expiresAt"))
		got := expires.Sub(asked).Milliseconds()
		t.must(got == ms || len(more) == 0 && got > 0, fmt.Sprint("expiresAt ", ms, " ms after askedAt"), c)
	}
}

// unasked runs a turn in which nothing may be asked, and returns what was decided.
func unasked(t *T, policy obj) obj {
	p := t.dial()
	s := t.session(p, asks(1, 1), obj{"policy": policy})
	p.subscribe(s)
	p.turn(s, "go")
	names := p.names(s, 0)
	t.must(!slices.Contains(names, "approval/requested") && !slices.Contains(names, "approval/resolved"), "no approval frames", names)
	p.at = 0
	return p.event(s, "approval/decided").obj("data")
}

func modeDeny(t *T) {
	d := unasked(t, obj{"mode": "deny"})
	t.must(d.str("outcome") == "rejected" && d.str("origin") == "policy", "rejected by policy", d)
}

func ruleDecides(_, outcome string, rules list) func(*T) {
	return func(t *T) {
		d := unasked(t, obj{"rules": rules})
		t.must(d.str("outcome") == outcome && d.str("origin") == "policy", outcome+" by policy", d)
	}
}

func ruleInput(t *T) {
	p := t.dial()
	s := t.session(p, asks(2, 1), obj{"policy": obj{"rules": list{obj{"tool": "load", "input": obj{"n": 1}, "decision": "allow"}}}})
	p.subscribe(s)
	p.prompt(s, "go")
	t.equal("the input asked for", p.card(s).get("input"), obj{"n": 2})
}

func ruleOtherTool(t *T) {
	s, p := t.asking(1, obj{"policy": obj{"rules": list{obj{"tool": "loa", "decision": "allow"}, obj{"tool": "Load", "decision": "deny"}}}})
	p.stillPending(p.asked(s))
}

func modeChange(t *T) {
	s, p := t.asking(1)
	p.ok("session.configure", obj{"sessionId": s.id, "policy": obj{"mode": "deny"}})
	f := p.frame("approval/resolved", s).params
	t.must(f.str("outcome") == "rejected" && f.str("origin") == "mode-change", "rejected by mode-change", f)
	p.event(s, "turn/end")
}

func approvalAudit(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	p.allow(card, "allowed-once")
	p.event(s, "turn/end")
	var audit []string
	for _, e := range durable(p.eventsOf(s, 0)) {
		if e.str("data.id") == card.str("id") || e.str("data.callId") == card.str("callId") {
			audit = append(audit, e.str("type"))
		}
	}
	t.equal("the events of the call", audit, []string{"tool/call", "approval/asked", "approval/decided", "tool/result"})
}

func approvalClosed(t *T) {
	s, p := t.asking(1)
	p.ok("session.close", obj{"sessionId": s.id})
	t.equal("outcome", p.frame("approval/resolved", s).params.str("outcome"), "cancelled")
}
