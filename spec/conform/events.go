package conform

import (
	"fmt"
	"slices"
	"strings"
)

// The sizes of contract sections 3 and 4.
const (
	maxFrame = 256 << 10
	maxEvent = 240 << 10
	openText = 128 << 10
)

func eventChecks() []Check {
	return []Check{
		{ID: "shape", Section: "3", Says: "An event has type, ts, data, and either seq or after.", run: eventShape},
		{ID: "gapless", Section: "3, 8.1", Says: "Durable events have seq 1, 2, 3 … without gaps.", run: eventGapless},
		{ID: "after", Section: "3", Says: "after is the last durable seq before a live-only event.", run: eventAfter},
		{ID: "classes", Section: "3", Says: "Deltas and progress are live-only; everything else of the table is durable.", run: eventClasses},
		{ID: "turn", Section: "1, 3", Says: "A turn goes from turn/start to turn/end, and its events carry its turnId.", run: eventTurn},
		{ID: "user-first", Section: "3", Says: "The prompt's user/message stands at the beginning of its turn, before what the assistant says.", run: eventUserFirst},
		{ID: "deltas", Section: "3", Says: "The chunks of a block follow each other: from is where the last to was.", run: eventDeltas("assistant/delta", "assistant/message")},
		{ID: "delta-text", Section: "3", Says: "The text of a block's deltas is the text of its message.", run: eventText("assistant/delta", "assistant/message")},
		{ID: "reasoning", Section: "3", Says: "The chunks of a reasoning block follow each other.", run: eventDeltas("reasoning/delta", "reasoning/message")},
		{ID: "reasoning-text", Section: "3", Says: "The text of a reasoning block's deltas is the text of its message.", run: eventText("reasoning/delta", "reasoning/message")},
		{ID: "blocks", Section: "3", Says: "Blocks are numbered 0, 1, 2 … within a turn, and never reused.", run: eventBlocks},
		{ID: "no-late-delta", Section: "3", Says: "No delta of a block comes after the message that replaces it.", run: eventNoLateDelta},
		{ID: "tools", Section: "3", Says: "A tool has its call, then progress, then one result, under one callId.", run: eventTools},
		{ID: "progress", Section: "3", Says: "The chunks of a tool's progress follow each other.", run: eventProgress},
		{ID: "todos", Section: "3", Says: "todo/write holds the whole list.", run: eventTodos},
		{ID: "subagents", Section: "3", Says: "agent/spawned names the child; agent/completed follows with its status.", run: eventSubagents},
		{ID: "child", Section: "1", Says: "A spawned child is a session of origin subagent below its parent.", run: eventChild},
		{ID: "usage", Section: "3", Says: "usage/updated is cumulative over the session.", run: eventUsage},
		{ID: "model", Section: "3", Says: "model/start and model/end tell of each attempt.", run: eventModel},
		{ID: "history", Section: "8.1", Says: "History holds the same events, member for member, as were sent.", run: eventHistory},
		{ID: "partial", Section: "3", Says: "Before a turn's open text passes 128 KiB the host writes what there is as assistant/message with partial.", run: eventPartial},
		{ID: "frame-size", Section: "1, 3", Says: "No frame exceeds 256 KiB, no event 240 KiB.", run: eventSizes},
		{ID: "live-text", Section: "4, 8.4", Says: "The open turn is sent to who joins in parts that fit, and with the deltas after it makes up the message.", run: eventLiveParts},
		{ID: "ids", Section: "1", Says: "Every integer stays below 2^53; times are RFC 3339 UTC with milliseconds.", run: eventNumbers},
		{ID: "truncated", Section: "3", Says: "Larger parts are a preview with truncated: bytes and a blob that blob.read pages whole.", run: eventTruncated},
		{ID: "truncated-input", Section: "6.5", Says: "Where the input had to be truncated, allowed-always is refused and allowed-once needs inputHash.", run: eventTruncatedInput},
	}
}

