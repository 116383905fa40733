package conform

import "slices"

func inboxChecks() []Check {
	return []Check{
		{ID: "inbox-baseline", Section: "4", Says: "host/subscribed … host/live enclose, for every live session, session-added and session-status, and everything pending.", run: inboxBaseline},
		{ID: "inbox-first", Section: "4", Says: "The response to a subscription of the inbox precedes host/subscribed.", run: inboxFirst},
		{ID: "inbox-added", Section: "4", Says: "The inbox is told of sessions made later.", run: inboxAdded},
		{ID: "inbox-updated", Section: "4", Says: "The inbox is told when a summary changes.", run: inboxUpdated},
		{ID: "inbox-removed", Section: "4", Says: "The inbox is told when a session is deleted.", run: inboxRemoved},
		{ID: "inbox-status", Section: "4", Says: "The inbox is told what sessions do: running with turnId, requires-action with the count, idle.", run: inboxStatus},
		{ID: "inbox-below", Section: "4", Says: "host/session-status counts what is pending in descendants: pendingBelow.", run: inboxBelow},
		{ID: "inbox-once", Section: "4", Says: "A request and its resolution reach a connection once, however many of its subscriptions match.", run: inboxOnce},
		{ID: "inbox-end", Section: "5", Says: "mux.unsubscribe with host ends the inbox.", run: inboxEnd},
	}
}

// inbox subscribes the host inbox and waits for its baseline.
func (p *peer) inbox() {
	p.answered("mux.subscribe", obj{"host": true})
	p.frame("host/live", session{})
}

func inboxBaseline(t *T) {
	s, _ := t.asking(1)
	p := t.dial()
	p.inbox()
	var names []string
	for _, m := range p.since(0) {
		switch {
		case m.method == "host/subscribed", m.method == "host/live", m.method != "" && m.params.str("sessionId") == s.id:
			names = append(names, m.method)
		}
	}
	first, last := slices.Index(names, "host/subscribed"), slices.Index(names, "host/live")
	t.must(first == 0 && last > 0, "host/subscribed first, host/live at the end", names)
	for _, want := range []string{"host/session-added", "host/session-status", "approval/requested"} {
		i := slices.Index(names, want)
		t.must(i > first && i < last, want+" between host/subscribed and host/live", names)
	}
	st := firstOf(p, s, "host/session-status", 0)
	t.must(st.str("state") == "requires-action" && st.num("pending") == 1, "state requires-action, pending 1", st)
}

func inboxFirst(t *T) {
	p := t.dial()
	r := p.answered("mux.subscribe", obj{"host": true})
	m := p.frame("host/subscribed", session{})
	t.must(m.at > r.at, "the response, then host/subscribed", p.recent())
}

func inboxAdded(t *T) {
	p := t.dial()
	p.inbox()
	s := t.session(t.dial(), echoes, obj{"title": "new"})
	m := p.frame("host/session-added", s)
	for k, want := range map[string]any{"title": "new", "rootSessionId": s.id, "origin": "user", "cwd": s.summary.str("cwd"), "agent": t.r.opt.Agent} {
		t.equal("session."+k, m.params.get("session."+k), want)
	}
}

func inboxUpdated(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.inbox()
	p.ok("session.configure", obj{"sessionId": s.id, "title": "changed"})
	p.wait("host/session-updated with the new title", func(m message) bool {
		return m.method == "host/session-updated" && m.params.str("session.title") == "changed" && m.params.str("sessionId") == s.id
	})
}

func inboxRemoved(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.inbox()
	p.ok("session.delete", obj{"sessionId": s.id})
	m := p.frame("host/session-removed", s)
	t.must(m.params.str("reason") != "", "a reason", m.params)
}

func inboxStatus(t *T) {
	p := t.dial()
	p.inbox()
	s := t.session(p, asks(1, 1))
	turn := p.prompt(s, "go").str("turnId")
	status := func(state string) obj {
		return p.wait("host/session-status "+state, func(m message) bool {
			return m.method == "host/session-status" && m.params.str("sessionId") == s.id && m.params.str("state") == state
		}).params
	}
	st := status("requires-action")
	t.must(st.num("pending") == 1 && st.str("turnId") == turn, "pending 1 and the turnId", st)
	card, _ := p.find(0, t.deadline(), func(m message) bool {
		return m.method == "approval/requested" && m.params.str("sessionId") == s.id
	})
	p.allow(card.params, "rejected")
	st = status("idle")
	t.must(st.num("pending") == 0 && st.str("turnId") == "", "pending 0 and no turnId", st)
}

func inboxBelow(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	p.inbox()
	kid := t.session(p, asks(1, 1), obj{"parentSessionId": root.id})
	p.prompt(kid, "go")
	below := func(n int64) {
		p.wait("host/session-status of the root with pendingBelow", func(m message) bool {
			return m.method == "host/session-status" && m.params.str("sessionId") == root.id && m.params.num("pendingBelow") == n
		})
	}
	card := p.card(kid)
	t.equal("pendingBelow of session.get", p.ok("session.get", obj{"sessionId": root.id}).num("session.pendingBelow"), 1)
	p.at = 0
	below(1)
	p.allow(card, "rejected")
	below(0)
}

func inboxOnce(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	kid := t.session(p, asks(1, 1), obj{"parentSessionId": root.id})
	p.inbox()
	p.subscribe(root, obj{"tree": true})
	p.subscribe(kid)
	p.frame("session/live", kid)
	from := p.mark()
	p.prompt(kid, "go")
	card := p.card(kid)
	p.allow(card, "allowed-once")
	p.event(kid, "turn/end")
	p.fence()
	count := map[string]int{}
	for _, m := range p.since(from) {
		if m.params.str("id") == card.str("id") {
			count[m.method]++
		}
	}
	t.equal("frames", count, obj{"approval/requested": 1, "approval/resolved": 1})
}

func inboxEnd(t *T) {
	p, other := t.dial(), t.dial()
	p.inbox()
	p.answered("mux.unsubscribe", obj{"host": true})
	s := t.session(other, echoes)
	p.fence()
	t.equal("frames of a session made later", p.names(s, 0), nil)
}
