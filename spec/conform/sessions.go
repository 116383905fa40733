package conform

import (
	"fmt"
	"slices"
	"strings"
)

func sessionChecks() []Check {
	return []Check{
		{ID: "create", Section: "1, 5", Says: "session.create returns the summary of a session: a UUIDv7, its lineage, state, head, epoch, times.", run: createSummary},
		{ID: "create-event", Section: "3", Says: "The first event of a session is session/created.", run: createEvent},
		{ID: "create-stored", Section: "8.2", Says: "What a call returned success for is there: get, list and history show it.", run: createStored},
		{ID: "create-child", Section: "1", Says: "A session with a parent has its lineage: parent, root, depth.", run: createChild},
		{ID: "create-no-parent", Section: "7", Says: "A parent that does not exist is session-not-found.", run: createNoParent},
		{ID: "create-no-agent", Section: "7", Says: "An agent that does not exist is agent-unavailable.", run: createNoAgent},
		{ID: "create-cwd-relative", Section: "5", Says: "A cwd that is no absolute path is refused.", run: createBadCwd("relative/path")},
		{ID: "create-cwd-missing", Section: "5", Says: "A cwd that does not exist is refused.", run: createBadCwd("/no/such/directory-" + "conform")},
		{ID: "request-id", Section: "5", Says: "The same requestId again returns the same session.", run: requestID},
		{ID: "request-id-race", Section: "5", Says: "The same requestId from many clients at once makes one session.", run: requestIDRace},
		{ID: "get", Section: "5", Says: "session.get returns the summary.", run: getSummary},
		{ID: "get-view", Section: "5", Says: "session.get with view returns the fold and its seq.", run: getView},
		{ID: "get-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.get", nil)},
		{ID: "history-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.history", nil)},
		{ID: "prompt-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.prompt", obj{"content": say("x")})},
		{ID: "cancel-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.cancel", nil)},
		{ID: "configure-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.configure", obj{"title": "x"})},
		{ID: "close-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.close", nil)},
		{ID: "delete-unknown", Section: "7", Says: "A session that does not exist is session-not-found.", run: unknownSession("session.delete", nil)},
		{ID: "list-newest", Section: "5", Says: "sessions.list gives the newest first.", run: listNewest},
		{ID: "list-pages", Section: "5", Says: "Pages of a list hold each session once, and the last has no next.", run: listPages},
		{ID: "list-roots", Section: "5", Says: "roots leaves out sessions with a parent; parent and tree choose by lineage.", run: listLineage},
		{ID: "list-state", Section: "5", Says: "state chooses by what a session does now.", run: listState},
		{ID: "list-text", Section: "5", Says: "text finds sessions by title.", run: listText},
		{ID: "history-after", Section: "5", Says: "session.history after gives the events behind a seq, in order, as many as the limit.", run: historyAfter},
		{ID: "history-before", Section: "5", Says: "session.history before gives the last events before a seq.", run: historyBefore},
		{ID: "history-pages", Section: "5", Says: "Pages of a history hold each event once, and more is honest.", run: historyPages},
		{ID: "history-bytes", Section: "5", Says: "maxBytes bounds a page of history.", run: historyBytes},
		{ID: "configure-title", Section: "5", Says: "session.configure changes the title, and the log says so: session/renamed.", run: configureTitle},
		{ID: "configure-labels", Section: "5", Says: "session.configure changes labels, and the log says so: session/configured.", run: configureLabels},
		{ID: "configure-keeps", Section: "5", Says: "What session.configure does not name stays.", run: configureKeeps},
		{ID: "close", Section: "1, 5", Says: "A closed session is cold: its log stays, session/closed ends it.", run: closeKeepsLog},
		{ID: "close-running", Section: "5", Says: "The response to close comes when agent and log are really closed: the turn has ended.", run: closeRunning},
		{ID: "close-wake", Section: "1", Says: "session.prompt wakes a cold session.", run: closeWake},
		{ID: "delete", Section: "5", Says: "A deleted session is gone for every method, and subscribers are told session/unsubscribed deleted.", run: deleteGone},
		{ID: "delete-tree", Section: "5", Says: "delete with tree takes the descendants too; without it they stay.", run: deleteTree},
	}
}

