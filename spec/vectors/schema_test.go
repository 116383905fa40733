package vectors_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// published are the schemas of the contract, compiled once each.
type published struct {
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

func newPublished() *published {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	return &published{c, map[string]*jsonschema.Schema{}}
}

// schema returns the schema of a kind and type, nil for a type that has none.
func (p *published) schema(t *testing.T, kind, typ string) *jsonschema.Schema {
	t.Helper()
	name := filepath.Join("..", "schema", kind, strings.ReplaceAll(typ, "/", "-")+".json")
	if found, _ := filepath.Glob(name); found == nil {
		return nil
	}
	return p.compile(t, name)
}

func (p *published) compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	if p.compiled[name] == nil {
		s, err := p.compiler.Compile(name)
		if err != nil {
			t.Fatal(err)
		}
		p.compiled[name] = s
	}
	return p.compiled[name]
}

// outside are vectors that show on purpose what no host sends, beside those with a
// frame that is refused.
var outside = []string{"base-that-is-null", "nulls-are-absent", "approval-unknown-outcome", "turn-reason-of-a-later-version", "vendor-live-events", "content-of-an-unknown-kind", "delta-with-a-seq", "nulls-in-lists", "nulls-for-times", "nulls-in-a-snapshot"}

// The frames of every vector, the events in them and the views are what the
// published schemas describe.
func TestVectorsFitTheSchemas(t *testing.T) {
	p := newPublished()
	view := p.compile(t, "../schema/defs.json#/$defs/View")
	unknown := 0
	for _, v := range foldVectors(t) {
		check := func(what string, s *jsonschema.Schema, b []byte) {
			t.Helper()
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
			if err == nil {
				err = s.Validate(value)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", v.file, what, err)
			}
		}
		if slices.Contains(outside, v.Name) {
			continue
		}
		for i, f := range v.frames {
			if v.Refused != nil && *v.Refused == i {
				continue
			}
			s := p.schema(t, "frames", f.Method)
			if s == nil {
				unknown++
				continue
			}
			check(fmt.Sprintf("frame %d", i), s, v.wire[i])
			if event, ok := f.Params["event"].(map[string]any); ok {
				if s := p.schema(t, "events", event["type"].(string)); s != nil {
					check(fmt.Sprintf("event of frame %d", i), s, mustJSON(t, event))
				}
			}
		}
		check("view", view, mustJSON(t, v.View))
	}
	if unknown == 0 {
		t.Error("no vector has an unknown frame")
	}
}
