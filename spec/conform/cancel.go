package conform

import "slices"

func cancelChecks() []Check {
	return []Check{
		{ID: "running", Section: "5", Says: "Without turnId the running turn ends cancelled.", run: cancelRunning(func(string) obj { return obj{} })},
		{ID: "turn", Section: "5", Says: "With the turnId of the running turn that one ends cancelled.", run: cancelRunning(func(id string) obj { return obj{"turnId": id} })},
		{ID: "idle", Section: "5", Says: "Where nothing runs, nothing is cancelled.", run: cancelIdle},
		{ID: "over", Section: "5", Says: "A turn that is over cancels nothing.", run: cancelOver},
		{ID: "unknown", Section: "5", Says: "A turn that never was cancels nothing.", run: cancelUnknown},
		{ID: "queued-stay", Section: "5", Says: "Without turnId queued prompts stay, and run.", run: cancelKeepsQueue},
		{ID: "queued", Section: "5", Says: "With the turnId of a queued prompt that prompt is dequeued, and the running turn goes on.", run: cancelQueued},
		{ID: "response-first", Section: "5", Says: "The response means marked: it precedes turn/end.", run: cancelResponseFirst},
		{ID: "withdraws", Section: "6", Says: "A cancelled turn settles its requests: cancelled, abort.", run: cancelWithdraws},
		{ID: "withdraws-order", Section: "6", Says: "The requests of a cancelled turn are settled before its turn/end.", run: cancelSettlesFirst},
		{ID: "tree", Section: "5, 6", Says: "A cancelled turn takes what it caused with it: descendants end cancelled, their requests by cascade.", run: cancelTree},
		{ID: "tree-order", Section: "5", Says: "The turn/end of a cancelled turn follows every descendant's.", run: cancelTreeOrder},
		{ID: "twice", Section: "5", Says: "A second cancel does not touch the prompt that came after the first.", run: cancelTwice},
		{ID: "tools", Section: "3", Says: "After a cancelled turn every tool call has its result.", run: cancelTools},
	}
}

// holding makes a session with a running turn, and returns its turnId.
func (t *T) holding() (session, *peer, string) {
	p := t.dial()
	s := t.session(p, holds)
	p.subscribe(s)
	p.frame("session/live", s)
	turn := p.prompt(s, "go").str("turnId")
	p.event(s, "assistant/delta")
	return s, p, turn
}

// cancelled makes a session.cancel and returns what it says.
func (p *peer) cancelled(s session, more obj) bool {
	r := p.ok("session.cancel", obj{"sessionId": s.id}.with(more))
	p.t.must(r.has("cancelled"), "cancelled", r)
	return r.flag("cancelled")
}

func cancelRunning(params func(turn string) obj) func(*T) {
	return func(t *T) {
		s, p, turn := t.holding()
		t.must(p.cancelled(s, params(turn)), "cancelled: true", "false")
		e := p.event(s, "turn/end")
		t.must(e.str("data.reason") == "cancelled" && e.str("turnId") == turn, "turn/end cancelled of that turn", e)
	}
}

func cancelIdle(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	t.must(!p.cancelled(s, nil), "cancelled: false", "true")
}

func cancelOver(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	turn := p.prompt(s, "hi").str("turnId")
	p.event(s, "turn/end")
	t.must(!p.cancelled(s, obj{"turnId": turn}), "cancelled: false", "true")
}

func cancelUnknown(t *T) {
	s, p, turn := t.holding()
	t.must(!p.cancelled(s, obj{"turnId": "none"}), "cancelled: false", "true")
	t.must(p.cancelled(s, obj{"turnId": turn}), "the running turn goes on until it is cancelled", "false")
}

func cancelKeepsQueue(t *T) {
	s, p, _ := t.holding()
	next := p.prompt(s, "next").str("turnId")
	p.cancelled(s, nil)
	p.event(s, "turn/end")
	t.equal("turnId of the next turn", p.event(s, "turn/start").str("turnId"), next)
}

func cancelQueued(t *T) {
	s, p, turn := t.holding()
	q := p.prompt(s, "next")
	t.must(p.cancelled(s, obj{"turnId": q.str("turnId")}), "cancelled: true", "false")
	e := p.event(s, "prompt/dequeued")
	t.must(e.str("data.promptId") == q.str("promptId") && e.str("data.reason") == "cancelled", "the prompt's id, reason cancelled", e)
	t.must(p.cancelled(s, obj{"turnId": turn}), "the running turn goes on until it is cancelled", "false")
	p.event(s, "turn/end")
	t.equal("turns", t.turns(p, s), 1)
}

