package conform

import "slices"

func pendingChecks() []Check {
	return []Check{
		{ID: "lists", Section: "5", Says: "pending.list shows what waits, as its requested frame does.", run: pendingLists},
		{ID: "question", Section: "5", Says: "pending.list shows questions too.", run: pendingQuestion},
		{ID: "oldest", Section: "5", Says: "pending.list gives the oldest first.", run: pendingOldest},
		{ID: "tree", Section: "5", Says: "tree chooses what waits in a session and below it.", run: pendingTree},
		{ID: "settled", Section: "5", Says: "What is settled is not listed.", run: pendingSettled},
		{ID: "unknown", Section: "7", Says: "A tree that does not exist is session-not-found.", run: func(t *T) { t.dial().refused("pending.list", obj{"tree": nobodyID}, "session-not-found") }},
		{ID: "counts", Section: "5", Says: "Summaries count what is pending, here and below.", run: pendingCounts},
	}
}

// waiting returns what waits in a tree, as the params of its frames.
func (p *peer) waiting(tree session) []obj {
	var out []obj
	for _, w := range p.ok("pending.list", obj{"tree": tree.id}).objs("pending") {
		out = append(out, w.obj(w.str("type")))
	}
	return out
}

func pendingLists(t *T) {
	s, p := t.asking(1)
	all := p.ok("pending.list", obj{}).objs("pending")
	card := p.asked(s)
	t.must(slices.ContainsFunc(all, func(w obj) bool { return w.str("type") == "approval" && same(w.obj("approval"), card) }), "the approval as it was requested", clip(text(all)))
}

func pendingQuestion(t *T) {
	p := t.dial()
	root, q, card := t.tour(p)
	got := p.waiting(root)
	t.must(len(got) == 2 && slices.ContainsFunc(got, func(w obj) bool { return same(w, q) }) && slices.ContainsFunc(got, func(w obj) bool { return same(w, card) }), "the question and the approval", got)
}

func pendingOldest(t *T) {
	root, p := t.asking(1)
	want := []string{root.id}
	for range 3 {
		kid := t.session(p, asks(1, 1), obj{"parentSessionId": root.id})
		p.subscribe(kid)
		p.prompt(kid, "go")
		p.card(kid)
		want = append(want, kid.id)
	}
	var got []string
	for _, w := range p.waiting(root) {
		got = append(got, w.str("sessionId"))
	}
	t.equal("sessions in the order of their requests", got, want)
}

func pendingTree(t *T) {
	s, p := t.asking(1)
	other, _ := t.asking(1)
	kid := t.session(p, asks(1, 1), obj{"parentSessionId": s.id})
	p.subscribe(kid)
	p.prompt(kid, "go")
	p.card(kid)
	var got []string
	for _, w := range p.waiting(s) {
		got = append(got, w.str("sessionId"))
	}
	t.equal("sessions", got, []string{s.id, kid.id})
	t.equal("of the other tree", len(p.waiting(other)), 1)
}

func pendingSettled(t *T) {
	s, p := t.asking(1)
	p.allow(p.asked(s), "rejected")
	t.equal("what waits", len(p.waiting(s)), 0)
}

func pendingCounts(t *T) {
	p := t.dial()
	root, _, card := t.tour(p)
	for sid, want := range map[string]obj{root.id: {"pending": 1, "pendingBelow": 1}, card.str("sessionId"): {"pending": 1, "pendingBelow": 0}} {
		got := p.ok("session.get", obj{"sessionId": sid}).obj("session")
		t.must(got.num("pending") == int64(want["pending"].(int)) && got.num("pendingBelow") == int64(want["pendingBelow"].(int)), text(want), got)
	}
}
