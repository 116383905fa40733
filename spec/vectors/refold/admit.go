package refold

import (
	"encoding/json"
	"strings"
)

// paramsOf names the definitions of what the frames that do something carry.
var paramsOf = map[string]string{
	"session/subscribed": "SessionSubscribed", "session/base": "SessionBase", "session/live": "SessionLive", "host/session-status": "SessionStatus",
	"approval/requested": "ApprovalRequested", "question/requested": "QuestionRequested",
	"approval/resolved": "ApprovalResolved", "question/resolved": "QuestionResolved",
}

// admit takes the next frame into the history, if it counts (sections 3 to 5).
func (h *history) admit(f Frame) (missed, refused bool) {
	if def := paramsOf[f.Method]; def != "" && !h.fold.makes("frames-are-not-checked") {
		if _, err := h.fold.copier().copy(object{"$ref": "#/$defs/" + def}, f.Params); err != nil {
			return false, true
		}
	}
	switch f.Method {
	case "session/subscribed":
		return false, h.subscribe(f)
	case "session/base":
		return false, h.part(f)
	case "session/event":
		return h.event(f)
	case "session/live", "session/lagging", "host/session-status", "host/subscribed",
		"approval/requested", "question/requested", "approval/resolved", "question/resolved":
		h.entries = append(h.entries, entry{method: f.Method, params: f.Params})
	default:
		known := strings.HasPrefix(f.Method, "host/") || strings.HasPrefix(f.Method, "mux/") || f.Method == "session/unsubscribed"
		return false, !known && h.fold.makes("unknown-frames-are-malformed")
	}
	return false, false
}

// subscribe begins a baseline; it may begin the history anew.
func (h *history) subscribe(f Frame) (refused bool) {
	base, ok := f.Params["base"]
	epoch, _ := h.subscription()
	switch {
	case ok && base == nil && h.fold.makes("null-base-is-a-base"):
		h.base, h.entries = object{}, nil
	case ok && base != nil && !h.fold.makes("base-ignored"):
		v, good := h.asView(base)
		if !good {
			if h.fold.makes("a-broken-base-drops-parts") {
				h.parts, h.due = nil, 0
			}
			return true
		}
		h.base, h.entries = v, nil
	case num(f.Params["since"]) > 0 && h.fold.makes("resuming-begins-anew"):
		h.base, h.entries = object{}, nil
	case num(f.Params["since"]) == 0 && epoch != "" && epoch != f.Params["epoch"] && !h.fold.makes("epoch-ignored"),
		epoch != "" && epoch != f.Params["epoch"] && h.fold.makes("epoch-resets-any-cursor"):
		h.base, h.entries = object{}, nil
	}
	h.parts, h.due = nil, int(num(f.Params["baseParts"]))
	h.entries = append(h.entries, entry{method: f.Method, params: f.Params})
	return false
}

// part takes a part of a base; the last one begins the history anew, with what
// the subscription said.
func (h *history) part(f Frame) (refused bool) {
	n := len(h.parts)
	inOrder := h.due > 0 && num(f.Params["part"]) == float64(n) && num(f.Params["parts"]) == float64(h.due)
	if !inOrder && !h.fold.makes("base-parts-in-any-order") {
		h.parts, h.due = nil, 0
		return true
	}
	h.parts = append(h.parts, str(f.Params["text"]))
	if len(h.parts) < h.due {
		return false
	}
	text := strings.Join(h.parts, "")
	if h.fold.makes("base-is-its-last-part") {
		text = h.parts[len(h.parts)-1]
	}
	h.parts, h.due = nil, 0
	var base any
	if json.Unmarshal([]byte(text), &base) != nil {
		return true
	}
	v, good := h.asView(base)
	if !good {
		return true
	}
	said := []entry{}
	for _, e := range h.entries {
		switch e.method {
		case "session/subscribed":
			said = []entry{e}
		case "host/session-status":
			said = append(said, e)
		}
	}
	h.base, h.entries = v, said
	return false
}

