package conform

import (
	"slices"
	"strings"
)

func promptChecks() []Check {
	return []Check{
		{ID: "accepted", Section: "5", Says: "A prompt is accepted with promptId and turnId; an idle session starts it at once.", run: promptAccepted},
		{ID: "own-id", Section: "5", Says: "A promptId of the client's own is taken over, in the answer and in the log.", run: promptOwnID},
		{ID: "same-id", Section: "5", Says: "The same promptId again returns the first answer and runs nothing.", run: promptSameID},
		{ID: "same-id-later", Section: "5", Says: "A promptId is remembered as long as the session exists, also when it is closed meanwhile.", run: promptSameIDLater},
		{ID: "same-id-race", Section: "5", Says: "The same promptId from many clients at once runs one turn.", run: promptRace},
		{ID: "conflict-content", Section: "5, 7", Says: "The same promptId with other content is request-id-conflict.", run: promptConflict(obj{"content": say("other")})},
		{ID: "conflict-mode", Section: "5, 7", Says: "The same promptId with another mode is request-id-conflict.", run: promptConflict(obj{"mode": "inject"})},
		{ID: "id-scope", Section: "5", Says: "A promptId is scoped to its session.", run: promptScope},
		{ID: "queued", Section: "5", Says: "A prompt for a running session is queued: prompt/queued, and it runs when the turn has ended.", run: promptQueued},
		{ID: "queue-order", Section: "5", Says: "Queued prompts run in the order in which they were accepted.", run: promptOrder},
		{ID: "steer-idle", Section: "5", Says: "A steer with no running turn becomes a prompt.", run: steerIdle},
		{ID: "steer-untaken", Section: "5", Says: "A steer not taken at a normal end becomes the next prompt, with the same promptId.", run: steerUntaken},
		{ID: "steer-cancelled", Section: "5", Says: "A steer not taken when its turn is cancelled is dequeued with reason cancelled.", run: steerCancelled},
		{ID: "inject", Section: "5", Says: "inject adds context/message and runs no turn.", run: promptInject},
		{ID: "content", Section: "5", Says: "Blocks of every kind arrive in user/message as they were sent.", run: promptContent},
		{ID: "unicode", Section: "1, 3", Says: "Text travels untouched: any script, quotes, control characters.", run: promptUnicode},
		{ID: "others-see", Section: "3", Says: "Other clients see the prompt and what comes of it, and who sent it.", run: promptOthersSee},
		{ID: "response-first", Section: "2", Says: "The response to a prompt precedes the events of its turn.", run: promptResponseFirst},
		{ID: "large", Section: "3, 7", Says: "A prompt of nearly 1 MiB is accepted or refused as too-large, and changes nothing then.", run: promptLarge},
		{ID: "budget", Section: "5, 7", Says: "A prompt beyond the budget is budget-exceeded, until the budget is raised.", run: promptBudget},
		{ID: "blob-unknown", Section: "7", Says: "A prompt that names a blob which does not exist is blob-not-found.", run: promptNoBlob},
	}
}

func promptAccepted(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	r := p.prompt(s, "hi")
	t.must(r.flag("accepted") && r.str("promptId") != "" && r.str("turnId") != "" && r.get("queued") == false, "accepted, promptId, turnId, queued false", r)
	e := p.event(s, "turn/start")
	t.equal("turnId of turn/start", e.str("turnId"), r.str("turnId"))
	t.equal("promptId of turn/start", e.str("data.promptId"), r.str("promptId"))
	t.equal("reason of turn/end", p.event(s, "turn/end").str("data.reason"), "completed")
}

func promptOwnID(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	id := unique()
	t.equal("promptId", p.prompt(s, "hi", obj{"promptId": id}).str("promptId"), id)
	t.equal("promptId of user/message", p.event(s, "user/message").str("data.promptId"), id)
}

