package refold

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"
	"unicode"
)

// Schemas are the published schemas: what values of each kind have for members.
type Schemas struct {
	defs   object            // name → schema
	events map[string]string // event type → definition of its data
}

// ReadSchemas reads the folder spec/schema.
func ReadSchemas(dir fs.FS) (*Schemas, error) {
	s := &Schemas{events: map[string]string{}}
	file := object{}
	if err := readJSON(dir, "defs.json", &file); err != nil {
		return nil, err
	}
	s.defs = obj(file["$defs"])
	names, err := fs.Glob(dir, "events/*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		file := object{}
		if err := readJSON(dir, name, &file); err != nil {
			return nil, err
		}
		data := obj(obj(file["properties"])["data"])
		if any := list(data["anyOf"]); any != nil {
			data = obj(any[0])
		}
		s.events[str(file["title"])] = defOf(data)
	}
	return s, nil
}

func readJSON(dir fs.FS, name string, v any) error {
	b, err := fs.ReadFile(dir, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// defOf names the definition that a schema refers to.
func defOf(schema object) string {
	ref := str(schema["$ref"])
	return ref[strings.LastIndexByte(ref, '/')+1:]
}

// finish copies the view, which leaves out what is empty.
func (c copier) finish(v object) object {
	out, err := c.copy(object{"$ref": "#/$defs/View"}, v)
	if err != nil {
		panic(fmt.Sprintf("refold: the view: %v", err)) // a mistake in this program
	}
	return out.(object)
}

// copier copies values as their schemas say (section 1 of fold.md).
type copier struct {
	s         *Schemas
	keepEmpty bool // a mistake
	keepMore  bool // a mistake
	anyCase   bool // a mistake
	noNull    bool // a mistake
	noRaw     bool // a mistake
	noText    bool // a mistake
	nullIsBad bool // a mistake
	cleans    bool // a mistake
	anyTime   bool // a mistake
}

// copier returns the copier of the fold.
func (f *Fold) copier() copier {
	return copier{
		s: f.Schemas, keepEmpty: f.makes("empties-stay"), keepMore: f.makes("unknown-members-stay"),
		anyCase: f.makes("names-in-any-case"), noNull: f.makes("null-is-absent"),
		noRaw: f.makes("raw-json-is-not-kept"), noText: f.makes("empty-text-is-left-out"), nullIsBad: f.makes("null-is-malformed"),
		cleans: f.makes("control-characters-are-lost"), anyTime: f.makes("times-are-any-text"),
	}
}

// copy copies a value of a kind.
func (c copier) copy(schema object, v any) (any, error) {
	if name := defOf(schema); name != "" {
		out, err := c.copy(obj(c.s.defs[name]), v)
		if o := obj(out); err == nil && name == "ContentBlock" && str(o["type"]) == "text" && !c.noText {
			o["text"] = str(o["text"])
		}
		return out, err
	}
	if any := list(schema["anyOf"]); any != nil {
		if v == nil {
			return nil, nil
		}
		return c.copy(obj(any[0]), v)
	}
	switch {
	case raw(schema):
		return clone(v), nil
	case v == nil:
		return c.zero(schema)
	}
	switch str(schema["type"]) {
	case "object":
		return c.object(schema, v)
	case "array":
		from, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("want a list, got %v", v)
		}
		out := make([]any, len(from))
		for i := range from {
			var err error
			if out[i], err = c.copy(obj(schema["items"]), from[i]); err != nil {
				return nil, err
			}
			if from[i] == nil && c.nullIsBad {
				return nil, errors.New("want a value, got null")
			}
		}
		return out, nil
	}
	if s, ok := v.(string); ok && c.cleans {
		v = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return -1
			}
			return r
		}, s)
	}
	return c.scalar(schema, v)
}

// raw reports whether a schema says nothing of what a value holds.
func raw(schema object) bool {
	for _, word := range []string{"properties", "additionalProperties", "const", "enum", "items", "anyOf"} {
		if _, ok := schema[word]; ok {
			return false
		}
	}
	typ := schema["type"]
	return typ == nil || typ == "object"
}

func (c copier) scalar(schema object, v any) (any, error) {
	ok := false
	switch str(schema["type"]) {
	case "integer":
		var n float64
		n, ok = v.(float64)
		ok = ok && n == math.Trunc(n)
	case "boolean":
		_, ok = v.(bool)
	default:
		var s string
		s, ok = v.(string)
		if schema["format"] == "date-time" && !c.anyTime {
			_, err := time.Parse(time.RFC3339, s)
			ok = err == nil
		}
	}
	if !ok {
		return nil, fmt.Errorf("want a value of type %v, got %v", schema["type"], v)
	}
	return v, nil
}

// object copies the members that the schema names, or those of a map.
func (c copier) object(schema object, v any) (any, error) {
	from, ok := v.(object)
	if !ok {
		return nil, fmt.Errorf("want an object, got %v", v)
	}
	out := object{}
	props := obj(schema["properties"])
	if props == nil {
		for name, member := range from {
			var err error
			if out[name], err = c.copy(obj(schema["additionalProperties"]), member); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	if c.keepMore {
		for name := range from {
			out[name] = clone(from[name])
		}
	}
	for name, prop := range props {
		member, there := c.member(from, name)
		if err := c.set(out, name, obj(prop), member, there, required(schema, name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

func (c copier) member(from object, name string) (any, bool) {
	v, ok := from[name]
	if ok || !c.anyCase {
		return v, ok
	}
	for other := range from {
		if strings.EqualFold(other, name) {
			return from[other], true
		}
	}
	return v, ok
}

// set copies one member, or leaves it out.
func (c copier) set(out object, name string, schema object, v any, there, required bool) error {
	delete(out, name)
	switch {
	case !there && !required:
		return nil
	case raw(c.deref(schema)):
		if there && !c.noRaw && !(c.noNull && v == nil) {
			out[name] = clone(v)
		}
		return nil
	case v == nil && c.nullIsBad && there:
		return errors.New("want a value, got null")
	case v == nil && !required:
		return nil
	}
	member, err := c.copy(schema, v)
	if err != nil {
		return err
	}
	if required || c.keepEmpty || !c.empty(schema, member) {
		out[name] = member
	}
	return nil
}

func (c copier) deref(schema object) object {
	if name := defOf(schema); name != "" {
		return obj(c.s.defs[name])
	}
	return schema
}

// empty reports whether a member that is not required is left out.
func (c copier) empty(schema object, v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case float64:
		return v == 0
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case object:
		return len(v) == 0 && c.deref(schema)["properties"] == nil
	}
	return false
}

// zero is the empty value of a kind.
func (c copier) zero(schema object) (any, error) {
	switch str(schema["type"]) {
	case "object":
		return c.object(schema, object{})
	case "array":
		return []any{}, nil
	case "integer":
		return 0.0, nil
	case "boolean":
		return false, nil
	}
	return "", nil
}

func required(schema object, name string) bool {
	for _, r := range list(schema["required"]) {
		if r == name {
			return true
		}
	}
	return false
}
