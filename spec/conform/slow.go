package conform

import "fmt"

func slowChecks() []Check {
	return []Check{
		{ID: "whole", Section: "4, 8.5", Says: "A client that stops reading is told session/lagging or closed with 4008, and loses no durable event.", run: slowWhole},
		{ID: "others", Section: "8.5", Says: "A client that stops reading delays nobody.", run: slowOthers},
		{ID: "cards", Section: "4", Says: "Approvals are never withheld: a slow client that stays or comes back knows what is open.", run: slowCards},
	}
}

// flood is a session that writes much more than any buffer holds: 6 MB.
func (t *T) flood(p *peer) session {
	return t.session(p, obj{"role": "stream", "chunks": 96, "size": 64 << 10, "durableEvery": 1})
}

// stalled subscribes a client that stops reading while a session floods.
func (t *T) stalled() (s session, slow, fast *peer) {
	slow, fast = t.dial(), t.dial()
	s = t.flood(fast)
	slow.subscribe(s)
	slow.frame("session/live", s)
	fast.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id, "since": 0}}, "delivery": obj{"text": "final"}})
	slow.hold(true)
	fast.prompt(s, "go")
	fast.event(s, "turn/end")
	return s, slow, fast
}

func slowWhole(t *T) {
	s, slow, fast := t.stalled()
	head := fast.ok("session.get", obj{"sessionId": s.id}).num("session.head")
	slow.hold(false)
	r := &resumed{t: t, s: s}
	slow.find(0, t.deadline(), func(m message) bool {
		return m.params.str("sessionId") == s.id && m.event.num("seq") == head
	})
	r.take(slow)
	if code := slow.code(); code != 0 && code != 4008 && r.cursor < head {
		t.fail("no close, or the code 4008", "%d; %s", code, slow.recent())
	}
	if r.cursor < head {
		p := r.connect()
		p.reach(s, head)
		r.take(p)
	}
	r.whole(fast)
}

// code returns the close code, 0 while the connection is open.
func (p *peer) code() int {
	p.mu.Lock()
	over := p.err != nil
	p.mu.Unlock()
	if !over {
		return 0
	}
	return p.closed()
}

func slowOthers(t *T) {
	s, _, fast := t.stalled()
	got := seqs(fast.eventsOf(s, 0))
	t.equal("the other client's seqs", got, upTo(1, int64(len(got))))
	p := t.dial()
	other := t.session(p, echoes)
	p.subscribe(other)
	p.turn(other, "hi")
}

func slowCards(t *T) {
	slow, fast := t.dial(), t.dial()
	s := t.flood(fast)
	kid := t.session(fast, asks(1, 1), obj{"parentSessionId": s.id})
	slow.subscribe(s)
	slow.subscribe(kid)
	slow.frame("session/live", kid)
	fast.subscribe(kid)
	slow.hold(true)
	fast.prompt(s, "go")
	fast.prompt(kid, "go")
	card := fast.card(kid)
	slow.hold(false)
	m, ok := slow.find(0, t.deadline(), func(m message) bool {
		return m.method == "approval/requested" && m.params.str("id") == card.str("id")
	})
	if !ok {
		t.must(slow.code() == 4008, "approval/requested, or the code 4008", fmt.Sprint(slow.code()))
		p := t.dial()
		p.subscribe(kid)
		m.params = p.card(kid)
	}
	t.equal("the card", m.params, card)
}
