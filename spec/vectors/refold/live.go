package refold

import (
	"maps"
	"strings"
	"unicode/utf8"
)

// maxProgress is how much of a tool's progress is kept, in bytes.
const maxProgress = 65536

// live is what runs and is not in the log (section 11).
type live struct {
	there   bool
	turn    string
	blocks  map[float64]*text
	tools   []*text // in the order of their calls
	closed  map[float64]bool
	more    bool // the last session/live was a part
	gaps    bool
	lagging bool
	came    []float64 // blocks as they came, for a mistake
}

// text is a block or a tool's progress: all that ever came.
type text struct {
	kind string
	call string
	all  string
	have float64
}

// live of the first n entries.
func (h *history) live(n int) *live {
	l := &live{}
	if !h.fold.makes("a-base-has-no-gaps") {
		l.gaps, l.lagging = h.base["gaps"] == true, h.base["lagging"] == true
	}
	if base := obj(h.base["live"]); base != nil {
		h.part0(l, base)
	} else if open := str(h.base["turnId"]); open != "" && !h.fold.makes("a-base-has-nothing-live") {
		h.fresh(l, open, 0, false)
	}
	_, _, steps := h.walkTurns(n)
	for i, e := range h.entries[:n] {
		if steps[i].opens {
			h.open(l, e, steps[i], i)
		}
		switch {
		case e.method == "session/subscribed":
			l.more = false
			l.lagging = l.lagging && !h.fold.makes("subscribing-ends-lagging")
		case e.method == "session/lagging":
			l.lagging = true
		case e.method == "session/live":
			h.snapshot(l, e.params, i)
		case e.typ() != "":
			h.durable(l, e, steps[i], i)
		case e.data != nil:
			h.delta(l, e, i)
		case e.event != nil && num(e.event["seq"]) == 0 && h.fold.makes("unknown-live-events-are-gaps"):
			l.gaps = true
		}
	}
	return l
}

// part0 takes what a view that was read had.
func (h *history) part0(l *live, base object) {
	l.there, l.turn, l.blocks, l.closed = true, str(base["turnId"]), map[float64]*text{}, map[float64]bool{}
	if l.turn == str(h.base["turnId"]) {
		maps.Copy(l.closed, h.closedIn(l.turn, 0))
	}
	for _, b := range list(base["blocks"]) {
		b := obj(b)
		l.blocks[num(b["block"])] = &text{kind: str(b["kind"]), all: str(b["text"]), have: num(b["to"])}
	}
	for _, b := range list(base["tools"]) {
		b := obj(b)
		l.tools = append(l.tools, &text{call: str(b["callId"]), all: str(b["text"]), have: num(b["to"])})
	}
}

// open begins a turn.
func (h *history) open(l *live, e entry, s step, i int) {
	if s.before == e.turn() {
		l.there = false
	}
	for _, call := range h.running(i, "", true) {
		l.end(call)
	}
	switch {
	case e.turn() == "" && !h.fold.makes("a-turn-without-a-name-is-live"):
		l.there = false
	case !l.there || l.turn != e.turn() || h.fold.makes("turn-start-forgets-live"):
		h.fresh(l, e.turn(), i+1, true)
	}
}

// running names the calls that run after n entries, of a turn or of none, or of
// all turns.
func (h *history) running(n int, turn string, all bool) []string {
	var calls []string
	for _, it := range h.items(n) {
		it := obj(it)
		card := obj(it["tool"])
		if card["running"] == true && (all || str(it["turnId"]) == "" || it["turnId"] == turn) {
			calls = append(calls, str(card["callId"]))
		}
	}
	return calls
}

// fresh makes live a turn as the log tells it. As a turn begins nothing runs yet.
func (h *history) fresh(l *live, turn string, n int, begins bool) {
	if !l.there || l.turn != turn {
		l.closed = map[float64]bool{}
	}
	if _, open := h.turns(n); open == turn && open != "" {
		maps.Copy(l.closed, h.closedIn(turn, n))
	}
	l.there, l.turn, l.blocks, l.tools = true, turn, map[float64]*text{}, nil
	if begins || h.fold.makes("snapshots-forget-running-tools") {
		return
	}
	for _, call := range h.running(n, turn, false) {
		l.tools = append(l.tools, &text{call: call})
	}
}