func createSummary(t *T) {
	p := t.dial()
	s := t.session(p, echoes, obj{"title": "A title é", "labels": obj{"k": "v é"}})
	sum := s.summary
	t.must(isUUID7(s.id), "a UUIDv7", s.id)
	t.equal("rootSessionId", sum.str("rootSessionId"), s.id)
	t.must(!sum.has("parentSessionId") && sum.num("depth") == 0, "no parent, depth 0", sum)
	for k, want := range map[string]any{"origin": "user", "agent": t.r.opt.Agent, "title": "A title é", "state": "idle", "pending": 0, "pendingBelow": 0, "head": 1, "labels": obj{"k": "v é"}} {
		t.equal(k, sum.get(k), want)
	}
	t.must(sum.str("cwd") != "" && s.epoch != "", "cwd and epoch", sum)
	t.must(isTime(sum.str("createdAt")) && isTime(sum.str("updatedAt")), "times in RFC 3339 UTC with milliseconds", sum)
}

func createEvent(t *T) {
	p := t.dial()
	s := t.session(p, echoes, obj{"title": "x", "labels": obj{"a": "b"}})
	h := p.ok("session.history", obj{"sessionId": s.id, "after": 0})
	e := h.obj("events.0")
	t.must(e.str("type") == "session/created" && e.num("seq") == 1, "session/created with seq 1", h)
	for k, want := range map[string]any{"agent": t.r.opt.Agent, "title": "x", "origin": "user", "rootSessionId": s.id, "depth": 0, "labels": obj{"a": "b"}} {
		t.equal("data."+k, e.get("data."+k), want)
	}
	t.must(e.str("by.clientId") != "", "by names the client that caused it", e)
}

func createStored(t *T) {
	p, other := t.dial(), t.dial()
	title := unique()
	s := t.session(p, echoes, obj{"title": title})
	t.equal("sessionId of get", other.ok("session.get", obj{"sessionId": s.id}).str("session.sessionId"), s.id)
	t.equal("sessions of list", other.ok("sessions.list", obj{"text": title}).str("sessions.0.sessionId"), s.id)
	t.equal("head of history", other.ok("session.history", obj{"sessionId": s.id}).num("head"), 1)
}

func createChild(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	child := t.session(p, echoes, obj{"parentSessionId": root.id})
	below := t.session(p, echoes, obj{"parentSessionId": child.id})
	t.equal("parentSessionId", below.summary.str("parentSessionId"), child.id)
	t.equal("rootSessionId", below.summary.str("rootSessionId"), root.id)
	t.equal("depth", below.summary.num("depth"), 2)
}

func createNoParent(t *T) {
	t.dial().refused("session.create", t.create(echoes).with(obj{"parentSessionId": nobodyID}), "session-not-found")
}

func createNoAgent(t *T) {
	t.dial().refused("session.create", t.create(echoes).with(obj{"agent": "no-such-agent"}), "agent-unavailable")
}

func createBadCwd(dir string) func(*T) {
	return func(t *T) { t.dial().refused("session.create", t.create(echoes).with(obj{"cwd": dir}), "-32602") }
}

// nobodyID names a session that nobody has.
const nobodyID = "00000000-0000-7000-8000-000000000000"

func unknownSession(method string, more obj) func(*T) {
	return func(t *T) { t.dial().refused(method, obj{"sessionId": nobodyID}.with(more), "session-not-found") }
}

func requestID(t *T) {
	p := t.dial()
	id := unique()
	a := t.session(p, echoes, obj{"requestId": id})
	b := t.session(t.dial(), echoes, obj{"requestId": id})
	t.equal("the second sessionId", b.id, a.id)
	t.must(t.session(p, echoes, obj{"requestId": id + "2"}).id != a.id, "another session for another requestId", a.id)
}

func requestIDRace(t *T) {
	id := unique()
	peers := []*peer{t.dial(), t.dial(), t.dial(), t.dial()}
	var calls []string
	for _, p := range peers {
		calls = append(calls, p.send("session.create", t.create(echoes).with(obj{"requestId": id})))
	}
	seen := map[string]bool{}
	for i, p := range peers {
		seen[t.made(p.response(calls[i]).obj()).id] = true
	}
	t.must(len(seen) == 1, "one session", slices.Sorted(keysOf(seen)))
}

func getSummary(t *T) {
	p := t.dial()
	s := t.session(p, echoes, obj{"title": "t"})
	got := p.ok("session.get", obj{"sessionId": s.id}).obj("session")
	for _, k := range []string{"sessionId", "rootSessionId", "depth", "origin", "agent", "cwd", "title", "epoch", "createdAt", "head"} {
		t.equal(k, got.get(k), s.summary.get(k))
	}
}

func getView(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.turn(s, "hi")
	g := p.ok("session.get", obj{"sessionId": s.id, "view": true})
	t.must(g.obj("view") != nil, "a view", g)
	t.equal("seq", g.num("seq"), g.num("session.head"))
	t.must(!p.ok("session.get", obj{"sessionId": s.id}).has("view"), "no view unasked", g)
}

