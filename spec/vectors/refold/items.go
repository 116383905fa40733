package refold

import "slices"

// items of the first n entries (sections 6 to 9).
func (h *history) items(n int) []any {
	w := &writer{h: h, mutant: h.fold.makes}
	w.all, _ = clone(list(h.base["items"])).([]any)
	_, _, steps := h.walkTurns(n)
	for i, e := range h.entries[:n] {
		w.at, w.open = i, steps[i].before
		if steps[i].opens {
			if w.open != "" || !w.mutant("a-start-stops-only-its-predecessor") {
				w.stopAll()
			}
			w.open = e.turn()
		}
		w.entry(e)
		if steps[i].ends {
			w.stopAll()
		}
	}
	return w.all
}

// writer writes the items, entry by entry.
type writer struct {
	h      *history
	all    []any
	at     int    // entries before this one
	open   string // the open turn
	mutant func(string) bool
}

// add makes an item.
func (w *writer) add(e entry, kind string) object {
	it := pick(object{"kind": kind}, e.event, "seq", "ts", "turnId", "by")
	if w.mutant("items-forget-who") {
		delete(it, "by")
	}
	w.all = append(w.all, it)
	return it
}

func (w *writer) entry(e entry) {
	switch e.typ() {
	case "session/compacted":
		pick(w.add(e, "compaction"), e.data, "content", "upTo")
	case "user/message":
		pick(w.add(e, "user"), e.data, "promptId", "content")
	case "steering/message":
		pick(w.add(e, "steering"), e.data, "promptId", "content")
	case "context/message":
		pick(w.add(e, "context"), e.data, "promptId", "content")
	case "prompt/blocked":
		pick(w.add(e, "blocked"), e.data, "promptId", "message=reason")
	case "error":
		pick(w.add(e, "error"), e.data, "code", "message", "retryable")
	case "assistant/message":
		w.message(e, "assistant")
	case "reasoning/message":
		w.message(e, "reasoning")
	case "assistant/retracted":
		if !w.mutant("retractions-are-ignored") {
			w.release(e)
		}
	case "tool/call":
		w.stop(str(e.data["callId"]))
		card := pick(object{"running": true}, e.data, "callId", "name", "kind", "title", "input", "locations", "truncated")
		w.add(e, "tool")["tool"] = card
	case "tool/result":
		w.result(e)
	case "agent/spawned":
		w.add(e, "agent")["agent"] = pick(object{}, e.data, "childSessionId", "callId", "agent", "title")
	case "agent/completed":
		w.completed(e)
	default:
		w.rest(e)
	}
}

func (w *writer) rest(e entry) {
	switch e.typ() {
	case "approval/asked", "question/asked":
		w.asked(e)
	case "approval/decided", "question/decided":
		w.decided(e)
	case "":
	default:
		if w.mutant("silent-events-are-items") && !loud[e.typ()] {
			w.add(e, "error")["code"] = e.typ()
		}
	}
}

// loud are the events that say something in another way than by an item.
var loud = map[string]bool{
	"session/created": true, "session/resumed": true, "session/renamed": true, "session/configured": true, "session/closed": true,
	"prompt/queued": true, "prompt/dequeued": true, "turn/start": true, "turn/end": true, "todo/write": true, "task/started": true,
	"task/completed": true, "model/start": true, "model/switched": true, "usage/updated": true, "command/available": true,
}

// last returns the last item for which ok holds.
func (w *writer) last(ok func(it object) bool) object {
	for i := len(w.all) - 1; i >= 0; i-- {
		if it := obj(w.all[i]); ok(it) {
			return it
		}
	}
	return nil
}

// stopAll ends all that runs.
func (w *writer) stopAll() {
	if w.mutant("turn-end-leaves-tools-running") {
		return
	}
	for _, it := range w.all {
		if card := obj(obj(it)["tool"]); card != nil {
			delete(card, "running")
		}
	}
}

