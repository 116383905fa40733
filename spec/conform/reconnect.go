package conform

import (
	"fmt"
	"strings"
)

func reconnectChecks() []Check {
	return []Check{
		{ID: "resume", Section: "8.1", Says: "Over connections that are cut and resume, every durable event comes once, in order.", run: resumeCuts},
		{ID: "resume-streams", Section: "8.1", Says: "The same while the session writes.", run: resumeWhileWriting},
		{ID: "at-head", Section: "8.1", Says: "Who resumes at the head is sent nothing again.", run: resumeAtHead},
		{ID: "turn-goes-on", Section: "6.3", Says: "A turn goes on without its client.", run: resumeTurnGoesOn},
		{ID: "mid-turn", Section: "8.4", Says: "Who comes back in the middle of a turn finds the same turn, and its text whole.", run: resumeMidTurn},
		{ID: "prompt-again", Section: "5", Says: "A prompt repeated after a lost answer runs once.", run: resumePromptAgain},
		{ID: "answer-again", Section: "6.1", Says: "An approval answered just before the connection was lost is told as settled.", run: resumeAnswerAgain},
		{ID: "many", Section: "5", Says: "Many sessions resume in one call, each from its own cursor.", run: resumeMany},
		{ID: "tree", Section: "5", Says: "A tree resumes with the cursors of those it knows, and 0 for those it does not.", run: resumeTree},
		{ID: "cards", Section: "4", Says: "A client that was away is told anew of what is open, and of nothing else.", run: resumeCards},
		{ID: "epoch", Section: "1", Says: "The epoch of a log does not change with a connection, nor with closing the session.", run: resumeEpoch},
		{ID: "client-id", Section: "1", Says: "Each connection has a clientId of its own.", run: resumeClientID},
	}
}

// resumed keeps what a client received over its connections.
type resumed struct {
	t      *T
	s      session
	cursor int64
	events []obj
}

// connect resumes from the cursor.
func (r *resumed) connect() *peer {
	p := r.t.dial()
	p.subscribe(r.s, obj{"since": r.cursor, "epoch": r.s.epoch})
	return p
}

// take adds what came on a connection, which must go on exactly at the cursor.
func (r *resumed) take(p *peer) {
	for _, e := range durable(p.eventsOf(r.s, 0)) {
		r.t.must(e.num("seq") == r.cursor+1, fmt.Sprint("seq ", r.cursor+1), e)
		r.cursor++
		r.events = append(r.events, e)
	}
}

// whole fails unless the events are those of the log.
func (r *resumed) whole(p *peer) {
	var log []obj
	for after := int64(0); ; {
		h := p.ok("session.history", obj{"sessionId": r.s.id, "after": after, "limit": 1000})
		log = append(log, h.objs("events")...)
		if !h.flag("more") {
			break
		}
		after = log[len(log)-1].num("seq")
	}
	r.t.must(same(log, r.events), fmt.Sprintf("the %d events of the log", len(log)), fmt.Sprintf("%d events, or others", len(r.events)))
}

func resumeCuts(t *T) {
	other := t.dial()
	s := t.session(other, echoes)
	r := &resumed{t: t, s: s}
	for i := range 5 {
		p := r.connect()
		p.frame("session/live", s)
		other.prompt(s, fmt.Sprint("turn ", i))
		p.event(s, []string{"turn/start", "user/message", "reasoning/message", "turn/end", "assistant/message"}[i])
		p.cut()
		r.take(p)
	}
	p := r.connect()
	other.subscribe(s)
	for range 5 {
		other.event(s, "turn/end")
	}
	head := other.ok("session.get", obj{"sessionId": s.id}).num("session.head")
	p.reach(s, head)
	r.take(p)
	r.whole(p)
}

// reach waits for the durable event with a seq.
func (p *peer) reach(s session, seq int64) {
	_, ok := p.find(0, p.t.deadline(), func(m message) bool {
		return m.params.str("sessionId") == s.id && (m.event.num("seq") >= seq || m.method == "session/live" && m.params.num("seq") >= seq)
	})
	p.t.must(ok, fmt.Sprint("events up to ", seq), p.recent())
}

func resumeWhileWriting(t *T) {
	other := t.dial()
	s := t.session(other, obj{"role": "stream", "chunks": 120, "size": 50, "durableEvery": 1, "everyMs": 2})
	other.subscribe(s)
	other.prompt(s, "go")
	r := &resumed{t: t, s: s}
	for range 6 {
		p := r.connect()
		p.reach(s, r.cursor+5)
		p.cut()
		r.take(p)
	}
	other.event(s, "turn/end")
	p := r.connect()
	p.reach(s, other.ok("session.get", obj{"sessionId": s.id}).num("session.head"))
	r.take(p)
	r.whole(p)
}

func resumeAtHead(t *T) {
	s, head := t.long(t.dial(), 1)
	for range 3 {
		p, got := t.replay(s, obj{"since": head, "epoch": s.epoch})
		t.equal("the seqs replayed", got, []int64{})
		p.cut()
	}
}

