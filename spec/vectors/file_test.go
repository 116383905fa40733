package vectors_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxhost/muxhost/spec/vectors/refold"
)

// update writes what is expected anew: the views of the fold vectors, from refold,
// and the table of mutants in README.md.
var update = flag.Bool("update", false, "write expected views and the table of mutants, from refold")

// foldVector is one file of fold/.
type foldVector struct {
	Name    string            `json:"name"`
	Doc     string            `json:"doc"`
	Session string            `json:"session"`
	Frames  []json.RawMessage `json:"frames"`
	Steps   []foldStep        `json:"steps,omitempty"`
	Gap     *int              `json:"gap,omitempty"`
	Refused *int              `json:"refused,omitempty"`
	View    any               `json:"view"`

	file   string
	frames []refold.Frame    // expanded
	wire   []json.RawMessage // expanded, each the whole notification
}

type foldStep struct {
	After int `json:"after"`
	View  any `json:"view"`
}

// foldVectors reads every file of fold/.
func foldVectors(t *testing.T) []*foldVector {
	t.Helper()
	var all []*foldVector
	for _, name := range vectorFiles(t, "fold") {
		v := &foldVector{file: name}
		readVector(t, name, v)
		for i := range v.Steps {
			v.Steps[i].View = expand(v.Steps[i].View)
		}
		v.View = expand(v.View)
		for _, raw := range v.Frames {
			v.add(t, raw)
		}
		all = append(all, v)
	}
	return all
}

// vectorFiles lists the files of a kind.
func vectorFiles(t *testing.T, kind string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(kind, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no vectors in %s: %v", kind, err)
	}
	slices.Sort(names)
	return names
}

// readVector reads a file, which knows no other members than v has.
func readVector(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// add expands a frame. What holds no shorthand goes through byte for byte.
func (v *foldVector) add(t *testing.T, raw json.RawMessage) {
	t.Helper()
	var f refold.Frame
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatalf("%s: %v", v.file, err)
	}
	if bytes.Contains(raw, []byte(`"$text"`)) {
		f.Params = expand(f.Params).(map[string]any)
		raw = mustJSON(t, f)
	}
	v.frames = append(v.frames, f)
	v.wire = append(v.wire, slices.Concat([]byte(`{"jsonrpc":"2.0",`), bytes.TrimSpace(raw)[1:]))
}

// expand replaces {"$text": [[piece, times], …]} by the text.
func expand(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if pieces, ok := v["$text"].([]any); ok && len(v) == 1 {
			var out strings.Builder
			for _, p := range pieces {
				p := p.([]any)
				out.WriteString(strings.Repeat(p[0].(string), int(p[1].(float64))))
			}
			return out.String()
		}
		for name := range v {
			v[name] = expand(v[name])
		}
	case []any:
		for i := range v {
			v[i] = expand(v[i])
		}
	}
	return v
}

// shorten is the inverse of expand, for long texts that repeat.
func shorten(v any) any {
	switch v := v.(type) {
	case string:
		if len(v) > 1000 {
			return map[string]any{"$text": pieces(v)}
		}
	case map[string]any:
		out := map[string]any{}
		for name := range v {
			out[name] = shorten(v[name])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = shorten(v[i])
		}
		return out
	}
	return v
}

// pieces cuts a text into runs of one character, and what lies between them.
func pieces(s string) []any {
	var out []any
	plain := 0
	flush := func(to int) {
		if plain < to {
			out = append(out, []any{s[plain:to], 1})
		}
	}
	for i := 0; i < len(s); {
		_, n := utf8.DecodeRuneInString(s[i:])
		times := 1
		for strings.HasPrefix(s[i+times*n:], s[i:i+n]) {
			times++
		}
		if times > 20 {
			flush(i)
			out = append(out, []any{s[i : i+n], times})
			plain = i + times*n
		}
		i += times * n
	}
	flush(len(s))
	return out
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(buf.Bytes())
}

// members is the order in which a view is written.
var members = []string{
	"seq", "status", "epoch", "title", "agent", "cwd", "origin", "parentSessionId", "rootSessionId", "depth", "callId", "forkedFrom",
	"createdAt", "closed", "labels", "config", "options", "policy", "budget", "model", "turnId", "turns", "items", "todos", "usage",
	"commands", "gaps", "lagging", "pending", "children", "tasks", "queue", "surface", "closedBlocks", "live", "subscribed",
}

// write writes the vector to its file: a line for each frame, and for each member
// of a view that is not empty.
func (v *foldVector) write(t *testing.T) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n\"name\": %s,\n\"doc\": %s,\n\"session\": %s,\n\"frames\": [", mustJSON(t, v.Name), mustJSON(t, v.Doc), mustJSON(t, v.Session))
	for i, raw := range v.Frames {
		b.WriteString(comma(i))
		if err := json.Compact(&b, raw); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString("\n],\n")
	if v.Gap != nil {
		fmt.Fprintf(&b, "\"gap\": %d,\n", *v.Gap)
	}
	if v.Refused != nil {
		fmt.Fprintf(&b, "\"refused\": %d,\n", *v.Refused)
	}
	if v.Steps != nil {
		b.WriteString("\"steps\": [")
		for i, s := range v.Steps {
			fmt.Fprintf(&b, "%s{\"after\": %d, \"view\": ", comma(i), s.After)
			writeView(t, &b, s.View)
			b.WriteString("}")
		}
		b.WriteString("\n],\n")
	}
	b.WriteString(`"view": `)
	writeView(t, &b, v.View)
	b.WriteString("\n}\n")
	if err := os.WriteFile(v.file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func comma(i int) string {
	if i == 0 {
		return "\n"
	}
	return ",\n"
}

func writeView(t *testing.T, b *bytes.Buffer, view any) {
	t.Helper()
	o := shorten(view).(map[string]any)
	b.WriteString("{")
	first := true
	put := func(name string) {
		value, ok := o[name]
		if !ok {
			return
		}
		delete(o, name)
		if !first {
			b.WriteString(",\n")
		}
		first = false
		fmt.Fprintf(b, "%s:%s", mustJSON(t, name), mustJSON(t, value))
	}
	for _, name := range members {
		put(name)
	}
	for name := range o {
		put(name)
	}
	b.WriteString("}")
}
