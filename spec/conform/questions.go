package conform

func questionChecks() []Check {
	return []Check{
		{ID: "card", Section: "4", Says: "question/requested tells id, lineage, turnId, questions with options, askedAt.", run: questionCard},
		{ID: "answered", Section: "4, 5", Says: "An answer is told to everyone and heard by the agent.", run: questionAnswered},
		{ID: "cancelled", Section: "5", Says: "A question that a person cancels is cancelled by reply, and the turn goes on.", run: questionCancelled},
		{ID: "late", Section: "6.1", Says: "A late answer gets question-not-pending with the outcome and who gave it.", run: questionLate},
		{ID: "race", Section: "6.1", Says: "Of clients that answer at once one wins.", run: questionRace},
		{ID: "neither", Section: "6.4", Says: "An answer without answers and without cancel settles nothing.", run: questionBad(obj{})},
		{ID: "both", Section: "6.4", Says: "An answer with answers and cancel settles nothing.", run: questionBad(obj{"cancel": true, "answers": list{obj{"id": "database", "labels": list{"SQLite"}}}})},
		{ID: "unknown-label", Section: "6.4", Says: "A label that was not offered settles nothing.", run: questionBad(obj{"answers": list{obj{"id": "database", "labels": list{"Oracle"}}}})},
		{ID: "unknown-question", Section: "6.4", Says: "An answer to a question that was not asked settles nothing.", run: questionBad(obj{"answers": list{obj{"id": "none", "labels": list{"SQLite"}}}})},
		{ID: "unknown", Section: "6.1", Says: "An id that is not pending is question-not-pending.", run: questionUnknown},
		{ID: "not-approval", Section: "6.5", Says: "A question is not answered by approval.respond.", run: questionNotApproval},
		{ID: "withdrawn", Section: "6.4", Says: "A cancelled turn settles its question: cancelled, abort.", run: questionWithdrawn},
		{ID: "replay", Section: "4, 6.3", Says: "An open question is repeated to a client that comes back, with the same id.", run: questionReplay},
		{ID: "audit", Section: "6.7", Says: "Question and answer are durable events: question/asked, question/decided.", run: questionAudit},
	}
}

func questionCard(t *T) {
	p := t.dial()
	root, q, _ := t.tour(p)
	t.must(q.str("rootSessionId") == root.id && q.num("depth") == 0 && q.str("turnId") != "" && isTime(q.str("askedAt")), "root, depth 0, turnId, askedAt", q)
	t.equal("questions.0.id", q.str("questions.0.id"), "database")
	t.must(q.str("questions.0.question") != "" && q.str("questions.0.options.1.label") == "Postgres", "a question with options", q)
}

// reply answers the tour's question.
func (p *peer) choose(q obj, label string) reply {
	return p.call("question.respond", obj{"sessionId": q.str("sessionId"), "id": q.str("id"), "answers": list{obj{"id": "database", "labels": list{label}}}})
}

func questionAnswered(t *T) {
	p, other := t.dial(), t.dial()
	root, q, card := t.tour(p)
	r := other.choose(q, "Postgres")
	t.must(r.obj().flag("accepted"), "accepted: true", r.String())
	f := p.frame("question/resolved", root).params
	t.must(f.str("outcome") == "answered" && f.str("origin") == "reply" && f.str("by.clientId") != "", "answered by reply, by whom", f)
	t.equal("answers", f.get("answers"), list{obj{"id": "database", "labels": list{"Postgres"}}})
	p.allow(card, "rejected")
	t.equal("reason", p.event(root, "turn/end").str("data.reason"), "completed")
}

func questionCancelled(t *T) {
	p := t.dial()
	root, q, card := t.tour(p)
	p.ok("question.respond", obj{"sessionId": root.id, "id": q.str("id"), "cancel": true})
	f := p.frame("question/resolved", root).params
	t.must(f.str("outcome") == "cancelled" && f.str("origin") == "reply", "cancelled by reply", f)
	p.allow(card, "rejected")
	t.equal("reason", p.event(root, "turn/end").str("data.reason"), "completed")
}

func questionLate(t *T) {
	p, other := t.dial(), t.dial()
	_, q, _ := t.tour(p)
	p.choose(q, "SQLite")
	r := other.choose(q, "Postgres")
	if r.kind() != "question-not-pending" {
		t.fail("question-not-pending", "%s", r)
	}
	d := r.err.data.obj("details")
	t.must(d.str("outcome") == "answered" && d.str("by.clientId") == p.ok("host.describe", obj{}).str("you.clientId"), "details: answered, by the winner", d)
}

func questionRace(t *T) {
	p := t.dial()
	_, q, _ := t.tour(p)
	peers := []*peer{p, t.dial(), t.dial(), t.dial()}
	var calls []string
	for i, c := range peers {
		calls = append(calls, c.send("question.respond", obj{
			"sessionId": q.str("sessionId"), "id": q.str("id"),
			"answers": list{obj{"id": "database", "labels": list{[]string{"SQLite", "Postgres"}[i%2]}}},
		}))
	}
	won := 0
	for i, c := range peers {
		if r := c.response(calls[i]); r.err == nil {
			won++
		} else if r.kind() != "question-not-pending" {
			t.fail("ok or question-not-pending", "%s", r)
		}
	}
	t.equal("winners", won, 1)
}

func questionBad(params obj) func(*T) {
	return func(t *T) {
		p := t.dial()
		_, q, _ := t.tour(p)
		p.refused("question.respond", obj{"sessionId": q.str("sessionId"), "id": q.str("id")}.with(params), "-32602")
		r := p.choose(q, "SQLite")
		t.must(r.err == nil, "the question is still pending", r.String())
	}
}

func questionUnknown(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.refused("question.respond", obj{"sessionId": s.id, "id": "none", "cancel": true}, "question-not-pending")
	p.refused("question.respond", obj{"sessionId": nobodyID, "id": "none", "cancel": true}, "session-not-found")
}

func questionNotApproval(t *T) {
	p := t.dial()
	root, q, _ := t.tour(p)
	p.refused("approval.respond", obj{"sessionId": root.id, "id": q.str("id"), "outcome": "allowed-once"}, "approval-not-pending")
	r := p.choose(q, "SQLite")
	t.must(r.err == nil, "the question is still pending", r.String())
}

func questionWithdrawn(t *T) {
	p := t.dial()
	root, _, _ := t.tour(p)
	p.cancelled(root, nil)
	f := p.frame("question/resolved", root).params
	t.must(f.str("outcome") == "cancelled" && f.str("origin") == "abort", "cancelled by abort", f)
}

func questionReplay(t *T) {
	p := t.dial()
	root, q, _ := t.tour(p)
	p.cut()
	again := t.dial()
	again.subscribe(root)
	t.equal("the card", again.frame("question/requested", root).params, q)
}

func questionAudit(t *T) {
	p := t.dial()
	root, q, _ := t.tour(p)
	p.choose(q, "SQLite")
	e := p.event(root, "question/decided")
	t.must(e.str("data.id") == q.str("id") && e.num("seq") > 0 && e.str("data.outcome") == "answered", "question/decided with id, seq and outcome", e)
	p.at = 0
	e = p.event(root, "question/asked")
	t.must(e.str("data.id") == q.str("id") && e.num("seq") > 0, "question/asked with id and seq", e)
}
