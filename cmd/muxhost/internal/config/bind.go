package config

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// key is one key that a table may have. take stores its value, or says what it
// wants instead.
type key struct {
	name string
	take func(v any) error
}

// wants is the error of a value that is not what a key takes.
func wants(format string, args ...any) error { return fmt.Errorf("want "+format, args...) }

// bind hands every value of t to its key. other says what is wrong with a key that
// is none of keys, "" for the ordinary words.
func (t table) bind(keys []key, other func(name string) string) {
	for _, name := range t.keys() {
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if i < 0 {
			t.unknown(name, keys, other)
			continue
		}
		if err := keys[i].take(t.m[name]); err != nil {
			t.fault(name, "%s is %s: %v", name, t.shown(name), err)
		}
	}
}

func (t table) unknown(name string, keys []key, other func(string) string) {
	if len(t.doc.all) >= maxFaults { // nobody is told of it
		t.fault(name, "%s has no such key", t.name())
		return
	}
	if other != nil {
		if why := other(name); why != "" {
			t.fault(name, "%s", why)
			return
		}
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	hint := "it takes " + strings.Join(names, ", ")
	if like := nearest(name, names); like != "" {
		hint = fmt.Sprintf("did you mean %q?", like)
	}
	t.fault(name, "%s has no key %q: %s", t.name(), name, hint)
}

// nearest returns the one of words that name is most likely meant to be, "" if none
// is like it.
func nearest(name string, words []string) string {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }
	best, least := "", 1+max(1, len(name)/3)
	for _, w := range words {
		if d := distance(plain(name), plain(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is how many letters differ: added, left out, changed, or swapped with
// the next.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// hushed are keys whose text may be a secret that was written without its brackets.
var hushed = []string{"env", "pass-env"}

// shown is the value of a key for messages, never one that may be a secret.
func (t table) shown(name string) string {
	if _, ok := t.m[name].(string); ok && slices.Contains(hushed, name) {
		return "text"
	}
	return show(t.m[name])
}

// show is a value as a person wrote it, shortened.
func show(v any) string {
	switch v := v.(type) {
	case string:
		const most = 60
		if len(v) > most {
			v = frames.ValidText(v[:most]) + "…"
		}
		return fmt.Sprintf("%q", v)
	case map[string]any:
		return "a table"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}

// line reports whether s is one line of text without control characters.
func line(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func text(to *string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || s == "" || !line(s) {
			return wants(`text in quotes, such as "name"`)
		}
		*to = s
		return nil
	}
}

func oneOf(to *string, words ...string) func(any) error {
	return func(v any) error {
		s, _ := v.(string)
		if !slices.Contains(words, s) {
			quoted := make([]string, len(words))
			for i, w := range words {
				quoted[i] = fmt.Sprintf("%q", w)
			}
			hint := ""
			if like := nearest(s, words); like != "" {
				hint = fmt.Sprintf("; did you mean %q?", like)
			}
			return wants("%s%s", strings.Join(quoted, " or "), hint)
		}
		*to = s
		return nil
	}
}

func truth(to *bool) func(any) error {
	return func(v any) error {
		b, ok := v.(bool)
		if !ok {
			return wants("true or false, without quotes")
		}
		*to = b
		return nil
	}
}

// texts takes a list of strings that match form; what says what they are.
func texts(to *[]string, what string, form *regexp.Regexp) func(any) error {
	return func(v any) error {
		list, ok := v.([]any)
		if !ok {
			return wants("a list of %s, such as [\"…\"]", what)
		}
		out := []string{}
		for i, e := range list {
			s, ok := e.(string)
			if !ok || !form.MatchString(s) {
				return wants("a list of %s, but its entry %d is %s", what, i+1, show(e))
			}
			out = append(out, s)
		}
		*to = out
		return nil
	}
}

func duration(to *time.Duration, least, most time.Duration) func(any) error {
	return func(v any) error {
		s, _ := v.(string)
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most {
			return wants(`a duration from %s to %s in quotes, such as "90s" or "5m"`, span(least), span(most))
		}
		*to = d
		return nil
	}
}

// span writes d without zero minutes and seconds.
func span(d time.Duration) string {
	s := d.String()
	if d >= time.Minute {
		s = strings.TrimSuffix(s, "0s")
	}
	if d >= time.Hour {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func count[N int | int64](to *N, least, most N) func(any) error {
	return func(v any) error {
		n, ok := v.(int64)
		if !ok || n < int64(least) || n > int64(most) {
			if int64(most) == math.MaxInt64 {
				return wants("a whole number from %d, without quotes", least)
			}
			return wants("a whole number from %d to %d, without quotes", least, most)
		}
		*to = N(n)
		return nil
	}
}

// rules takes a list of tools, by name or as {tool, input}, and adds a rule with
// decision for each.
func rules(to *[]frames.Rule, decision string) func(any) error {
	return func(v any) error {
		list, ok := v.([]any)
		if !ok {
			return wants(`a list of tools, such as ["read", {tool = "bash", input = {command = "make"}}]`)
		}
		for i, e := range list {
			r, err := rule(e)
			if err != nil {
				return fmt.Errorf("its entry %d is %s: %w", i+1, show(e), err)
			}
			r.Decision = decision
			*to = append(*to, r)
		}
		return nil
	}
}

func rule(v any) (frames.Rule, error) {
	if s, ok := v.(string); ok && s != "" && line(s) {
		return frames.Rule{Tool: s}, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return frames.Rule{}, wants(`the name of a tool, or {tool = "…", input = {…}}`)
	}
	var r frames.Rule
	for k, v := range m {
		switch k {
		case "tool":
			r.Tool, _ = v.(string)
		case "input":
			b, err := json.Marshal(v)
			if err != nil {
				return r, wants("an input that JSON can hold (%w)", err)
			}
			r.Input = b
		default:
			return r, wants(`no key but "tool" and "input", got %q`, k)
		}
	}
	if r.Tool == "" || !line(r.Tool) {
		return r, wants(`a tool, as in {tool = "bash"}`)
	}
	return r, nil
}