// turns counts the turns that a session began.
func (t *T) turns(p *peer, s session) int {
	n := 0
	for _, e := range p.ok("session.history", obj{"sessionId": s.id, "after": 0, "limit": 1000}).objs("events") {
		if e.str("type") == "turn/start" {
			n++
		}
	}
	return n
}

func promptSameID(t *T) {
	p, other := t.dial(), t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	id := obj{"promptId": unique()}
	first := p.prompt(s, "hi", id)
	p.event(s, "turn/end")
	t.equal("the second answer", p.prompt(s, "hi", id), first)
	t.equal("another client's answer", other.prompt(s, "hi", id), first)
	t.equal("turns", t.turns(p, s), 1)
}

func promptSameIDLater(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	id := obj{"promptId": unique()}
	first := p.prompt(s, "hi", id)
	p.event(s, "turn/end")
	p.ok("session.close", obj{"sessionId": s.id})
	t.equal("the answer after a close", p.prompt(s, "hi", id), first)
	t.equal("turns", t.turns(p, s), 1)
}

func promptRace(t *T) {
	peers := []*peer{t.dial(), t.dial(), t.dial(), t.dial()}
	s := t.session(peers[0], echoes)
	peers[0].subscribe(s)
	id := unique()
	var calls []string
	for _, p := range peers {
		calls = append(calls, p.send("session.prompt", obj{"sessionId": s.id, "content": say("hi"), "promptId": id}))
	}
	var answers []string
	for i, p := range peers {
		r := p.response(calls[i])
		t.must(r.err == nil, "every answer is a result", r.String())
		answers = append(answers, r.obj().str("turnId"))
	}
	t.must(len(slices.Compact(answers)) == 1, "one turnId", answers)
	peers[0].event(s, "turn/end")
	t.equal("turns", t.turns(peers[0], s), 1)
}

func promptConflict(other obj) func(*T) {
	return func(t *T) {
		p := t.dial()
		s := t.session(p, echoes)
		p.subscribe(s)
		id := unique()
		p.prompt(s, "hi", obj{"promptId": id})
		p.event(s, "turn/end")
		p.refused("session.prompt", obj{"sessionId": s.id, "content": say("hi"), "promptId": id}.with(other), "request-id-conflict")
		t.equal("turns", t.turns(p, s), 1)
	}
}

func promptScope(t *T) {
	p := t.dial()
	id := obj{"promptId": unique()}
	a, b := t.session(p, echoes), t.session(p, echoes)
	p.subscribe(b)
	first := p.prompt(a, "one", id).str("turnId")
	t.must(p.prompt(b, "two", id).str("turnId") != first, "a turn of its own", first)
	p.event(b, "turn/end")
}

func promptQueued(t *T) {
	s, p := t.asking(1)
	r := p.prompt(s, "second")
	t.must(r.flag("accepted") && r.flag("queued") && r.str("turnId") != "", "accepted, queued, turnId", r)
	q := p.event(s, "prompt/queued")
	t.equal("promptId of prompt/queued", q.str("data.promptId"), r.str("promptId"))
	t.equal("content of prompt/queued", q.get("data.content"), say("second"))
	p.ok("session.cancel", obj{"sessionId": s.id})
	p.event(s, "turn/end")
	t.equal("turnId of the next turn/start", p.event(s, "turn/start").str("turnId"), r.str("turnId"))
}

func promptOrder(t *T) {
	s, p := t.asking(1)
	var want, got []string
	for _, w := range []string{"a", "b", "c"} {
		want = append(want, p.prompt(s, w).str("promptId"))
	}
	for range 3 {
		p.ok("session.cancel", obj{"sessionId": s.id})
		got = append(got, p.event(s, "turn/start").str("data.promptId"))
	}
	t.equal("prompts in the order of their turns", got, want)
}

func steerIdle(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	r := p.prompt(s, "hi", obj{"mode": "steer"})
	e := p.event(s, "turn/start")
	t.equal("promptId of turn/start", e.str("data.promptId"), r.str("promptId"))
	p.event(s, "turn/end")
}

