// Package refold folds frames into the view of a session a second time: written
// from spec/fold.md and the published schemas alone, over plain JSON values, and
// slow on purpose. Everything is worked out anew from the whole list of frames; it
// keeps no index and shares nothing with package frames. The expected views of
// the vectors are written by it.
//
// A [Fold] can be told to make one mistake, a mutant, by name. Vectors are worth
// something as far as they find such mistakes.
//
// refold imports the standard library only; nothing but tests imports it.
package refold

import "slices"

// object is a JSON object.
type object = map[string]any

// Frame is one notification: its method, and its params as JSON values (numbers
// are float64).
type Frame struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

// Fold folds frames. Mutant names the mistake to make, "" for none. Chances, where
// it is not nil, gets the mistakes for which there was an occasion.
type Fold struct {
	Schemas *Schemas
	Mutant  string
	Chances map[string]bool
}

// Result is what a fold gives: the view as JSON values, the frames at which a
// durable event was missed, and those that were malformed.
type Result struct {
	View            map[string]any
	Missed, Refused []int
}

// View folds the frames that a client of the session received.
func (f *Fold) View(session string, frames []Frame) Result {
	h := &history{fold: f, base: object{}}
	res := Result{}
	for i, fr := range frames {
		sid, named := fr.Params["sessionId"]
		if named && sid != session && !f.makes("other-sessions-count") {
			continue
		}
		missed, refused := h.admit(fr)
		if missed {
			res.Missed = append(res.Missed, i)
		}
		if refused && !f.makes("malformed-untold") {
			res.Refused = append(res.Refused, i)
		}
	}
	res.View = h.view()
	return res
}

// makes reports whether the fold makes this mistake.
func (f *Fold) makes(mutant string) bool {
	if _, listed := slices.BinarySearch(mutants, mutant); !listed {
		panic("refold: " + mutant + " is not listed")
	}
	if f.Chances != nil {
		f.Chances[mutant] = true
	}
	return f.Mutant == mutant
}

// history is what a view is made of: the view that a base was, and the frames
// since then that count.
type history struct {
	fold    *Fold
	base    object
	entries []entry
	parts   []string // of a base that is not whole
	due     int      // parts of that base, 0 where none is due
}

// entry is one frame. Of an event, event is its envelope and data its data, with
// the members that its schema knows.
type entry struct {
	method string
	params object
	event  object
	data   object
	raw    object // the data as it came
}

// view is the fold of all entries.
func (h *history) view() object {
	n := len(h.entries)
	v := h.heads()
	v["seq"] = h.seq()
	v["turns"], v["turnId"] = h.turns(n)
	items := h.items(n)
	v["items"] = items
	v["queue"] = h.queue()
	v["tasks"] = h.tasks()
	v["children"] = h.children()
	v["pending"] = h.pending()
	v["closedBlocks"] = h.closedBlocks(n)
	v["surface"] = h.surface(items)
	l := h.live(n)
	v["live"], v["gaps"], v["lagging"] = l.wire(h.fold), l.gaps, l.lagging
	v["epoch"], v["subscribed"] = h.subscription()
	v["status"] = h.status(v)
	v["partialBase"] = h.partial()
	c := h.fold.copier()
	c.nullIsBad = false // what this program leaves out
	c.anyTime = true    // and what it made of a time that is not there
	return c.finish(v)
}

// seq is that of the last durable event.
func (h *history) seq() float64 {
	seq := num(h.base["seq"])
	for _, e := range h.entries {
		seq = max(seq, num(e.event["seq"]))
	}
	return seq
}

// subscription is what the last session/subscribed said.
func (h *history) subscription() (epoch string, subscribed bool) {
	for _, e := range h.entries {
		if e.method == "session/subscribed" {
			epoch, subscribed = str(e.params["epoch"]), true
		}
	}
	return epoch, subscribed
}

// typ is the type of the durable event that the entry is, "" for anything else.
func (e entry) typ() string {
	if e.event == nil || num(e.event["seq"]) == 0 {
		return ""
	}
	return str(e.event["type"])
}

func (e entry) turn() string { return str(e.event["turnId"]) }

func str(v any) string { s, _ := v.(string); return s }

func num(v any) float64 { n, _ := v.(float64); return n }

func list(v any) []any { l, _ := v.([]any); return l }

func obj(v any) object { o, _ := v.(object); return o }

// clone copies JSON values.
func clone(v any) any {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for name, member := range v {
			out[name] = clone(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	}
	return v
}

// pick copies the named members; "a=b" copies b as a.
func pick(dst, src object, names ...string) object {
	for _, name := range names {
		as := name
		for i := range name {
			if name[i] == '=' {
				as, name = name[:i], name[i+1:]
				break
			}
		}
		if v, ok := src[name]; ok {
			dst[as] = clone(v)
		} else {
			delete(dst, as)
		}
	}
	return dst
}