// echoed runs a turn of echo and returns its events.
func (t *T) echoed(words string) (session, *peer, []obj) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	p.frame("session/live", s)
	return s, p, p.turn(s, words)
}

// toured plays the demonstration to its end, and returns the root's events.
func (t *T) toured() (session, *peer, []obj) {
	p := t.dial()
	root, q, card := t.tour(p)
	p.choose(q, "SQLite")
	p.allow(card, "allowed-once")
	p.at = 0
	p.event(root, "turn/end")
	return root, p, p.eventsOf(root, 0)
}

func eventShape(t *T) {
	_, _, events := t.toured()
	for _, e := range events {
		t.must(e.str("type") != "" && isTime(e.str("ts")) && e.obj("data") != nil, "type, ts and data", e)
		t.must(e.has("seq") != e.has("after"), "either seq or after", e)
	}
}

func eventGapless(t *T) {
	s, p, _ := t.echoed("hi")
	p.turn(s, "again")
	got := seqs(p.eventsOf(s, 0))
	t.equal("seqs", got, upTo(1, int64(len(got))))
}

func eventAfter(t *T) {
	_, _, events := t.echoed(strings.Repeat("word ", 80))
	last := int64(-1)
	for _, e := range events {
		if e.has("seq") {
			last = e.num("seq")
		} else if last > 0 {
			t.must(e.num("after") == last, fmt.Sprint("after = ", last), e)
		}
	}
}

func eventClasses(t *T) {
	_, _, events := t.toured()
	live := []string{"assistant/delta", "reasoning/delta", "tool/progress"}
	for _, e := range events {
		if slices.Contains(live, e.str("type")) {
			t.must(!e.has("seq"), "no seq on a live-only event", e)
		} else {
			t.must(e.has("seq"), "a seq on a durable event", e)
		}
	}
}

func eventTurn(t *T) {
	_, p, events := t.echoed("hi")
	t.equal("the first event", events[0].str("type"), "turn/start")
	t.must(events[len(events)-1].str("type") == "turn/end", "turn/end last", p.recent())
	for _, e := range events {
		t.must(e.str("turnId") == events[0].str("turnId") && e.str("turnId") != "", "the turnId of the turn", e)
	}
}

func eventUserFirst(t *T) {
	s, p, _ := t.echoed("hi")
	names := p.names(s, 0)
	u := slices.Index(names, "user/message")
	start, said := slices.Index(names, "turn/start"), slices.Index(names, "assistant/message")
	t.must(u > start && u < said, "turn/start, user/message, assistant/message", names)
}

func eventDeltas(delta, _ string) func(*T) {
	return func(t *T) {
		_, _, events := t.echoed(strings.Repeat("some words ", 30))
		have, n := map[int64]int64{}, 0
		for _, e := range events {
			if e.str("type") != delta {
				continue
			}
			d := e.obj("data")
			t.must(d.num("from") == have[d.num("block")] && d.num("to") > d.num("from"), fmt.Sprint("from = ", have[d.num("block")], ", to beyond it"), e)
			have[d.num("block")], n = d.num("to"), n+1
		}
		t.must(n > 0, "deltas", "none")
	}
}

func eventText(delta, whole string) func(*T) {
	return func(t *T) {
		_, _, events := t.echoed(strings.Repeat("é€😀 words ", 30))
		streamed, n := map[int64]string{}, 0
		for _, e := range events {
			switch e.str("type") {
			case delta:
				streamed[e.num("data.block")] += e.str("data.text")
			case whole:
				for _, b := range e.list("data.blocks") {
					t.equal("the deltas' text", streamed[int64(b.(float64))], e.str("data.content.0.text"))
					n++
				}
			}
		}
		t.must(n > 0, "a "+whole+" that replaces a block", "none")
	}
}

func eventBlocks(t *T) {
	_, _, events := t.toured()
	var order []int64
	for _, e := range events {
		if strings.HasSuffix(e.str("type"), "/delta") && !slices.Contains(order, e.num("data.block")) {
			order = append(order, e.num("data.block"))
		}
	}
	t.equal("blocks in the order of their first chunks", order, upTo(0, int64(len(order))-1))
}