func resumeTurnGoesOn(t *T) {
	p := t.dial()
	s := t.session(p, obj{"role": "stream", "chunks": 5, "size": 9, "everyMs": 20})
	p.subscribe(s)
	p.prompt(s, "go")
	p.event(s, "turn/start")
	p.cut()
	q := t.dial()
	q.subscribe(s)
	t.equal("reason", q.event(s, "turn/end").str("data.reason"), "completed")
}

func resumeMidTurn(t *T) {
	p := t.dial()
	s := t.session(p, obj{"role": "stream", "chunks": 40, "size": 9, "everyMs": 5})
	p.subscribe(s)
	p.frame("session/live", s)
	turn := p.prompt(s, "go").str("turnId")
	p.event(s, "assistant/delta")
	p.cut()
	q := t.dial()
	q.subscribe(s)
	m := q.frame("session/live", s).params
	t.equal("turnId", m.str("turn.turnId"), turn)
	var whole strings.Builder
	have := int64(0)
	for _, b := range m.objs("turn.blocks") {
		whole.WriteString(b.str("text"))
		have = b.num("to")
	}
	q.event(s, "assistant/message")
	for _, e := range q.eventsOf(s, 0) {
		if e.str("type") == "assistant/delta" {
			t.must(e.num("data.from") == have, fmt.Sprint("from = ", have), e)
			have = e.num("data.to")
			whole.WriteString(e.str("data.text"))
		}
	}
	said := only(q.eventsOf(s, 0), "assistant/message")
	t.equal("the text", whole.String(), said[0].str("data.content.0.text"))
}

func resumePromptAgain(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	id := unique()
	p.send("session.prompt", obj{"sessionId": s.id, "content": say("hi"), "promptId": id})
	p.cut()
	q := t.dial()
	q.subscribe(s)
	q.prompt(s, "hi", obj{"promptId": id})
	q.event(s, "turn/end")
	q.fence()
	t.equal("user/message", len(only(q.eventsOf(s, 0), "user/message")), 1)
	t.equal("turns", t.turns(q, s), 1)
}

func resumeAnswerAgain(t *T) {
	s, p := t.asking(1)
	card := p.asked(s)
	p.allow(card, "allowed-once")
	p.cut()
	q := t.dial()
	d := q.refused("approval.respond", obj{"sessionId": s.id, "id": card.str("id"), "outcome": "allowed-once"}, "approval-not-pending")
	t.must(d.str("outcome") == "allowed-once" && d.str("origin") == "reply", "details: allowed-once by reply", d)
}

func resumeMany(t *T) {
	p := t.dial()
	var entries list
	var all []session
	for i := range 5 {
		s, head := t.long(p, 1)
		all = append(all, s)
		entries = append(entries, obj{"sessionId": s.id, "since": min(int64(i), head), "epoch": s.epoch})
	}
	q := t.dial()
	q.answered("mux.subscribe", obj{"sessions": entries})
	for i, s := range all {
		q.at = 0
		q.frame("session/live", s)
		got := seqs(q.eventsOf(s, 0))
		t.equal("the seqs of session "+fmt.Sprint(i), got, upTo(int64(i)+1, int64(i+len(got))))
		t.must(len(got) > 0, "events of each session", q.recent())
	}
}

func resumeTree(t *T) {
	p := t.dial()
	root, child, below := t.family(p)
	p.ok("session.configure", obj{"sessionId": child.id, "title": "a"})
	q := t.dial()
	q.answered("mux.subscribe", obj{"sessions": list{
		obj{"sessionId": root.id, "since": 1, "tree": true}, obj{"sessionId": child.id, "since": 1},
	}})
	q.at = 0
	q.frame("session/live", below)
	q.at = 0
	q.frame("session/live", child)
	t.equal("seqs of the child that was named", seqs(q.eventsOf(child, 0)), upTo(2, 2))
	t.equal("seqs of the grandchild that was not", seqs(q.eventsOf(below, 0)), upTo(1, 1))
}

func resumeCards(t *T) {
	s, p := t.asking(4)
	var cards []obj
	for _, m := range p.since(0) {
		if m.method == "approval/requested" {
			cards = append(cards, m.params)
		}
	}
	p.cut()
	q := t.dial()
	q.allow(cards[1], "rejected")
	r := t.dial()
	r.subscribe(s)
	m := r.frame("session/subscribed", s)
	t.equal("pending of session/subscribed", m.params.num("pending"), 3)
	r.frame("session/live", s)
	open := map[string]bool{}
	for _, m := range r.since(0) {
		if m.method == "approval/requested" {
			open[m.params.str("id")] = true
		}
	}
	t.must(len(open) == 3 && !open[cards[1].str("id")], "the three that are open", open)
}

func resumeEpoch(t *T) {
	s, p, _ := t.echoed("hi")
	p.ok("session.close", obj{"sessionId": s.id})
	q := t.dial()
	r := q.subscribe(s)
	t.equal("epoch", obj{"r": r.result}.str("r.0.epoch"), s.epoch)
}

func resumeClientID(t *T) {
	seen := map[string]bool{}
	for range 3 {
		p := t.dial()
		seen[p.ok("host.describe", obj{}).str("you.clientId")] = true
		p.cut()
	}
	t.equal("different clientIds", len(seen), 3)
}
