package conform

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
)

// obj is a JSON object, read and written without knowing its type.
type obj map[string]any

// list is a JSON array.
type list = []any

// get returns the value at a path such as "session.labels.a" or "events.0.seq",
// nil if there is none.
func (o obj) get(path string) any {
	var v any = map[string]any(o)
	for step := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case obj:
			v = x[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// has reports whether there is a value at a path, null included.
func (o obj) has(path string) bool {
	up, last, nested := cutLast(path)
	if !nested {
		_, ok := o[path]
		return ok
	}
	_, ok := o.obj(up)[last]
	return ok
}

func cutLast(path string) (up, last string, nested bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// str returns the string at a path, "" if there is none.
func (o obj) str(path string) string {
	s, _ := o.get(path).(string)
	return s
}

// num returns the integer at a path, -1 if there is none.
func (o obj) num(path string) int64 {
	f, ok := o.get(path).(float64)
	if !ok || f != float64(int64(f)) {
		return -1
	}
	return int64(f)
}

// flag returns the boolean at a path, false if there is none.
func (o obj) flag(path string) bool {
	b, _ := o.get(path).(bool)
	return b
}

// list returns the array at a path, nil if there is none.
func (o obj) list(path string) list {
	l, _ := o.get(path).([]any)
	return l
}

// objs returns the objects of the array at a path.
func (o obj) objs(path string) []obj {
	var out []obj
	for _, v := range o.list(path) {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// strs returns the strings of the array at a path.
func (o obj) strs(path string) []string {
	var out []string
	for _, v := range o.list(path) {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// obj returns the object at a path, nil if there is none.
func (o obj) obj(path string) obj {
	m, _ := o.get(path).(map[string]any)
	return m
}

// with returns o with the members of more, which win.
func (o obj) with(more obj) obj {
	out := maps.Clone(o)
	if out == nil {
		out = obj{}
	}
	maps.Copy(out, more)
	return out
}

// without returns o without a member.
func (o obj) without(key string) obj {
	out := maps.Clone(o)
	delete(out, key)
	return out
}

// text returns v as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "(no JSON: " + err.Error() + ")"
	}
	return string(b)
}

// same reports whether two JSON values are equal, whatever the order of members.
func same(a, b any) bool { return text(a) == text(b) }

// clip shortens what is shown of a message.
func clip(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	return s[:most] + "… (" + strconv.Itoa(len(s)) + " bytes)"
}