func (l *live) end(call string) {
	kept := l.tools[:0:0]
	for _, t := range l.tools {
		if t.call != call {
			kept = append(kept, t)
		}
	}
	l.tools = kept
}

func (l *live) tool(call string) *text {
	for _, t := range l.tools {
		if t.call == call {
			return t
		}
	}
	return nil
}

// durable takes a durable event.
func (h *history) durable(l *live, e entry, s step, i int) {
	switch {
	case s.ends:
		l.there = l.there && h.fold.makes("turn-end-leaves-live")
	case e.typ() == "turn/end" && l.there && e.turn() != "" && e.turn() == l.turn:
		l.there = false
		if _, open := h.turns(i); open != "" && !h.fold.makes("an-end-leaves-nothing-live") {
			h.fresh(l, open, i, false)
		}
	}
	if !l.there {
		return
	}
	if e.turn() != "" && e.turn() == l.turn {
		for _, b := range e.closes() {
			l.closed[num(b)] = true
			if !h.fold.makes("messages-leave-live") {
				delete(l.blocks, num(b))
			}
		}
	}
	switch e.typ() {
	case "tool/call":
		l.end(str(e.data["callId"]))
		if e.turn() == "" || e.turn() == l.turn {
			l.tools = append(l.tools, &text{call: str(e.data["callId"])})
		}
	case "tool/result":
		l.end(str(e.data["callId"]))
	}
}

// delta takes a live-only event.
func (h *history) delta(l *live, e entry, i int) {
	if !l.there || e.turn() != "" && e.turn() != l.turn {
		_, open := h.turns(i)
		late := h.over(e.turn(), i) || e.turn() == open && h.fold.makes("deltas-of-the-open-turn-are-no-gap")
		if e.turn() != "" && !late || e.turn() == "" && h.fold.makes("no-turn-is-a-gap") {
			l.gaps = true
		}
		if !l.there || !h.fold.makes("deltas-of-any-turn") {
			return
		}
	}
	var t *text
	block := num(e.data["block"])
	switch typ := e.event["type"]; {
	case typ == "tool/progress":
		if t = l.tool(str(e.data["callId"])); t == nil {
			if h.fold.makes("late-progress-is-a-gap") {
				l.gaps = true
			}
			return
		}
	case l.closed[block] && !h.fold.makes("closed-blocks-open-again"):
		return
	default:
		kind := strings.TrimSuffix(str(typ), "/delta")
		if t = l.blocks[block]; t == nil {
			t = &text{kind: kind}
		} else if h.fold.makes("blocks-change-their-kind") {
			t.kind = kind
		}
		defer func() {
			if t.have > 0 {
				if l.blocks[block] == nil {
					l.came = append(l.came, block)
				}
				l.blocks[block] = t
			}
		}()
	}
	h.chunk(l, t, num(e.data["from"]), num(e.data["to"]), str(e.data["text"]))
}

// chunk is the chunk rule.
func (h *history) chunk(l *live, t *text, from, to float64, more string) {
	switch {
	case to <= t.have && !h.fold.makes("repeated-deltas-count"):
	case from == t.have, from < t.have && h.fold.makes("overlapping-deltas-count"), h.fold.makes("repeated-deltas-count") && to <= t.have,
		from > t.have && h.fold.makes("missed-deltas-do-not-matter"):
		t.all += more
		t.have = max(to, t.have)
	case h.fold.makes("gaps-untold"):
	default:
		l.gaps = true
	}
}

