package conform

import (
	"encoding/json"
	"slices"
)

func forkChecks() []Check {
	return []Check{
		{ID: "summary", Section: "1, 5", Says: "A fork has the origin fork and its source as parent.", run: forkSummary},
		{ID: "created", Section: "5", Says: "A fork has its own session/created at seq 1, with forkedFrom.", run: forkCreated},
		{ID: "copies", Section: "5", Says: "Copies of the source's events follow, renumbered from 2.", run: forkCopies},
		{ID: "last", Section: "5", Says: "Without at a fork goes on from the last turn/end.", run: forkLast},
		{ID: "not-turn-end", Section: "5, 7", Says: "at that is no turn/end is fork-not-at-turn-end.", run: forkNotTurnEnd},
		{ID: "no-turn", Section: "7", Says: "A session without a turn cannot be forked.", run: forkNoTurn},
		{ID: "unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.fork", nil)},
		{ID: "goes-on", Section: "5", Says: "A fork runs turns of its own, and the source does not notice.", run: forkGoesOn},
		{ID: "source-deleted", Section: "5", Says: "Deleting the source does not touch the fork.", run: forkSourceDeleted},
		{ID: "while-running", Section: "5", Says: "A source may be forked while it runs.", run: forkWhileRunning},
	}
}

// twoTurns makes a session with two turns, and returns the seqs of their ends.
func (t *T) twoTurns() (s session, p *peer, ends []int64) {
	s, p, _ = t.echoed("one")
	p.turn(s, "two")
	for _, e := range only(p.eventsOf(s, 0), "turn/end") {
		ends = append(ends, e.num("seq"))
	}
	return s, p, ends
}

// fork forks a session.
func (t *T) fork(p *peer, s session, more obj) session {
	return t.made(p.ok("session.fork", obj{"sessionId": s.id}.with(more)))
}

// log returns the events of a session.
func (p *peer) log(s session) []obj {
	return p.ok("session.history", obj{"sessionId": s.id, "after": 0, "limit": 1000}).objs("events")
}

func forkSummary(t *T) {
	s, p, ends := t.twoTurns()
	f := t.fork(p, s, obj{"at": ends[0]}).summary
	for k, want := range map[string]any{"origin": "fork", "parentSessionId": s.id, "rootSessionId": s.id, "state": "idle", "agent": t.r.opt.Agent, "cwd": s.summary.str("cwd")} {
		t.equal(k, f.get(k), want)
	}
	t.must(f.str("sessionId") != s.id && isUUID7(f.str("sessionId")), "a session of its own", f)
}

func forkCreated(t *T) {
	s, p, ends := t.twoTurns()
	e := p.log(t.fork(p, s, obj{"at": ends[0]}))[0]
	t.must(e.num("seq") == 1 && e.str("type") == "session/created" && e.str("data.origin") == "fork", "session/created of origin fork", e)
	t.equal("forkedFrom", e.get("data.forkedFrom"), obj{"sessionId": s.id, "seq": ends[0]})
}

func forkCopies(t *T) {
	s, p, ends := t.twoTurns()
	source := p.log(s)
	copies := p.log(t.fork(p, s, obj{"at": ends[0]}))[1:]
	t.equal("copies", int64(len(copies)), ends[0])
	for i, e := range copies {
		t.equal("seq", e.num("seq"), int64(i)+2)
		t.equal("the copy", e.without("seq"), source[i].without("seq"))
	}
}

func forkLast(t *T) {
	s, p, ends := t.twoTurns()
	log := p.log(t.fork(p, s, nil))
	t.equal("forkedFrom.seq", log[0].num("data.forkedFrom.seq"), ends[1])
	t.equal("the last event", log[len(log)-1].str("type"), "turn/end")
}

func forkNotTurnEnd(t *T) {
	s, p, ends := t.twoTurns()
	for _, at := range []int64{1, ends[0] - 1, ends[0] + 1, ends[1] + 1000} {
		p.refused("session.fork", obj{"sessionId": s.id, "at": at}, "fork-not-at-turn-end")
	}
	t.equal("sessions in the tree", len(idsOf(p.ok("sessions.list", obj{"tree": s.id}))), 1)
}

func forkNoTurn(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.refused("session.fork", obj{"sessionId": s.id}, "fork-not-at-turn-end")
}

func forkGoesOn(t *T) {
	s, p, ends := t.twoTurns()
	before := p.log(s)
	f := t.fork(p, s, obj{"at": ends[0]})
	p.subscribe(f)
	p.frame("session/live", f)
	p.turn(f, "another way")
	t.equal("the source's log", p.log(s), before)
	got := seqs(p.eventsOf(f, 0))
	t.equal("the fork's seqs", got, upTo(1, int64(len(got))))
}

func forkSourceDeleted(t *T) {
	s, p, ends := t.twoTurns()
	f := t.fork(p, s, obj{"at": ends[0]})
	before := p.log(f)
	p.ok("session.delete", obj{"sessionId": s.id})
	t.equal("the fork's log", p.log(f), before)
}

func forkWhileRunning(t *T) {
	s, p := t.asking(1)
	p.stillPending(p.asked(s))
	p.event(s, "turn/end")
	p.prompt(s, "again")
	p.card(s)
	log := p.log(t.fork(p, s, nil))
	t.equal("the last event", log[len(log)-1].str("type"), "turn/end")
	t.must(!slices.ContainsFunc(p.waiting(session{id: log[0].str("data.parentSessionId")}), func(w obj) bool { return w.str("sessionId") != s.id }), "no request in the fork", "one")
}

func exportChecks() []Check {
	return []Check{
		{ID: "jsonl", Section: "5", Says: "jsonl holds every event, a line each.", run: exportLines},
		{ID: "markdown", Section: "5", Says: "markdown holds what was said.", run: exportMarkdown},
		{ID: "format", Section: "5", Says: "Another format is -32602.", run: exportFormat},
		{ID: "unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.export", obj{"format": "jsonl"})},
		{ID: "same", Section: "5", Says: "The same log gives the same blob.", run: exportSame},
	}
}

func exportLines(t *T) {
	s, p, _ := t.echoed("exported é")
	r := p.ok("session.export", obj{"sessionId": s.id, "format": "jsonl"})
	whole := p.blob(r.str("blob"))
	t.must(int64(len(whole)) == r.num("bytes") && r.str("mimeType") != "", "bytes and mimeType", r)
	var events []obj
	for line := range slices.Values(splitLines(whole)) {
		var e obj
		t.must(json.Unmarshal(line, &e) == nil, "a JSON object in each line", clip(string(line)))
		events = append(events, e)
	}
	t.equal("the events", events, p.log(s))
	t.equal("head", r.num("head"), events[len(events)-1].num("seq"))
}

func exportMarkdown(t *T) {
	word := unique()
	s, p, _ := t.echoed(word)
	r := p.ok("session.export", obj{"sessionId": s.id, "format": "markdown"})
	whole := string(p.blob(r.str("blob")))
	t.must(contains(whole, word, 2), "the prompt and the answer", clip(whole))
}

func exportFormat(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.refused("session.export", obj{"sessionId": s.id, "format": "pdf"}, "-32602")
}

func exportSame(t *T) {
	s, p, _ := t.echoed("hi")
	a := p.ok("session.export", obj{"sessionId": s.id, "format": "jsonl"})
	b := t.dial().ok("session.export", obj{"sessionId": s.id, "format": "jsonl"})
	t.equal("the second export", b, a)
}