func eventNoLateDelta(t *T) {
	_, _, events := t.toured()
	closed := map[float64]bool{}
	for _, e := range events {
		for _, b := range e.list("data.blocks") {
			closed[b.(float64)] = true
		}
		if strings.HasSuffix(e.str("type"), "/delta") {
			t.must(!closed[float64(e.num("data.block"))], "no delta of a block that a message replaced", e)
		}
	}
}

func eventTools(t *T) {
	_, _, events := t.toured()
	state := map[string]string{}
	for _, e := range events {
		id := e.str("data.callId")
		switch e.str("type") {
		case "tool/call":
			t.must(state[id] == "" && e.str("data.name") != "", "a callId of its own and a name", e)
			state[id] = "open"
		case "tool/progress":
			t.must(state[id] == "open", "progress of an open call", e)
		case "tool/result":
			t.must(state[id] == "open" && e.has("data.isError") && e.num("data.durationMs") >= 0, "one result of an open call, with isError and durationMs", e)
			state[id] = "over"
		}
	}
	t.must(len(state) > 0, "a tool call", "none")
}

func eventProgress(t *T) {
	_, _, events := t.toured()
	have, n := map[string]int64{}, 0
	for _, e := range events {
		if e.str("type") == "tool/progress" {
			id := e.str("data.callId")
			t.must(e.num("data.from") == have[id] && e.num("data.to") > have[id], fmt.Sprint("from = ", have[id]), e)
			have[id], n = e.num("data.to"), n+1
		}
	}
	t.must(n > 0, "progress", "none")
}

// only returns the events of a type.
func only(events []obj, kind string) []obj {
	return slices.DeleteFunc(slices.Clone(events), func(e obj) bool { return e.str("type") != kind })
}

func eventTodos(t *T) {
	_, _, events := t.toured()
	writes := only(events, "todo/write")
	t.must(len(writes) > 1, "several todo/write", len(writes))
	for _, e := range writes {
		t.must(len(e.list("data.todos")) == len(writes[0].list("data.todos")) && e.str("data.todos.0.content") != "", "the whole list each time", e)
	}
}

func eventSubagents(t *T) {
	_, _, events := t.toured()
	open := map[string]bool{}
	for _, e := range events {
		id := e.str("data.childSessionId")
		switch e.str("type") {
		case "agent/spawned":
			t.must(id != "" && !open[id], "a childSessionId of its own", e)
			open[id] = true
		case "agent/completed":
			t.must(open[id] && e.str("data.status") == "completed", "the status of a child that was spawned", e)
			delete(open, id)
		}
	}
	t.must(len(only(events, "agent/spawned")) == 2 && len(open) == 0, "two children, both completed", open)
}

func eventChild(t *T) {
	root, p, events := t.toured()
	for _, e := range only(events, "agent/spawned") {
		sum := p.ok("session.get", obj{"sessionId": e.str("data.childSessionId")}).obj("session")
		for k, want := range map[string]any{"origin": "subagent", "parentSessionId": root.id, "rootSessionId": root.id, "depth": 1} {
			t.equal(k, sum.get(k), want)
		}
	}
}

func eventUsage(t *T) {
	s, p, _ := t.echoed("hi")
	p.turn(s, "again")
	u := only(p.eventsOf(s, 0), "usage/updated")
	t.must(len(u) == 2, "usage/updated in each turn", len(u))
	t.must(u[1].num("data.usage.inputTokens") == 2*u[0].num("data.usage.inputTokens") && u[0].num("data.usage.inputTokens") > 0, "twice as much after two like turns", u)
	_, money := u[0].get("data.usage.cost").(string)
	t.must(!u[0].has("data.usage.cost") || money, "money as a decimal string", u[0])
}

