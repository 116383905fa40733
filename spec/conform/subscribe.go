package conform

import (
	"fmt"
	"slices"
)

func subscribeChecks() []Check {
	return append([]Check{
		{ID: "response-first", Section: "2, 4", Says: "The response precedes every frame that the call causes.", run: responseFirst},
		{ID: "order", Section: "4", Says: "session/subscribed, then everything pending, then the durable events, then session/live.", run: subscribeOrder},
		{ID: "result", Section: "5", Says: "The result names each session with head and epoch.", run: subscribeResult},
		{ID: "fields", Section: "4", Says: "session/subscribed tells since, head, first, epoch, state, pending.", run: subscribedFields},
		{ID: "since-0", Section: "5", Says: "since: 0 is everything, in order, each once.", run: sinceReplay(0)},
		{ID: "since-n", Section: "5", Says: "since: N is everything behind N.", run: sinceReplay(3)},
		{ID: "since-head", Section: "5", Says: "since at the head replays nothing.", run: sinceHead},
		{ID: "since-absent", Section: "5", Says: "Without since a new subscription starts at head.", run: sinceAbsent},
		{ID: "cursor-ahead", Section: "5, 7", Says: "since beyond the head is cursor-ahead, with head.", run: cursorAhead},
		{ID: "epoch-other", Section: "5, 7", Says: "An epoch that differs is cursor-expired, with the new epoch.", run: epochOther},
		{ID: "epoch-same", Section: "5", Says: "The right epoch is accepted.", run: epochSame},
		{ID: "entry-error", Section: "5", Says: "An entry that fails carries its error, and the others go on.", run: entryError},
		{ID: "all-fail", Section: "5", Says: "If no entry succeeds the call fails with the first entry's error.", run: allFail},
		{ID: "nothing", Section: "5", Says: "A subscription of nothing is refused.", run: func(t *T) { t.dial().refused("mux.subscribe", obj{}, "-32602") }},
		{ID: "keeps-cursor", Section: "5", Says: "Without since a session already subscribed keeps its cursor.", run: keepsCursor},
		{ID: "resubscribe", Section: "5", Says: "After the response nothing of the old subscription follows.", run: resubscribe},
		{ID: "live-null", Section: "4", Says: "session/live is null between turns, with the seq up to which all came.", run: liveNull},
		{ID: "live-turn", Section: "4, 8.4", Says: "Who joins in the middle of a turn gets what is open of it: turnId, blocks with all text and their to.", run: liveTurn},
		{ID: "two-clients", Section: "8.1", Says: "Every client gets the same durable events.", run: twoClients},
		{ID: "delivery-alone", Section: "5", Says: "delivery can be changed alone, which always brings a new session/live.", run: deliveryAlone},
		{ID: "delivery-text", Section: "5", Says: "text final brings whole messages and no assistant/delta.", run: deliveryOff("text", "final", "assistant/delta", "assistant/message")},
		{ID: "delivery-reasoning", Section: "5", Says: "reasoning final brings whole messages and no reasoning/delta.", run: deliveryOff("reasoning", "final", "reasoning/delta", "reasoning/message")},
		{ID: "delivery-reasoning-off", Section: "5", Says: "reasoning off brings no reasoning/delta and no gap.", run: deliveryOff("reasoning", "off", "reasoning/delta", "turn/end")},
		{ID: "unsubscribe", Section: "4, 5", Says: "mux.unsubscribe brings session/unsubscribed requested, and then nothing more of the session.", run: unsubscribe},
		{ID: "unsubscribe-other", Section: "5", Says: "mux.unsubscribe of one session leaves the others.", run: unsubscribeOther},
	}, append(treeChecks(), inboxChecks()...)...)
}

// names returns what came of a session from a place on, in order.
func (p *peer) names(s session, from int) []string {
	var out []string
	for _, m := range p.since(from) {
		switch {
		case m.event != nil && m.params.str("sessionId") == s.id:
			out = append(out, m.event.str("type"))
		case m.method != "" && m.params.str("sessionId") == s.id:
			out = append(out, m.method)
		}
	}
	return out
}

// asking makes a session with n open approvals, asked by a client of its own.
func (t *T) asking(n int, more ...obj) (session, *peer) {
	p := t.dial()
	s := t.session(p, asks(n, n), more...)
	p.subscribe(s)
	p.prompt(s, "go")
	for range n {
		p.frame("approval/requested", s)
	}
	cards := p.at
	p.at = 0
	for range n {
		p.event(s, "approval/asked") // requests may come before the events
	}
	p.at = max(p.at, cards)
	return s, p
}