func cancelResponseFirst(t *T) {
	s, p, _ := t.holding()
	from := p.mark()
	r := p.answered("session.cancel", obj{"sessionId": s.id})
	for _, m := range p.since(from)[:r.at-from] {
		t.must(m.event.str("type") != "turn/end", "the response, then turn/end", string(m.raw))
	}
	p.event(s, "turn/end")
}

func cancelWithdraws(t *T) {
	s, p := t.asking(2)
	p.cancelled(s, nil)
	for range 2 {
		f := p.frame("approval/resolved", s).params
		t.must(f.str("outcome") == "cancelled" && f.str("origin") == "abort", "cancelled by abort", f)
	}
	e := p.event(s, "turn/end")
	t.equal("reason", e.str("data.reason"), "cancelled")
}

func cancelSettlesFirst(t *T) {
	s, p := t.asking(1)
	p.cancelled(s, nil)
	p.event(s, "turn/end")
	names := p.names(s, 0)
	t.must(slices.Index(names, "approval/decided") >= 0 && slices.Index(names, "approval/decided") < slices.Index(names, "turn/end"), "approval/decided, then turn/end", names)
}

// tour starts the demonstration: a question at the root, and an approval two
// levels below it. It returns the cards.
func (t *T) tour(p *peer) (root session, question, approval obj) {
	root = t.session(p, echoes)
	p.subscribe(root, obj{"tree": true})
	from := p.at
	p.prompt(root, "show me")
	question = p.frame("question/requested", root).params
	p.at = from
	approval = p.wait("approval/requested of a grandchild", func(m message) bool {
		return m.method == "approval/requested" && m.params.num("depth") == 2
	}).params
	return root, question, approval
}

func cancelTree(t *T) {
	p := t.dial()
	root, question, approval := t.tour(p)
	p.cancelled(root, nil)
	for id, origin := range map[string]string{question.str("id"): "abort", approval.str("id"): "cascade"} {
		m, ok := p.find(0, t.deadline(), func(m message) bool {
			return (m.method == "approval/resolved" || m.method == "question/resolved") && m.params.str("id") == id
		})
		t.must(ok, "a resolved frame of each request", p.recent())
		t.must(m.params.str("outcome") == "cancelled" && m.params.str("origin") == origin, "cancelled by "+origin, m.params)
	}
	below := session{id: approval.str("sessionId")}
	end, ok := p.find(0, t.deadline(), func(m message) bool {
		return m.event.str("type") == "turn/end" && m.params.str("sessionId") == below.id
	})
	t.must(ok && end.event.str("data.reason") == "cancelled", "the grandchild's turn/end cancelled", p.recent())
}

func cancelTreeOrder(t *T) {
	p := t.dial()
	root, _, approval := t.tour(p)
	p.cancelled(root, nil)
	p.event(root, "turn/end")
	// The order holds in the logs: when the root's end is there, the others are.
	for _, s := range idsOf(p.ok("sessions.list", obj{"tree": root.id})) {
		last := p.ok("session.history", obj{"sessionId": s, "limit": 50}).objs("events")
		t.must(slices.ContainsFunc(last, func(e obj) bool { return e.str("type") == "turn/end" }), "turn/end in every log of the tree", s)
	}
	t.equal("state of the grandchild", p.ok("session.get", obj{"sessionId": approval.str("sessionId")}).str("session.state"), "idle")
}

func cancelTwice(t *T) {
	s, p, turn := t.holding()
	p.cancelled(s, obj{"turnId": turn})
	p.event(s, "turn/end")
	next := p.prompt(s, "next").str("turnId")
	p.event(s, "assistant/delta")
	t.must(!p.cancelled(s, obj{"turnId": turn}), "cancelled: false", "true")
	t.must(p.cancelled(s, obj{"turnId": next}), "the new turn still runs", "it did not")
}

func cancelTools(t *T) {
	s, p := t.asking(2)
	p.cancelled(s, nil)
	p.event(s, "turn/end")
	open := map[string]bool{}
	for _, e := range p.eventsOf(s, 0) {
		switch e.str("type") {
		case "tool/call":
			open[e.str("data.callId")] = true
		case "tool/result":
			delete(open, e.str("data.callId"))
		}
	}
	t.must(len(open) == 0, "a tool/result for every tool/call", slices.Sorted(keysOf(open)))
}
