package refold

// Turns of the first n entries, and which one is open (section 7).

// step is what an entry does to the turns.
type step struct {
	opens, ends bool
	joined      bool // opened by another event than turn/start
	before      string
}

// turns returns the rows of the first n entries, and the open turn's id.
func (h *history) turns(n int) ([]any, string) {
	rows, open, _ := h.walkTurns(n)
	return rows, open
}

// walkTurns also returns what each of the n entries did.
func (h *history) walkTurns(n int) ([]any, string, []step) {
	rows, _ := clone(list(h.base["turns"])).([]any)
	open := str(h.base["turnId"])
	steps := make([]step, n)
	for i, e := range h.entries[:n] {
		s := &steps[i]
		s.before = open
		switch typ := e.typ(); {
		case typ == "turn/start":
			s.opens = true
			open = e.turn()
			rows = append(rows, h.row(e, e.data))
		case open == "" && len(rows) == 0 && h.joins(e):
			s.opens, s.joined = true, true
			open = e.turn()
			rows = append(rows, h.row(e, object{}))
		}
		again := open == "" && len(rows) > 0 && h.fold.makes("ends-count-again")
		if e.typ() == "turn/end" && (again || open != "" && (e.turn() == "" || e.turn() == open || h.fold.makes("any-end-ends"))) {
			s.ends = true
			open = ""
			last := obj(rows[len(rows)-1])
			pick(pick(last, e.data, "reason", "message", "usage"), e.event, "endedAt=ts", "endSeq=seq")
		}
	}
	return rows, open, steps
}

// row begins a turn.
func (h *history) row(e entry, data object) object {
	return pick(pick(object{}, data, "trigger", "promptId"), e.event, "turnId", "startedAt=ts", "startSeq=seq")
}

// joins reports whether an event opens its turn in a view that saw none.
func (h *history) joins(e entry) bool {
	switch e.typ() {
	case "turn/end", "assistant/message", "assistant/retracted", "reasoning/message", "tool/call", "tool/result":
		return e.turn() != "" && !h.fold.makes("turns-are-not-joined")
	case "assistant/delta", "reasoning/delta", "tool/progress":
		return e.turn() != "" && h.fold.makes("deltas-with-a-seq-join")
	}
	return false
}

// began returns the seq at which the last turn of the first n entries began.
func (h *history) began(n int) float64 {
	rows, _ := h.turns(n)
	if len(rows) == 0 {
		return 0
	}
	return num(obj(rows[len(rows)-1])["startSeq"])
}

// over reports whether the turn was seen and is not the open one.
func (h *history) over(turn string, n int) bool {
	rows, open := h.turns(n)
	for _, row := range rows {
		if obj(row)["turnId"] == turn {
			return turn != open
		}
	}
	return false
}

// closes returns the blocks that an entry closes: those of a message or a
// retraction.
func (e entry) closes() []any {
	switch e.typ() {
	case "assistant/message", "reasoning/message", "assistant/retracted":
		return list(e.data["blocks"])
	}
	return nil
}

// closedIn returns the blocks of a turn that are closed after n entries.
func (h *history) closedIn(turn string, n int) map[float64]bool {
	closed := map[float64]bool{}
	if turn == str(h.base["turnId"]) {
		for _, b := range list(h.base["closedBlocks"]) {
			closed[num(b)] = true
		}
	}
	for _, e := range h.entries[:n] {
		if e.typ() == "turn/start" && e.turn() == turn {
			clear(closed)
		}
		if e.turn() == turn {
			for _, b := range e.closes() {
				closed[num(b)] = true
			}
		}
	}
	return closed
}

// closedBlocks lists those of the open turn.
func (h *history) closedBlocks(n int) []any {
	_, open := h.turns(n)
	if open == "" {
		return nil
	}
	out := []any{}
	closed := h.closedIn(open, n)
	for len(closed) > 0 {
		least, first := 0.0, true
		for b := range closed {
			if first || b < least {
				least, first = b, false
			}
		}
		delete(closed, least)
		out = append(out, least)
	}
	return out
}