// snapshot takes one part of a session/live.
func (h *history) snapshot(l *live, params object, i int) {
	first := !l.more || h.fold.makes("every-part-is-the-first")
	l.more = params["more"] == true
	if first && !h.fold.makes("snapshots-leave-gaps") {
		l.gaps = false
	}
	if !l.more || h.fold.makes("lagging-ends-with-the-first-part") {
		l.lagging = false
	}
	turn := obj(params["turn"])
	_, open := h.turns(i)
	switch {
	case turn == nil && h.fold.makes("null-snapshots-are-ignored"):
		return
	case turn == nil && open == "":
		l.there = false
		return
	case turn == nil:
		h.fresh(l, open, i, false)
		return
	case h.over(str(turn["turnId"]), i) && !h.fold.makes("snapshots-revive-turns"):
		return
	}
	if first || !l.there || l.turn != turn["turnId"] {
		h.fresh(l, str(turn["turnId"]), i, false)
	}
	for _, b := range list(turn["blocks"]) {
		h.loadBlock(l, obj(b))
	}
	for _, b := range list(turn["tools"]) {
		h.loadTool(l, obj(b), i)
	}
}

func (h *history) loadBlock(l *live, b object) {
	n := num(b["block"])
	if l.closed[n] && !h.fold.makes("snapshots-revive-blocks") {
		return
	}
	if l.blocks[n] == nil || num(b["offset"]) == 0 {
		l.blocks[n] = &text{kind: str(b["kind"])}
	}
	h.load(l, l.blocks[n], b)
}

func (h *history) loadTool(l *live, b object, i int) {
	call := str(b["callId"])
	t := l.tool(call)
	if t == nil {
		for _, it := range h.items(i) {
			if obj(obj(it)["tool"])["callId"] == call && !h.fold.makes("snapshots-revive-tools") {
				return // over by now
			}
		}
		t = &text{call: call}
		l.tools = append(l.tools, t)
	} else if num(b["offset"]) == 0 {
		t.all, t.have = "", 0
	}
	h.load(l, t, b)
}

// load appends a piece of a snapshot.
func (h *history) load(l *live, t *text, b object) {
	length := len(t.all)
	if h.fold.makes("offsets-count-characters") {
		length = utf8.RuneCountInString(t.all)
	}
	if num(b["offset"]) != float64(length) && !h.fold.makes("offsets-do-not-matter") {
		l.gaps = true
		return
	}
	t.all += str(b["text"])
	t.have = num(b["to"])
}

// wire is live as JSON.
func (l *live) wire(f *Fold) any {
	if !l.there {
		return nil
	}
	blocks, tools := []any{}, []any{}
	left := len(l.blocks)
	if f.makes("blocks-in-order-of-arrival") {
		for _, n := range l.came {
			if b := l.blocks[n]; b != nil {
				blocks = append(blocks, object{"block": n, "kind": b.kind, "text": b.all, "to": b.have})
			}
		}
		left = 0
	}
	for n := 0.0; left > 0; n++ {
		if b := l.blocks[n]; b != nil {
			blocks = append(blocks, object{"block": n, "kind": b.kind, "text": b.all, "to": b.have})
			left--
		}
	}
	for _, t := range l.tools {
		tools = append(tools, object{"callId": t.call, "text": tail(f, t.all), "to": t.have})
	}
	if f.makes("live-tools-by-id") {
		tools = byCall(tools)
	}
	return object{"turnId": l.turn, "blocks": blocks, "tools": tools}
}

func byCall(tools []any) []any {
	out := []any{}
	for _, t := range tools {
		out = insert(out, object{"id": obj(t)["callId"], "callId": obj(t)["callId"], "text": obj(t)["text"], "to": obj(t)["to"]}, true, false)
	}
	return out
}

// tail is what is kept of a tool's progress.
func tail(f *Fold, s string) string {
	switch {
	case f.makes("progress-is-kept-whole"):
		return s
	case f.makes("progress-counts-characters"):
		if r := []rune(s); len(r) > maxProgress {
			return string(r[len(r)-maxProgress:])
		}
		return s
	case len(s) <= maxProgress:
		return s
	}
	s = s[len(s)-maxProgress:]
	if f.makes("progress-is-cut-anywhere") {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
