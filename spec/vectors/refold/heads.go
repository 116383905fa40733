package refold

import "maps"

// heads works out what the session is: the members that each have one source
// (section 6).
func (h *history) heads() object {
	v := pick(object{}, h.base, "title", "agent", "cwd", "origin", "parentSessionId", "rootSessionId", "depth", "callId", "forkedFrom",
		"createdAt", "closed", "labels", "config", "options", "policy", "budget", "model", "todos", "usage", "commands")
	for _, e := range h.entries {
		switch e.typ() {
		case "session/created":
			if num(e.event["seq"]) == 1 || h.fold.makes("created-counts-anywhere") {
				pick(v, e.data, "agent", "cwd", "title", "origin", "parentSessionId", "rootSessionId", "depth", "callId", "forkedFrom",
					"config", "policy", "budget", "labels")
				v["createdAt"] = e.event["ts"]
				if h.fold.makes("parents-are-lost") {
					pick(v, object{}, "parentSessionId", "callId")
				}
			}
		case "session/resumed":
			v["closed"] = h.fold.makes("closed-stays")
		case "session/closed":
			v["closed"] = true
		case "session/renamed":
			if v["title"] == nil || !h.fold.makes("first-title-stays") {
				v["title"] = e.data["title"]
			}
		case "session/configured":
			h.configure(v, e)
		case "model/start":
			pick(v, e.data, "model")
		case "model/switched":
			pick(v, e.data, "model=to")
		case "todo/write":
			if h.fold.makes("todos-add-up") {
				v["todos"] = append(list(v["todos"]), list(e.data["todos"])...)
				continue
			}
			pick(v, e.data, "todos")
		case "usage/updated":
			if h.fold.makes("usage-is-merged") && v["usage"] != nil {
				maps.Copy(obj(v["usage"]), obj(e.data["usage"]))
				continue
			}
			pick(v, e.data, "usage")
		case "command/available":
			more := list(v["commands"])
			pick(v, e.data, "commands")
			if h.fold.makes("commands-add-up") {
				v["commands"] = append(more, list(v["commands"])...)
			}
		}
	}
	return v
}

// configure replaces what is named, and merges options.
func (h *history) configure(v object, e entry) {
	for _, name := range []string{"policy", "budget"} {
		switch {
		case e.data[name] == nil:
		case v[name] != nil && h.fold.makes("policies-are-merged"):
			maps.Copy(obj(v[name]), obj(e.data[name]))
		default:
			v[name] = clone(e.data[name])
		}
	}
	if labels := obj(e.raw["labels"]); labels != nil {
		switch {
		case h.fold.makes("labels-are-merged") && v["labels"] != nil:
			maps.Copy(obj(v["labels"]), labels)
		default:
			v["labels"] = clone(labels)
		}
	}
	if options := obj(e.data["options"]); options != nil {
		if v["options"] == nil || h.fold.makes("options-are-replaced") {
			v["options"] = object{}
		}
		maps.Copy(obj(v["options"]), obj(clone(options)))
	}
}

// rows is a list of rows that are set by key and keep their place.
type rows struct {
	all  []any
	key  string
	move bool // a mistake: a row that is set again goes to the end
}

func (r *rows) set(row object) {
	for i := range r.all {
		if obj(r.all[i])[r.key] == row[r.key] && !r.move {
			r.all[i] = row
			return
		}
	}
	r.del(row[r.key])
	r.all = append(r.all, row)
}

func (r *rows) get(key any) object {
	for i := range r.all {
		if obj(r.all[i])[r.key] == key {
			return obj(r.all[i])
		}
	}
	return nil
}

func (r *rows) del(key any) {
	kept := []any{}
	for _, row := range r.all {
		if obj(row)[r.key] != key {
			kept = append(kept, row)
		}
	}
	r.all = kept
}

func (h *history) rowsOf(member, key string) *rows {
	all, _ := clone(list(h.base[member])).([]any)
	return &rows{all: all, key: key, move: h.fold.makes("rows-move-to-the-end")}
}

// id is a member that is an id, "" where it is left out.
func id(data object, name string) any { return any(str(data[name])) }

// queue is what waits for its turn.
func (h *history) queue() []any {
	r := h.rowsOf("queue", "promptId")
	for _, e := range h.entries {
		switch e.typ() {
		case "prompt/queued":
			row := pick(object{}, e.data, "promptId", "mode", "content")
			r.set(pick(row, e.event, "turnId", "by", "queuedAt=ts"))
		case "turn/start":
			if !h.fold.makes("turns-leave-the-queue-alone") {
				r.del(id(e.data, "promptId"))
			}
		case "prompt/dequeued":
			if !h.fold.makes("dequeued-prompts-wait-on") {
				r.del(id(e.data, "promptId"))
			}
		case "user/message", "steering/message", "context/message", "prompt/blocked":
			unnamed := e.data["promptId"] == nil && h.fold.makes("an-absent-key-is-none")
			if !unnamed && !h.fold.makes("messages-leave-the-queue-alone") {
				r.del(id(e.data, "promptId"))
			}
		}
	}
	return r.all
}

func (h *history) tasks() []any {
	r := h.rowsOf("tasks", "taskId")
	for _, e := range h.entries {
		switch e.typ() {
		case "task/started":
			r.set(pick(pick(object{}, e.data, "taskId", "kind", "label"), e.event, "startedAt=ts"))
		case "task/completed":
			if r.get(e.data["taskId"]) == nil {
				if h.fold.makes("only-started-tasks-complete") {
					continue
				}
				r.set(pick(object{}, e.data, "taskId"))
			}
			pick(pick(r.get(e.data["taskId"]), e.data, "status", "detail"), e.event, "finishedAt=ts")
		}
	}
	return r.all
}

func (h *history) children() []any {
	r := h.rowsOf("children", "sessionId")
	for _, e := range h.entries {
		switch e.typ() {
		case "agent/spawned":
			r.set(pick(object{}, e.data, "sessionId=childSessionId", "agent", "title", "callId"))
		case "agent/completed":
			if r.get(e.data["childSessionId"]) == nil {
				if h.fold.makes("only-spawned-children-have-rows") {
					continue
				}
				r.set(pick(object{}, e.data, "sessionId=childSessionId", "callId"))
			}
			pick(r.get(e.data["childSessionId"]), e.data, "status")
		}
	}
	return r.all
}