func steerUntaken(t *T) {
	s, p := t.asking(1)
	r := p.prompt(s, "left", obj{"mode": "steer"})
	p.at = 0
	p.allow(p.card(s), "rejected")
	p.event(s, "turn/end")
	e := p.event(s, "turn/start")
	t.equal("promptId of the next turn", e.str("data.promptId"), r.str("promptId"))
}

func steerCancelled(t *T) {
	s, p := t.asking(1)
	r := p.prompt(s, "left", obj{"mode": "steer"})
	p.ok("session.cancel", obj{"sessionId": s.id})
	e := p.event(s, "prompt/dequeued")
	t.must(e.str("data.promptId") == r.str("promptId") && e.str("data.reason") == "cancelled", "the steer's promptId, reason cancelled", e)
	t.equal("turns", t.turns(p, s), 1)
}

func promptInject(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.prompt(s, "for later", obj{"mode": "inject"})
	e := p.event(s, "context/message")
	t.equal("content", e.get("data.content"), say("for later"))
	t.equal("turns", t.turns(p, s), 0)
}

func promptContent(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	content := list{
		obj{"type": "text", "text": "look"},
		obj{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
		obj{"type": "resource", "uri": "file:///a.txt", "mimeType": "text/plain", "text": "inner"},
		obj{"type": "resource_link", "uri": "https://example.com/x", "name": "x"},
	}
	p.ok("session.prompt", obj{"sessionId": s.id, "content": content})
	t.equal("content of user/message", p.event(s, "user/message").get("data.content"), content)
}

func promptUnicode(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	words := "é€😀 \"quoted\" \\ <b>&amp; \u2028\u2029 \x01\x1f\x7f\t\r\n العربية 漢字 \ufffd end"
	p.prompt(s, words)
	t.equal("content of user/message", p.event(s, "user/message").get("data.content"), say(words))
}

func promptOthersSee(t *T) {
	p, other := t.dial(), t.dial()
	me := p.ok("host.describe", obj{}).str("you.clientId")
	s := t.session(p, echoes)
	other.subscribe(s)
	p.prompt(s, "hi")
	m := other.event(s, "user/message")
	t.equal("content", m.get("data.content"), say("hi"))
	t.equal("by.clientId", m.str("by.clientId"), me)
	other.event(s, "assistant/message")
	other.event(s, "turn/end")
}

func promptResponseFirst(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.frame("session/live", s)
	for range 5 {
		from := p.mark()
		id := p.send("session.prompt", obj{"sessionId": s.id, "content": say("hi")})
		at := p.response(id).at
		for _, m := range p.since(from)[:at-from] {
			t.must(m.event == nil, "no event of the turn before the response", string(m.raw))
		}
		p.at = at
		p.event(s, "turn/end")
	}
}

func promptLarge(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	r := p.call("session.prompt", obj{"sessionId": s.id, "content": say(strings.Repeat("word ", 200_000))})
	t.must(r.kind() == "ok" || r.kind() == "too-large", "ok or too-large", r.String())
	if r.err != nil {
		t.equal("turns", t.turns(p, s), 0)
		return
	}
	p.event(s, "turn/end")
}

func promptNoBlob(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.refused("session.prompt", obj{"sessionId": s.id, "content": list{obj{"type": "image", "mimeType": "image/png", "blob": noBlob}}}, "blob-not-found")
	t.equal("turns", t.turns(p, s), 0)
}

func promptBudget(t *T) {
	p := t.dial()
	s := t.session(p, echoes, obj{"budget": obj{"turns": 1}})
	p.subscribe(s)
	p.turn(s, "one")
	p.refused("session.prompt", obj{"sessionId": s.id, "content": say("two")}, "budget-exceeded")
	t.equal("turns", t.turns(p, s), 1)
	p.ok("session.configure", obj{"sessionId": s.id, "budget": obj{"turns": 2}})
	p.turn(s, "two")
}