func listNewest(t *T) {
	p := t.dial()
	mark := unique()
	var want []string
	for range 4 {
		want = append([]string{t.session(p, echoes, obj{"title": mark}).id}, want...)
	}
	t.equal("sessions", idsOf(p.ok("sessions.list", obj{"text": mark})), want)
}

// idsOf returns the ids of a list of sessions.
func idsOf(res obj) []string {
	out := []string{}
	for _, s := range res.objs("sessions") {
		out = append(out, s.str("sessionId"))
	}
	return out
}

func listPages(t *T) {
	p := t.dial()
	mark := unique()
	var want, got []string
	for range 5 {
		want = append([]string{t.session(p, echoes, obj{"title": mark}).id}, want...)
	}
	params := obj{"text": mark, "limit": 2}
	for pages := 1; ; pages++ {
		res := p.ok("sessions.list", params)
		t.must(len(res.list("sessions")) <= 2 && pages <= 3, "at most 2 in a page, 3 pages", res)
		got = append(got, idsOf(res)...)
		if res.str("next") == "" {
			break
		}
		params = params.with(obj{"cursor": res.str("next")})
	}
	t.equal("all pages", got, want)
}

func listLineage(t *T) {
	p := t.dial()
	mark := obj{"title": unique()}
	root := t.session(p, echoes, mark)
	child := t.session(p, echoes, mark, obj{"parentSessionId": root.id})
	below := t.session(p, echoes, mark, obj{"parentSessionId": child.id})
	by := obj{"text": mark.str("title")}
	t.equal("roots", idsOf(p.ok("sessions.list", by.with(obj{"roots": true}))), []string{root.id})
	t.equal("parent", idsOf(p.ok("sessions.list", by.with(obj{"parent": child.id}))), []string{below.id})
	t.equal("tree", idsOf(p.ok("sessions.list", by.with(obj{"tree": child.id}))), []string{below.id, child.id})
}

func listState(t *T) {
	p := t.dial()
	mark := obj{"title": unique()}
	idle := t.session(p, echoes, mark)
	busy := t.session(p, holds, mark)
	p.subscribe(busy)
	p.prompt(busy, "go")
	p.event(busy, "turn/start")
	by := obj{"text": mark.str("title")}
	t.equal("running", idsOf(p.ok("sessions.list", by.with(obj{"state": "running"}))), []string{busy.id})
	t.equal("idle", idsOf(p.ok("sessions.list", by.with(obj{"state": "idle"}))), []string{idle.id})
}

func listText(t *T) {
	p := t.dial()
	mark := unique()
	s := t.session(p, echoes, obj{"title": "before " + mark + " after"})
	t.equal("found", idsOf(p.ok("sessions.list", obj{"text": mark})), []string{s.id})
	t.equal("not found", idsOf(p.ok("sessions.list", obj{"text": mark + "x"})), []string{})
}

// long makes a session with many events, and returns it with its head.
func (t *T) long(p *peer, turns int) (session, int64) {
	s := t.session(p, echoes)
	p.subscribe(s)
	for range turns {
		p.turn(s, "hi")
	}
	return s, p.ok("session.get", obj{"sessionId": s.id}).num("session.head")
}

// seqs returns the seqs of events.
func seqs(events []obj) []int64 {
	out := []int64{}
	for _, e := range events {
		if e.has("seq") {
			out = append(out, e.num("seq"))
		}
	}
	return out
}