// partial is what the view keeps of a base that is not whole.
func (h *history) partial() any {
	if h.due == 0 || h.fold.makes("parts-are-not-kept") {
		return nil
	}
	return object{"part": float64(len(h.parts)), "parts": float64(h.due), "text": strings.Join(h.parts, "")}
}

// asView checks that a base is a view.
func (h *history) asView(base any) (object, bool) {
	if _, ok := base.(object); !ok {
		return nil, false
	}
	out, err := copier{s: h.fold.Schemas}.copy(object{"$ref": "#/$defs/View"}, base)
	if err != nil {
		return nil, false
	}
	v := out.(object)
	for _, it := range list(v["items"]) {
		it := obj(it)
		if str(it["kind"]) == "" || it["kind"] == "tool" && it["tool"] == nil || it["kind"] == "agent" && it["agent"] == nil {
			return nil, false
		}
	}
	if open := str(v["turnId"]); open != "" {
		turns := list(v["turns"])
		if len(turns) == 0 || obj(turns[len(turns)-1])["turnId"] != open {
			return nil, false
		}
	}
	return v, true
}

// event takes an event that was not here before.
func (h *history) event(f Frame) (missed, refused bool) {
	event := obj(f.Params["event"])
	typ, isType := event["type"].(string)
	raw, isData := event["data"].(object)
	if !isType || typ == "" || !isData || !h.envelope(event) {
		if h.fold.makes("malformed-event-counts") {
			h.entries = append(h.entries, entry{method: f.Method, event: object{"seq": num(event["seq"])}})
		}
		return false, true
	}
	seq, had := num(event["seq"]), h.seq()
	before := seq <= had || h.fold.makes("numbers-have-32-bits") && float32(seq) <= float32(had)
	if seq > 0 && before && !h.fold.makes("events-repeat") {
		return false, false
	}
	hole := seq > 0 && (had > 0 || h.fold.makes("first-event-must-be-one")) && seq != had+1
	if hole && h.fold.makes("holes-stop") {
		return true, false
	}
	e, ok := h.decode(typ, event, raw)
	switch {
	case !ok && h.fold.makes("malformed-is-not-counted"):
		return false, true
	case e.data == nil && ok && h.fold.makes("unknown-is-not-counted"):
		return false, false
	}
	if seq > 0 || ok {
		h.entries = append(h.entries, e)
	}
	return ok && hole && !h.fold.makes("holes-untold"), !ok
}

// envelope checks the members around the data.
func (h *history) envelope(event object) bool {
	if h.fold.makes("envelopes-are-not-checked") {
		return true
	}
	props := obj(obj(h.fold.Schemas.defs["Event"])["properties"])
	for _, name := range []string{"seq", "after", "ts", "turnId", "by", "traceId"} {
		if _, err := h.fold.copier().copy(obj(props[name]), event[name]); err != nil {
			return false
		}
	}
	return num(event["seq"]) < 1<<53 && num(event["seq"]) >= 0
}

// decode reads an event; data is nil where it does nothing more than to count.
func (h *history) decode(typ string, event, raw object) (entry, bool) {
	e := entry{method: "session/event", event: object{"seq": num(event["seq"])}, raw: raw}
	def, known := h.fold.Schemas.events[typ]
	live := typ == "assistant/delta" || typ == "reasoning/delta" || typ == "tool/progress"
	if !known || num(event["seq"]) == 0 && !live {
		if h.fold.makes("unknown-is-an-error-item") && num(event["seq"]) > 0 {
			e.event["type"], e.data = "error", object{"code": typ}
		}
		return e, true
	}
	c := h.fold.copier()
	data, err := c.copy(object{"$ref": "#/$defs/" + def}, raw)
	if err != nil {
		return e, false
	}
	pick(e.event, event, "type", "ts", "turnId")
	if by := obj(event["by"]); by != nil {
		if e.event["by"], err = c.copy(object{"$ref": "#/$defs/By"}, by); err != nil {
			return e, false
		}
	}
	e.data = obj(data)
	return e, true
}