func eventModel(t *T) {
	_, _, events := t.toured()
	start, end := only(events, "model/start"), only(events, "model/end")
	t.must(len(start) == 1 && len(end) == 1, "model/start and model/end", fmt.Sprint(len(start), len(end)))
	t.must(start[0].str("data.model") != "" && end[0].str("data.status") != "" && end[0].has("data.outputStarted"), "model, status, outputStarted", end[0])
}

func eventHistory(t *T) {
	root, p, events := t.toured()
	h := p.ok("session.history", obj{"sessionId": root.id, "after": 0, "limit": 1000})
	t.equal("the events of history", h.objs("events"), durable(events))
}

func eventPartial(t *T) {
	s, p, events := t.echoed(strings.Repeat("some words ", 16_000)) // 176 kB
	open, partial := 0, 0
	for _, e := range events {
		switch e.str("type") {
		case "assistant/delta":
			open += len(e.str("data.text"))
			t.must(open <= openText+maxEvent/2, "a message before open text passes 128 KiB", fmt.Sprint(open, " bytes are open"))
		case "assistant/message":
			open = 0
			if e.flag("data.partial") {
				partial++
			}
		}
	}
	t.must(partial > 0, "a partial message", p.names(s, 0))
}

func eventSizes(t *T) {
	s, p, _ := t.echoed(strings.Repeat("\"é\\ ", 30_000))
	n := 0
	for _, m := range p.since(0) {
		n = max(n, len(m.raw))
		t.must(len(m.raw) <= maxFrame, "frames of at most 262144 bytes", fmt.Sprint(m.method, " of ", len(m.raw)))
		if m.event != nil && m.params.str("sessionId") == s.id {
			t.must(len(m.raw) <= maxEvent+1024, "events of at most 245760 bytes", fmt.Sprint(m.event.str("type"), " in a frame of ", len(m.raw)))
		}
	}
	t.must(n > 64<<10, "a large frame", fmt.Sprint("the largest has ", n))
}

func eventLiveParts(t *T) {
	p, late := t.dial(), t.dial()
	s := t.session(p, obj{"role": "stream", "chunks": 100_000, "size": 4000, "everyMs": 1})
	p.subscribe(s)
	p.frame("session/live", s)
	p.prompt(s, "go")
	p.event(s, "assistant/delta")
	late.answered("mux.subscribe", obj{"sessions": list{obj{"sessionId": s.id}}})
	text := map[int64]string{}
	for more := true; more; {
		m := late.frame("session/live", s)
		t.must(len(m.raw) <= maxFrame && m.params.str("turn.turnId") != "", "parts of the open turn of at most 262144 bytes", clip(string(m.raw)))
		for _, b := range m.params.objs("turn.blocks") {
			text[b.num("block")] += b.str("text")
		}
		more = m.params.flag("more")
	}
	from := late.at
	late.event(s, "assistant/delta")
	p.cancelled(s, nil)
	late.event(s, "turn/end")
	n := 0
	for _, e := range late.eventsOf(s, from) {
		switch e.str("type") {
		case "assistant/delta":
			text[e.num("data.block")] += e.str("data.text")
		case "assistant/message":
			block := int64(e.list("data.blocks")[0].(float64))
			t.must(e.str("data.content.0.text") == text[block], "session/live and the deltas after it make up the message", fmt.Sprintf("%d bytes of block %d", len(text[block]), block))
			n++
		}
	}
	t.must(n > 0, "an assistant/message", late.recent())
}

func eventNumbers(t *T) {
	_, p, _ := t.toured()
	for _, m := range p.since(0) {
		walk(map[string]any(m.params), func(o obj) {
			for k, v := range o {
				if n, is := v.(float64); is {
					t.must(n < bigInteger && n > -bigInteger, "integers below 2^53", fmt.Sprintf("%s = %v", k, n))
				}
				if s, is := v.(string); is && (k == "ts" || strings.HasSuffix(k, "At")) {
					t.must(isTime(s), k+" in RFC 3339 UTC with milliseconds", s)
				}
			}
		})
	}
}