// upTo returns the numbers from … to.
func upTo(from, to int64) []int64 {
	out := []int64{}
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

func historyAfter(t *T) {
	p := t.dial()
	s, head := t.long(p, 2)
	h := p.ok("session.history", obj{"sessionId": s.id, "after": 2, "limit": 3})
	t.equal("seqs", seqs(h.objs("events")), upTo(3, 5))
	t.must(h.num("first") == 1 && h.num("head") == head && h.flag("more"), fmt.Sprint("first 1, head ", head, ", more"), h.without("events"))
	h = p.ok("session.history", obj{"sessionId": s.id, "after": head})
	t.must(len(h.list("events")) == 0 && !h.flag("more"), "nothing behind the head", h)
}

func historyBefore(t *T) {
	p := t.dial()
	s, _ := t.long(p, 2)
	h := p.ok("session.history", obj{"sessionId": s.id, "before": 6, "limit": 3})
	t.equal("seqs", seqs(h.objs("events")), upTo(3, 5))
	t.must(h.flag("more"), "more", h.without("events"))
	h = p.ok("session.history", obj{"sessionId": s.id, "before": 3, "limit": 10})
	t.equal("seqs", seqs(h.objs("events")), upTo(1, 2))
	t.must(!h.flag("more"), "no more before the first", h.without("events"))
}

func historyPages(t *T) {
	p := t.dial()
	s, head := t.long(p, 3)
	var got []int64
	for after := int64(0); ; {
		h := p.ok("session.history", obj{"sessionId": s.id, "after": after, "limit": 4})
		got = append(got, seqs(h.objs("events"))...)
		if !h.flag("more") {
			break
		}
		t.must(len(h.list("events")) == 4, "whole pages while there is more", h)
		after = got[len(got)-1]
	}
	t.equal("all pages", got, upTo(1, head))
}

func historyBytes(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.turn(s, strings.Repeat("word ", 2000))
	h := p.ok("session.history", obj{"sessionId": s.id, "after": 0, "maxBytes": 4096})
	size := 0
	for _, e := range h.list("events")[:max(0, len(h.list("events"))-1)] {
		size += len(text(e))
	}
	t.must(size <= 4096 && h.flag("more"), "a page of about 4096 bytes, and more", fmt.Sprint(size, " bytes before the last event"))
}

func configureTitle(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	res := p.ok("session.configure", obj{"sessionId": s.id, "title": "new name"})
	t.equal("title", res.str("session.title"), "new name")
	t.equal("the event's title", p.event(s, "session/renamed").str("data.title"), "new name")
}

func configureLabels(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	res := p.ok("session.configure", obj{"sessionId": s.id, "labels": obj{"a": "1", "é": "ü"}})
	t.equal("labels", res.get("session.labels"), obj{"a": "1", "é": "ü"})
	t.equal("the event's labels", p.event(s, "session/configured").get("data.labels"), obj{"a": "1", "é": "ü"})
}

func configureKeeps(t *T) {
	p := t.dial()
	s := t.session(p, echoes, obj{"title": "kept", "labels": obj{"k": "v"}})
	p.ok("session.configure", obj{"sessionId": s.id, "policy": obj{"mode": "deny"}})
	got := p.ok("session.get", obj{"sessionId": s.id}).obj("session")
	t.must(got.str("title") == "kept" && got.str("labels.k") == "v", "title and labels as before", got)
}

func closeKeepsLog(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	events := p.turn(s, "hi")
	last := seqs(events)
	p.ok("session.close", obj{"sessionId": s.id})
	h := p.ok("session.history", obj{"sessionId": s.id, "after": last[len(last)-1]})
	t.must(h.str("events.0.type") == "session/closed", "session/closed behind the last turn", h)
	t.must(slices.Contains(idsOf(p.ok("sessions.list", obj{"tree": s.id})), s.id), "the closed session in the list", s.id)
}

func closeRunning(t *T) {
	p := t.dial()
	s := t.session(p, holds)
	p.subscribe(s)
	p.prompt(s, "go")
	p.event(s, "turn/start")
	p.ok("session.close", obj{"sessionId": s.id})
	var kinds []string
	for _, e := range p.ok("session.history", obj{"sessionId": s.id, "after": 0}).objs("events") {
		kinds = append(kinds, e.str("type"))
	}
	t.must(slices.Contains(kinds, "turn/end"), "turn/end in the log", kinds)
	t.equal("state", p.ok("session.get", obj{"sessionId": s.id}).str("session.state"), "idle")
}

func closeWake(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.turn(s, "hi")
	p.ok("session.close", obj{"sessionId": s.id})
	p.turn(s, "again")
}

func deleteGone(t *T) {
	p, other := t.dial(), t.dial()
	s := t.session(p, echoes)
	other.subscribe(s)
	p.ok("session.delete", obj{"sessionId": s.id})
	m := other.frame("session/unsubscribed", s)
	t.equal("reason", m.params.str("reason"), "deleted")
	for _, method := range []string{"session.get", "session.history", "session.close"} {
		p.refused(method, obj{"sessionId": s.id}, "session-not-found")
	}
	p.refused("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id}}}, "session-not-found")
}

func deleteTree(t *T) {
	p := t.dial()
	root := t.session(p, echoes)
	child := t.session(p, echoes, obj{"parentSessionId": root.id})
	below := t.session(p, echoes, obj{"parentSessionId": child.id})
	p.ok("session.delete", obj{"sessionId": child.id, "tree": true})
	p.refused("session.get", obj{"sessionId": child.id}, "session-not-found")
	p.refused("session.get", obj{"sessionId": below.id}, "session-not-found")
	again := t.session(p, echoes, obj{"parentSessionId": root.id})
	p.ok("session.delete", obj{"sessionId": root.id})
	p.ok("session.get", obj{"sessionId": again.id})
}