func responseFirst(t *T) {
	s, _ := t.asking(1)
	p := t.dial()
	for range 3 {
		from := p.mark()
		r := p.subscribe(s)
		for _, m := range p.since(from)[:r.at-from] {
			t.must(m.method == "" || m.params.str("sessionId") != s.id, "no frame of the session before the response", string(m.raw))
		}
		p.frame("session/live", s)
	}
}

func subscribeOrder(t *T) {
	s, _ := t.asking(2)
	p := t.dial()
	from := p.mark()
	p.subscribe(s)
	p.frame("session/live", s)
	var stages []int
	for _, m := range p.since(from) {
		if m.params.str("sessionId") != s.id {
			continue
		}
		stage := map[string]int{"session/subscribed": 1, "approval/requested": 2, "session/event": 3, "session/live": 4}[m.method]
		if m.event != nil && !m.event.has("seq") {
			stage = 5
		}
		if stage > 0 {
			stages = append(stages, stage)
		}
		if m.method == "session/live" {
			break
		}
	}
	t.must(slices.IsSorted(stages) && len(stages) > 5 && stages[0] == 1 && stages[1] == 2 && stages[2] == 2 && stages[3] == 3,
		"subscribed, 2 × requested, events, live", p.names(s, from))
}

func subscribeResult(t *T) {
	p := t.dial()
	a, b := t.session(p, echoes), t.session(p, echoes)
	r := p.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": b.id}, obj{"sessionId": a.id}}})
	want := list{obj{"sessionId": b.id, "head": 1, "epoch": b.epoch}, obj{"sessionId": a.id, "head": 1, "epoch": a.epoch}}
	t.equal("the result", r.result, want)
}

func subscribedFields(t *T) {
	s, _ := t.asking(1)
	p := t.dial()
	r := p.subscribe(s, obj{"since": 2})
	f := p.frame("session/subscribed", s).params
	head := obj{"r": r.result}.num("r.0.head")
	for k, want := range map[string]any{"since": 2, "head": head, "first": 1, "epoch": s.epoch, "state": "requires-action", "pending": 1} {
		t.equal(k, f.get(k), want)
	}
}

// replay subscribes on a new connection and returns the durable events that come
// before session/live.
func (t *T) replay(s session, more ...obj) (*peer, []int64) {
	p := t.dial()
	from := p.mark()
	p.subscribe(s, more...)
	live := p.frame("session/live", s)
	var got []int64
	for _, m := range p.since(from)[:live.at-from] {
		if m.event != nil && m.params.str("sessionId") == s.id && m.event.has("seq") {
			got = append(got, m.event.num("seq"))
		}
	}
	if got == nil {
		got = []int64{}
	}
	return p, got
}

func sinceReplay(since int64) func(*T) {
	return func(t *T) {
		s, head := t.long(t.dial(), 2)
		_, got := t.replay(s, obj{"since": since})
		t.equal("the seqs replayed", got, upTo(since+1, head))
	}
}

func sinceHead(t *T) {
	s, head := t.long(t.dial(), 1)
	_, got := t.replay(s, obj{"since": head})
	t.equal("the seqs replayed", got, []int64{})
}

func sinceAbsent(t *T) {
	s, head := t.long(t.dial(), 1)
	p := t.dial()
	p.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id}}})
	live := p.frame("session/live", s)
	t.equal("seq of session/live", live.params.num("seq"), head)
	t.equal("the seqs replayed", seqs(p.eventsOf(s, 0)), []int64{})
}

func cursorAhead(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	d := p.refused("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id, "since": 2}}}, "cursor-ahead")
	t.equal("details.head", d.num("head"), 1)
}

func epochOther(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	d := p.refused("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id, "since": 1, "epoch": "another"}}}, "cursor-expired")
	t.equal("details.epoch", d.str("epoch"), s.epoch)
	t.must(d.num("first") == 1 && d.num("head") == 1, "details with first and head", d)
}

func epochSame(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s, obj{"epoch": s.epoch})
	t.equal("epoch", p.frame("session/subscribed", s).params.str("epoch"), s.epoch)
}

func entryError(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	r := p.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": nobodyID}, obj{"sessionId": s.id, "since": 0}}})
	res := obj{"r": r.result}
	t.equal("the first entry's error", res.str("r.0.error.data.kind"), "session-not-found")
	t.must(res.num("r.1.head") == 1 && !res.has("r.1.error"), "the second entry succeeds", res)
	p.frame("session/live", s)
}

func allFail(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.refused("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id, "since": 99}, obj{"sessionId": nobodyID}}}, "cursor-ahead")
}

func keepsCursor(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.turn(s, "hi")
	last := seqs(p.eventsOf(s, 0))
	from := p.mark()
	p.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id}}})
	p.frame("session/live", s)
	t.equal("since of session/subscribed", firstOf(p, s, "session/subscribed", from).num("since"), last[len(last)-1])
	t.equal("the seqs repeated", seqs(p.eventsOf(s, from)), []int64{})
}

