package conform

import "slices"

// reachChecks are about whom a request reaches, and when.
func reachChecks() []Check {
	return []Check{
		{ID: "replay", Section: "4, 6.3", Says: "What is pending is repeated to a client that comes back, with the same id.", run: reachReplay},
		{ID: "replay-settled", Section: "4", Says: "What was settled while a client was away is not repeated.", run: reachSettled},
		{ID: "nobody", Section: "6.3", Says: "With no client at all a request waits.", run: reachNobody},
		{ID: "stranger", Section: "6.8", Says: "A client that never saw the session is told of what waits by the inbox.", run: reachStranger},
		{ID: "inbox", Section: "6.8", Says: "A request of any session reaches the inbox, and so does its resolution.", run: reachInbox},
		{ID: "tree", Section: "6.8", Says: "A request two levels down reaches who subscribed the root with tree, with its lineage.", run: reachTree},
		{ID: "tree-answer", Section: "6.8", Says: "Who watches only the root answers for the grandchild.", run: reachTreeAnswer},
		{ID: "others", Section: "6.2", Says: "Every client that was sent a request is sent its resolution.", run: reachOthers},
		{ID: "not-others", Section: "6.8", Says: "A client that subscribed another session only is not told.", run: reachNotOthers},
	}
}

func reachReplay(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	p.cut()
	q := t.dial()
	q.subscribe(s)
	again := q.card(s)
	t.equal("the card", again, card)
	q.stillPending(again)
}

func reachSettled(t *T) {
	s, p := t.asking(2)
	var cards []obj
	for _, m := range p.since(0) {
		if m.method == "approval/requested" {
			cards = append(cards, m.params)
		}
	}
	p.cut()
	q, r := t.dial(), t.dial()
	q.allow(cards[0], "rejected")
	r.subscribe(s)
	r.frame("session/live", s)
	var ids []string
	for _, m := range r.since(0) {
		if m.method == "approval/requested" {
			ids = append(ids, m.params.str("id"))
		}
	}
	t.equal("cards after a reconnect", ids, []string{cards[1].str("id")})
}

func reachNobody(t *T) {
	p := t.dial()
	s := t.session(p, asks(1, 1))
	p.prompt(s, "go")
	p.cut()
	q := t.dial()
	q.subscribe(s)
	card := q.card(s)
	q.cut()
	r := t.dial()
	r.subscribe(s)
	r.allow(card, "allowed-once")
	r.event(s, "turn/end")
}

func reachStranger(t *T) {
	s, p := t.asking(1)
	p.close()
	q := t.dial()
	q.inbox()
	card := q.asked(s)
	t.must(card != nil, "approval/requested in the host baseline", q.recent())
	q.stillPending(card)
}

func reachInbox(t *T) {
	p := t.dial()
	p.inbox()
	q := t.dial()
	s := t.session(q, asks(1, 1))
	q.prompt(s, "go")
	card := p.card(s)
	q.allow(card, "allowed-once")
	t.equal("id", p.frame("approval/resolved", s).params.str("id"), card.str("id"))
}

func reachTree(t *T) {
	p := t.dial()
	root, _, card := t.tour(p)
	t.equal("rootSessionId", card.str("rootSessionId"), root.id)
	t.must(card.num("depth") == 2 && card.str("parentSessionId") != "" && card.str("parentSessionId") != root.id, "depth 2, and the child as parentSessionId", card)
	sum := p.ok("session.get", obj{"sessionId": root.id}).obj("session")
	t.equal("pendingBelow of the root", sum.num("pendingBelow"), 1)
}

func reachTreeAnswer(t *T) {
	p := t.dial()
	root, question, card := t.tour(p)
	p.allow(card, "allowed-once")
	p.ok("question.respond", obj{"sessionId": root.id, "id": question.str("id"), "cancel": true})
	t.equal("reason of the root's turn/end", p.event(root, "turn/end").str("data.reason"), "completed")
}

func reachOthers(t *T) {
	s, p := t.asking(1)
	others := []*peer{t.dial(), t.dial(), t.dial()}
	for _, q := range others {
		q.subscribe(s)
		q.card(s)
	}
	card := p.asked(s)
	others[0].allow(card, "rejected")
	for _, q := range append(others, p) {
		t.equal("id", q.frame("approval/resolved", s).params.str("id"), card.str("id"))
	}
}

func reachNotOthers(t *T) {
	p := t.dial()
	idle := t.session(p, echoes)
	p.subscribe(idle)
	s, q := t.asking(1)
	q.stillPending(q.asked(s))
	p.fence()
	t.must(!slices.ContainsFunc(p.since(0), func(m message) bool { return m.params.str("sessionId") == s.id }), "no frame of another session", p.recent())
}
