package refold

import (
	"slices"
	"strings"
	"unicode/utf16"
)

// pending is what waits, worked out request by request (section 9).
func (h *history) pending() []any {
	ids := map[string]bool{}
	for _, row := range list(h.base["pending"]) {
		ids[str(obj(row)["id"])] = true
	}
	for _, e := range h.entries {
		if id, ok := requestOf(e); ok {
			ids[id] = true
		}
	}
	out := []any{}
	for id := range ids {
		if row := h.request(id); row != nil {
			out = insert(out, row, h.fold.makes("pending-by-id"), h.fold.makes("pending-in-utf-16-order"))
		}
	}
	return out
}

// requestOf names the request that an entry asks or requests.
func requestOf(e entry) (id string, ok bool) {
	switch {
	case strings.HasSuffix(e.typ(), "/asked"):
		return str(e.data["id"]), true
	case strings.HasSuffix(e.method, "/requested"):
		return str(e.params["id"]), true
	}
	return "", false
}

// request is the row of one id, nil where it does not wait.
func (h *history) request(id string) object {
	var asked, card object
	for _, row := range list(h.base["pending"]) {
		if row := obj(clone(row)); row["id"] == id && num(row["seq"]) > 0 {
			delete(row, "card") // the subscription took it away
			asked = row
		}
	}
	for _, e := range h.entries {
		named := str(e.data["id"]) == id
		shown := str(e.params["id"]) == id
		switch typ := e.typ(); {
		case named && strings.HasSuffix(typ, "/asked"):
			asked = askedRow(e)
		case named && strings.HasSuffix(typ, "/decided"):
			if e.data["origin"] != "reply" && h.fold.makes("only-answers-end-a-request") {
				continue
			}
			asked = nil
			if !h.fold.makes("decided-leaves-the-card") {
				card = nil
			}
		case shown && strings.HasSuffix(e.method, "/requested"):
			card = h.card(e)
		case shown && strings.HasSuffix(e.method, "/resolved"):
			card = nil
			if h.fold.makes("resolved-ends-the-row") {
				asked = nil
			}
		case e.method == "session/subscribed" && !h.fold.makes("baseline-keeps-cards"),
			e.method == "host/subscribed" && !h.fold.makes("inbox-keeps-cards"):
			card = nil
		}
	}
	switch {
	case asked == nil:
		return card
	case card != nil && h.fold.makes("frames-win-over-the-audit"):
		return pick(pick(object{}, asked, "seq"), card, "id", "kind", "card", "tool", "input", "questions", "askedAt", "reason")
	case card != nil:
		asked = obj(clone(asked))
		asked["card"] = true
	}
	return asked
}

// askedRow is what an audit event says.
func askedRow(e entry) object {
	row := pick(object{"kind": kindOf(e)}, e.data, "id", "callId", "tool", "input", "inputHash", "truncated", "reason", "options", "questions", "expiresAt")
	return pick(row, e.event, "seq", "turnId", "askedAt=ts")
}

// card is what a frame says.
func (h *history) card(e entry) object {
	kind, def := "question", "QuestionRequested"
	if strings.HasPrefix(e.method, "approval/") {
		kind, def = "approval", "ApprovalRequested"
	}
	said, err := h.fold.copier().copy(object{"$ref": "#/$defs/" + def}, e.params)
	if err != nil {
		return nil
	}
	return pick(object{"kind": kind, "card": true}, obj(said), "id", "turnId", "callId", "tool", "input", "inputHash", "truncated", "reason",
		"options", "questions", "askedAt", "expiresAt")
}

// insert keeps rows sorted by askedAt, then by id.
func insert(rows []any, row object, byID, units bool) []any {
	after := func(a, b object) bool {
		if a["askedAt"] != b["askedAt"] && !byID {
			return str(a["askedAt"]) > str(b["askedAt"])
		}
		if units {
			return slices.Compare(utf16.Encode([]rune(str(a["id"]))), utf16.Encode([]rune(str(b["id"])))) > 0
		}
		return str(a["id"]) > str(b["id"])
	}
	rows = append(rows, row)
	for i := len(rows) - 1; i > 0 && after(obj(rows[i-1]), obj(rows[i])); i-- {
		rows[i-1], rows[i] = rows[i], rows[i-1]
	}
	return rows
}

// status is what the session does (section 10): what was said last, unless
// something happened since.
func (h *history) status(v object) string {
	_, _, steps := h.walkTurns(len(h.entries))
	for i := len(h.entries) - 1; i >= 0; i-- {
		e := h.entries[i]
		if (e.method == "session/subscribed" || e.method == "host/session-status") && !h.fold.makes("status-is-always-worked-out") {
			return str(e.params["state"])
		}
		if steps[i].opens || steps[i].ends || h.settles(e, i) {
			return h.workedOut(v)
		}
	}
	if said := str(h.base["status"]); said != "" {
		return said
	}
	return h.workedOut(v)
}

// settles reports whether an entry makes the status be worked out, beside turns.
func (h *history) settles(e entry, i int) bool {
	switch typ := e.typ(); {
	case typ == "turn/end":
		l := h.live(i)
		return l.there && e.turn() != "" && l.turn == e.turn()
	case strings.HasPrefix(typ, "approval/"), strings.HasPrefix(typ, "question/"):
		return true
	}
	switch e.method {
	case "approval/resolved", "question/resolved":
		return !h.fold.makes("resolved-leaves-the-status")
	case "session/live", "host/subscribed", "approval/requested", "question/requested":
		return true
	}
	return false
}

func (h *history) workedOut(v object) string {
	waits := "seq"
	if v["subscribed"] == true && !h.fold.makes("status-counts-the-audit") {
		waits = "card"
	}
	for _, row := range list(v["pending"]) {
		if shown := obj(row)[waits]; shown != nil && shown != false {
			return "requires-action"
		}
	}
	if str(v["turnId"]) != "" || obj(v["live"]) != nil && !h.fold.makes("joined-turn-is-idle") {
		return "running"
	}
	return "idle"
}