// firstOf returns the params of the first frame of a type from a place on.
func firstOf(p *peer, s session, method string, from int) obj {
	for _, m := range p.since(from) {
		if m.method == method && m.params.str("sessionId") == s.id {
			return m.params
		}
	}
	return nil
}

func resubscribe(t *T) {
	p, other := t.dial(), t.dial()
	s := t.session(other, streams(300, 20), obj{"title": "x"})
	p.subscribe(s)
	p.frame("session/live", s)
	other.prompt(s, "go")
	p.event(s, "assistant/delta")
	r := p.subscribe(s)
	p.at = r.at // the old subscription may have told of the end already
	p.event(s, "turn/end")
	var got []int64
	live := false
	for _, m := range p.since(r.at) {
		if m.params.str("sessionId") != s.id {
			continue
		}
		live = live || m.method == "session/live"
		t.must(m.event == nil || m.event.has("seq") || live, "no live event of the old subscription after the response", string(m.raw))
		if m.event.has("seq") {
			got = append(got, m.event.num("seq"))
		}
	}
	t.equal("the seqs after the response", got, upTo(1, int64(len(got))))
}

func liveNull(t *T) {
	s, head := t.long(t.dial(), 1)
	p := t.dial()
	p.subscribe(s)
	m := p.frame("session/live", s)
	t.must(m.params.has("turn") && m.params.get("turn") == nil, "turn: null", string(m.raw))
	t.equal("seq", m.params.num("seq"), head)
}

func liveTurn(t *T) {
	p, late := t.dial(), t.dial()
	s := t.session(p, holds)
	p.subscribe(s)
	p.frame("session/live", s)
	turn := p.prompt(s, "go").str("turnId")
	d := p.event(s, "assistant/delta")
	late.subscribe(s)
	m := late.frame("session/live", s).params
	t.equal("turn.turnId", m.str("turn.turnId"), turn)
	t.equal("turn.blocks", m.get("turn.blocks"), list{obj{"block": 0, "kind": "assistant", "text": d.str("data.text"), "to": 1}})
}

func twoClients(t *T) {
	p, other := t.dial(), t.dial()
	s := t.session(p, echoes)
	other.subscribe(s)
	p.subscribe(s)
	p.turn(s, "hi")
	other.event(s, "turn/end")
	t.equal("the other client's durable events", durable(other.eventsOf(s, 0)), durable(p.eventsOf(s, 0)))
}

// durable returns the events that have a seq.
func durable(events []obj) []obj {
	var out []obj
	for _, e := range events {
		if e.has("seq") {
			out = append(out, e)
		}
	}
	return out
}

func deliveryAlone(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.frame("session/live", s)
	p.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id}}, "delivery": obj{"text": "final"}})
	p.frame("session/live", s)
	from := p.mark()
	p.turn(s, "hi")
	t.must(!slices.Contains(p.names(s, from), "assistant/delta"), "no assistant/delta", p.names(s, from))
}

func deliveryOff(key, word, without, with string) func(*T) {
	return func(t *T) {
		p := t.dial()
		s := t.session(p, echoes)
		p.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id, "since": 0}}, "delivery": obj{key: word}})
		p.turn(s, "hi")
		names := p.names(s, 0)
		t.must(!slices.Contains(names, without) && slices.Contains(names, with), fmt.Sprintf("%s and no %s", with, without), names)
		got := seqs(p.eventsOf(s, 0))
		t.equal("seqs", got, upTo(1, int64(len(got))))
	}
}

func unsubscribe(t *T) {
	p, other := t.dial(), t.dial()
	s := t.session(other, echoes)
	p.subscribe(s)
	p.frame("session/live", s)
	from := p.mark()
	r := p.answered("mux.unsubscribe", obj{"sessions": list{s.id}})
	m := p.frame("session/unsubscribed", s)
	t.equal("reason", m.params.str("reason"), "requested")
	t.must(m.at > r.at, "session/unsubscribed after the response", p.names(s, from))
	other.subscribe(s)
	other.turn(s, "hi")
	p.fence()
	t.equal("frames after session/unsubscribed", p.names(s, m.at+1), nil)
}

func unsubscribeOther(t *T) {
	p := t.dial()
	a, b := t.session(p, echoes), t.session(p, echoes)
	p.subscribe(a)
	p.subscribe(b)
	p.answered("mux.unsubscribe", obj{"sessions": list{a.id}})
	p.turn(b, "hi")
}