// stop ends what runs of a call.
func (w *writer) stop(call string) {
	for _, it := range w.all {
		if card := obj(obj(it)["tool"]); card != nil && str(card["callId"]) == call {
			delete(card, "running")
		}
	}
}

func (w *writer) result(e entry) {
	call := str(e.data["callId"])
	w.stop(call)
	isCall := func(it object) bool { return it["kind"] == "tool" && obj(it["tool"])["callId"] == call }
	it := w.last(isCall)
	if w.mutant("result-goes-to-the-first-call") {
		for i := range w.all {
			if it = obj(w.all[i]); isCall(it) {
				break
			}
			it = nil
		}
	}
	if it == nil {
		if w.mutant("results-need-a-call") {
			return
		}
		it = w.add(e, "tool")
		it["tool"] = pick(object{}, e.data, "callId")
	}
	if obj(it["tool"])["resultSeq"] != nil && w.mutant("first-result-stays") {
		return
	}
	pick(pick(obj(it["tool"]), e.data, "content", "isError", "errorCode", "durationMs", "details"), e.event, "resultSeq=seq")
}

func (w *writer) completed(e entry) {
	child := e.data["childSessionId"]
	it := w.last(func(it object) bool { return it["kind"] == "agent" && obj(it["agent"])["childSessionId"] == child })
	if it == nil {
		if w.mutant("only-spawned-agents-complete") {
			return
		}
		it = w.add(e, "agent")
		it["agent"] = pick(object{}, e.data, "childSessionId", "callId")
	}
	if card := obj(it["agent"]); card["status"] == nil || !w.mutant("first-completion-stays") {
		pick(pick(card, e.data, "status", "result"), e.event, "endSeq=seq")
	}
}

// message adds a message, or puts it where it replaces another.
func (w *writer) message(e entry, kind string) {
	it := pick(object{"kind": kind}, e.event, "seq", "ts", "turnId", "by")
	pick(it, e.data, "content", "blocks", "partial")
	if !w.mutant("usage-of-messages-is-lost") {
		pick(it, e.data, "usage") // of assistant/message only: reasoning/message knows none
	}
	if kind == "reasoning" && len(list(it["content"])) == 0 && !w.mutant("withheld-is-not-told") {
		pick(it, e.data, "withheld")
	}
	at := w.release(e)
	if at < 0 || w.mutant("messages-go-to-the-end") {
		w.all = append(w.all, it)
		return
	}
	if w.mutant("replaced-keeps-its-seq") {
		it["seq"] = obj(w.all[at])["seq"]
	}
	w.all[at] = it
}

// release takes blocks from the messages that hold them, and returns the place of
// the first that is left without any, -1 where there is none.
func (w *writer) release(e entry) int {
	if (w.open == "" || e.turn() != w.open) && !w.mutant("blocks-of-any-turn") {
		return -1
	}
	first := -1
	blocks := e.closes()
	if len(blocks) == 0 && w.mutant("no-blocks-means-the-first") {
		blocks = []any{0.0}
	}
	for _, n := range blocks {
		at := w.holder(n, e)
		if at < 0 {
			continue
		}
		it := obj(w.all[at])
		w.take(it, n)
		if len(list(it["blocks"])) > 0 {
			continue
		}
		if !w.mutant("void-keeps-its-content") {
			it = pick(object{}, it, "kind", "seq", "ts", "turnId")
		}
		it["void"] = true
		w.all[at] = it
		if first < 0 || at < first && w.mutant("replaces-in-the-order-of-items") {
			first = at
		}
	}
	return first
}

// holder returns the place of the message of the open turn that holds a block.
func (w *writer) holder(n any, e entry) int {
	began := w.h.began(w.at + 1)
	for i, it := range w.all {
		it := obj(it)
		if kind := it["kind"]; kind != "assistant" && kind != "reasoning" {
			continue
		}
		if (str(it["turnId"]) != e.turn() || num(it["seq"]) < began && !w.mutant("messages-before-the-start-count")) && !w.mutant("blocks-of-any-turn") {
			continue
		}
		if slices.Contains(list(it["blocks"]), n) {
			return i
		}
	}
	return -1
}

