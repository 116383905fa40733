// Package vectors_test runs the published vectors.
package vectors_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/spec/vectors/refold"
)

func schemas(t *testing.T) *refold.Schemas {
	t.Helper()
	s, err := refold.ReadSchemas(os.DirFS("../schema"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// outcome is what a fold gives for a vector.
type outcome struct {
	view            any
	steps           []any
	missed, refused []int
}

// want is what the file expects.
func (v *foldVector) want() outcome {
	out := outcome{view: v.View}
	for _, s := range v.Steps {
		out.steps = append(out.steps, s.View)
	}
	if v.Gap != nil {
		out.missed = []int{*v.Gap}
	}
	if v.Refused != nil {
		out.refused = []int{*v.Refused}
	}
	return out
}

// refolded folds a vector by the second fold.
func (v *foldVector) refolded(f *refold.Fold) outcome {
	res := f.View(v.Session, v.frames)
	out := outcome{view: any(res.View), missed: res.Missed, refused: res.Refused}
	for _, s := range v.Steps {
		out.steps = append(out.steps, any(f.View(v.Session, v.frames[:s.After]).View))
	}
	return out
}

// folded folds a vector by frames.View; with again, the view is written as JSON
// and read back after each frame.
func (v *foldVector) folded(t *testing.T, again bool) outcome {
	t.Helper()
	view, out := frames.NewView(), outcome{}
	step, parts := 0, false
	snap := func(n int) {
		for ; step < len(v.Steps) && v.Steps[step].After == n; step++ {
			out.steps = append(out.steps, plain(t, view))
		}
	}
	snap(0)
	for i := range v.frames {
		if sid, named := v.frames[i].Params["sessionId"]; !named || sid == v.Session {
			f, err := frames.DecodeFrame(v.wire[i])
			if err == nil {
				err = view.ApplyFrame(f)
			}
			switch {
			case errors.Is(err, frames.ErrGap):
				out.missed = append(out.missed, i)
			case err != nil:
				out.refused = append(out.refused, i)
			}
			switch f := f.(type) {
			case *frames.SessionLive:
				parts = f.More
			case *frames.SessionSubscribed:
				parts = false
			}
			if again && !parts {
				view = readBack(t, view)
			}
		}
		snap(i + 1)
	}
	out.view = plain(t, view)
	return out
}

func readBack(t *testing.T, v *frames.View) *frames.View {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := frames.NewView()
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// plain is a view as JSON values.
func plain(t *testing.T, v *frames.View) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// differ says where two outcomes differ, "" for nowhere.
func differ(got, want outcome) string {
	var all []string
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"missed", got.missed, want.missed}, {"refused", got.refused, want.refused}, {"steps", got.steps, want.steps}, {"view", got.view, want.view},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			all = append(all, difference(c.what, c.got, c.want)...)
		}
	}
	return strings.Join(all, "\n")
}

// difference lists the smallest parts in which two JSON values differ.
func difference(path string, got, want any) []string {
	g, ok1 := got.(map[string]any)
	w, ok2 := want.(map[string]any)
	if ok1 && ok2 {
		var all []string
		for name := range maps.Keys(union(g, w)) {
			_, inG := g[name]
			_, inW := w[name]
			switch {
			case inG != inW:
				all = append(all, fmt.Sprintf("%s.%s: got it %v, want it %v", path, name, inG, inW))
			case !reflect.DeepEqual(g[name], w[name]):
				all = append(all, difference(path+"."+name, g[name], w[name])...)
			}
		}
		return all
	}
	gl, ok1 := got.([]any)
	wl, ok2 := want.([]any)
	if ok1 && ok2 && len(gl) == len(wl) {
		var all []string
		for i := range gl {
			if !reflect.DeepEqual(gl[i], wl[i]) {
				all = append(all, difference(fmt.Sprintf("%s[%d]", path, i), gl[i], wl[i])...)
			}
		}
		return all
	}
	return []string{fmt.Sprintf("%s: got %s, want %s", path, clip(got), clip(want))}
}

func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func clip(v any) string {
	b, _ := json.Marshal(v)
	if len(b) > 300 {
		return string(b[:300]) + "…"
	}
	return string(b)
}

// Two folds that share no code, and the file, agree on every vector; and the view
// survives its own JSON after every frame.
func TestFoldVectors(t *testing.T) {
	f := &refold.Fold{Schemas: schemas(t)}
	for _, v := range foldVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			second := v.refolded(f)
			if *update {
				v.View = second.view
				for i := range v.Steps {
					v.Steps[i].View = second.steps[i]
				}
				v.write(t)
			}
			if d := differ(second, v.want()); d != "" {
				t.Errorf("refold against the file:\n%s", d)
			}
			if d := differ(v.folded(t, false), v.want()); d != "" {
				t.Errorf("frames.View against the file:\n%s", d)
			}
			if d := differ(v.folded(t, true), v.want()); d != "" {
				t.Errorf("frames.View, read back after each frame, against the file:\n%s", d)
			}
		})
	}
}

// Every vector says what it shows, under its name, and breaks when the fold is
// broken in a particular way; every mistake that the second fold can make is found
// by a vector. The table in README.md says which.
func TestVectorsFindEveryMutant(t *testing.T) {
	s, all := schemas(t), foldVectors(t)
	kills := map[string][]string{}
	for _, v := range all {
		if v.file != filepath.Join("fold", v.Name+".json") || !strings.HasSuffix(v.Doc, ".") {
			t.Errorf("%s: name %q, doc %q; want the file's name and a sentence", v.file, v.Name, v.Doc)
		}
		chances := map[string]bool{}
		v.refolded(&refold.Fold{Schemas: s, Chances: chances})
		for m := range chances {
			if differ(v.refolded(&refold.Fold{Schemas: s, Mutant: m}), v.want()) != "" {
				kills[m] = append(kills[m], v.Name)
			}
		}
	}
	var table bytes.Buffer
	particular := map[string]bool{}
	for _, m := range refold.Mutants() {
		if kills[m] == nil {
			t.Errorf("no vector finds the mutant %s", m)
		}
		for _, name := range kills[m] {
			particular[name] = particular[name] || len(kills[m]) < len(all)/4
		}
		fmt.Fprintf(&table, "| `%s` | %s |\n", m, some(kills[m]))
	}
	for _, v := range all {
		if !particular[v.Name] {
			t.Errorf("%s finds no mutant but those that every vector finds", v.file)
		}
	}
	checkTable(t, table.String())
}

// some names the first vectors of a list.
func some(names []string) string {
	const shown = 4
	slices.Sort(names)
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// checkTable compares the table of mutants in README.md.
func checkTable(t *testing.T, table string) {
	t.Helper()
	const head = "| mutant | found by |\n|---|---|\n"
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(b), head)
	if !ok {
		t.Fatalf("README.md has no table of mutants: want %q in it", head)
	}
	if i := strings.Index(after, "\n\n"); i >= 0 {
		after = after[i+1:]
	} else {
		after = ""
	}
	want := before + head + table + after
	if *update {
		if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(b) != want {
		t.Error("the table of mutants in README.md is old; run go test ./spec/vectors -update")
	}
}