// take removes a block and its content, or all where they cannot be told apart.
func (w *writer) take(it object, n any) {
	blocks, content := list(it["blocks"]), list(it["content"])
	if len(blocks) != len(content) || w.mutant("a-message-goes-as-a-whole") {
		delete(it, "blocks")
		return
	}
	keptBlocks, kept := []any{}, []any{}
	for i := range blocks {
		if blocks[i] != n || len(keptBlocks) < i && w.mutant("a-block-is-there-once") {
			keptBlocks, kept = append(keptBlocks, blocks[i]), append(kept, content[i])
		}
	}
	it["blocks"], it["content"] = keptBlocks, kept
}

// asked begins a decision.
func (w *writer) asked(e entry) {
	d := pick(pick(object{}, e.data, "id", "questions"), e.event, "askedSeq=seq")
	call := str(e.data["callId"])
	it := w.last(func(it object) bool { return it["kind"] == "tool" && obj(it["tool"])["callId"] == call })
	if call == "" || it == nil || w.mutant("decisions-stand-alone") {
		w.add(e, kindOf(e))["decision"] = d
		return
	}
	card := obj(it["tool"])
	card["decisions"] = append(list(card["decisions"]), d)
}

func kindOf(e entry) string {
	if typ := e.typ(); typ == "approval/asked" || typ == "approval/decided" {
		return "approval"
	}
	return "question"
}

// decided ends the decision that was begun last.
func (w *writer) decided(e entry) {
	d := w.begun(str(e.data["id"]))
	if d == nil {
		d = pick(object{}, e.data, "id")
		w.add(e, kindOf(e))["decision"] = d
	}
	pick(pick(d, e.data, "outcome", "origin", "by", "feedback", "grant", "answers"), e.event, "seq", "ts")
}

// begun returns the decision of an id that was begun last, nil where it is ended
// or there is none.
func (w *writer) begun(id string) object {
	var last object
	look := func(d object) {
		later := num(d["askedSeq"]) > num(last["askedSeq"]) && !w.mutant("decisions-go-to-the-first-asked")
		if d["id"] == id && (last == nil || later) {
			last = d
		}
	}
	for _, it := range w.all {
		it := obj(it)
		if d := obj(it["decision"]); d != nil {
			look(d)
		}
		for _, d := range list(obj(it["tool"])["decisions"]) {
			look(obj(d))
		}
	}
	if last != nil && last["seq"] != nil {
		return nil
	}
	return last
}

// surface is what the model sees (section 12).
func (h *history) surface(items []any) object {
	s := pick(object{}, obj(h.base["surface"]), "upTo", "summary")
	for _, e := range h.entries {
		if e.typ() == "session/compacted" {
			pick(s, e.data, "upTo", "summary=content")
		}
	}
	seqs := []any{}
	for _, it := range items {
		it := obj(it)
		seq := num(it["seq"])
		switch it["kind"] {
		case "user", "steering", "context", "assistant":
		case "tool":
			if !h.fold.makes("surface-counts-calls") {
				seq = num(obj(it["tool"])["resultSeq"])
			}
		case "agent":
			seq = num(obj(it["agent"])["endSeq"])
		case "reasoning":
			if !h.fold.makes("surface-has-reasoning") {
				seq = 0
			}
		default:
			seq = 0
		}
		if (seq > num(s["upTo"]) || seq > 0 && h.fold.makes("compaction-keeps-the-surface")) &&
			(it["void"] != true || h.fold.makes("surface-has-void-items")) {
			seqs = append(seqs, it["seq"])
		}
	}
	s["seqs"] = seqs
	return s
}
