package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

const (
	draft      = "https://json-schema.org/draft/2020-12/schema"
	maxInteger = int64(frames.MaxInteger - 1)
	timeForm   = `^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$`
)

var (
	rawType  = reflect.TypeFor[json.RawMessage]()
	timeType = reflect.TypeFor[frames.Time]()
	seqType  = reflect.TypeFor[frames.Seq]()
)

// mode says how objects treat members that are not in their table.
type mode bool

const (
	open   mode = false // carried and ignored: events, frames, results
	strict mode = true  // refused: params
)

// schemas turns Go types into JSON Schemas. Named types become definitions.
type schemas struct {
	docs docs
	ref  string                  // what stands before a definition's name in a $ref
	defs map[string]object       // by name; a nil one is being made
	made map[string]reflect.Type // what each name defines
}

func newSchemas(d docs, ref string) *schemas {
	return &schemas{d, ref, map[string]object{}, map[string]reflect.Type{}}
}

// published returns the name of t in schemas and in TypeScript.
func published(t reflect.Type) string {
	if name, ok := names[t]; ok {
		return name
	}
	return t.Name()
}

// defName returns the name of t's definition. A struct has two: params refuse
// unknown members.
func defName(t reflect.Type, m mode) string {
	name := published(t)
	if m == strict && t.Kind() == reflect.Struct && t != timeType && !strings.HasSuffix(name, "Params") {
		name += "Param"
	}
	return name
}

// of returns the schema of t, a reference where t has a name.
func (s *schemas) of(t reflect.Type, m mode) object {
	switch {
	case t == rawType:
		return object{}
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem(), m)
	case t.PkgPath() != "":
		return s.named(t, m)
	}
	return s.shape(t, m)
}

// named returns a reference to the definition of t, which it makes when there is
// none.
func (s *schemas) named(t reflect.Type, m mode) object {
	name := defName(t, m)
	switch other, ok := s.made[name]; {
	case !ok:
		s.defs[name], s.made[name] = nil, t
		s.defs[name] = s.define(t, m)
	case other != t:
		panic(fmt.Sprintf("gen: %s and %s are both called %s; give one another name in words.go", t, other, name)) // a mistake in the registry
	}
	return s.refer(name)
}

func (s *schemas) refer(name string) object { return object{{"$ref", s.ref + name}} }

func (s *schemas) define(t reflect.Type, m mode) object {
	doc := object{}.described(s.docs.typ(t))
	switch {
	case t == timeType:
		return append(doc, object{{"type", "string"}, {"format", "date-time"}, {"pattern", timeForm}}...)
	case enums[t] != nil:
		return append(doc, wordsOf(enums[t])...)
	}
	return append(doc, s.shape(t, m)...)
}

func wordsOf(list []string) object { return object{{"type", "string"}, {"enum", list}} }

// shape is the schema of t without its name.
func (s *schemas) shape(t reflect.Type, m mode) object {
	switch t.Kind() {
	case reflect.Struct:
		return s.structure(t, m)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{{"type", "string"}, {"contentEncoding", "base64"}}
		}
		return object{{"type", "array"}, {"items", s.of(t.Elem(), m)}}
	case reflect.Map:
		return object{{"type", "object"}, {"additionalProperties", s.of(t.Elem(), m)}}
	case reflect.String:
		return object{{"type", "string"}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return integer(0, maxInteger)
	}
	panic(fmt.Sprintf("gen: %s has no schema; give it one in schema.go", t)) // a mistake in the registry
}

func integer(low, high int64) object {
	return object{{"type", "integer"}, {"minimum", low}, {"maximum", high}}
}

func (s *schemas) structure(t reflect.Type, m mode) object {
	props, required := object{}, []string{}
	for f := range fieldsOf(t) {
		props = props.with(f.name, s.field(f, m))
		if !f.optional {
			required = append(required, f.name)
		}
	}
	o := object{{"type", "object"}, {"properties", props}}
	if len(required) > 0 {
		o = o.with("required", required)
	}
	return o.with("additionalProperties", m == open)
}

// field is the schema of one field, with its rule and its comment.
func (s *schemas) field(f field, m mode) object {
	o := s.value(f, m)
	if f.nullable {
		o = object{{"anyOf", []any{o, object{{"type", "null"}}}}}
	}
	return o.described(s.docs.field(f.owner, f.goName))
}

func (s *schemas) value(f field, m mode) object {
	r := rules[f.owner.String()+"."+f.goName]
	var one object
	switch {
	case r.words != nil:
		one = wordsOf(r.words)
	case r.max > 0:
		return integer(r.min, r.max)
	case r.signed:
		return integer(-maxInteger, maxInteger)
	case r.event:
		one = s.event()
	case r.object:
		return object{{"type", "object"}}
	case r.as != nil:
		return s.of(r.as, m)
	default:
		return s.of(f.typ, m)
	}
	if f.typ.Kind() == reflect.Slice && f.typ != rawType {
		return object{{"type", "array"}, {"items", one}}
	}
	return one
}

// event returns a reference to the definition of any event, also of an agent's
// own.
func (s *schemas) event() object {
	const name = "Event"
	if _, ok := s.defs[name]; !ok {
		s.defs[name] = nil
		s.defs[name] = s.envelope(object{{"type", "string"}}, object{{"type", "object"}}).
			with("anyOf", []any{object{{"required", []string{"seq"}}}, object{{"required", []string{"after"}}}}).
			described("One event of any type; agents may have types of their own. A durable event has a seq, a live-only one has after.")
	}
	return s.refer(name)
}

// envelope is what all events share; number names what a type must have of seq
// and after.
func (s *schemas) envelope(typ, data object, number ...string) object {
	props := object{
		{"type", typ},
		{"seq", s.of(seqType, open).with("minimum", 1)},
		{"after", s.of(seqType, open).described("The last durable seq before a live-only event.")},
		{"ts", s.of(timeType, open)},
		{"turnId", s.of(reflect.TypeFor[frames.TurnID](), open)},
		{"by", s.of(reflect.TypeFor[frames.By](), open)},
		{"traceId", object{{"type", "string"}}},
		{"data", data},
	}
	required := append(append([]string{"type"}, number...), "ts", "data")
	return object{{"type", "object"}, {"properties", props}, {"required", required}, {"additionalProperties", true}}
}

// definitions returns all definitions, by name.
func (s *schemas) definitions() object {
	o := object{}
	for _, name := range slices.Sorted(maps.Keys(s.defs)) {
		o = o.with(name, s.defs[name])
	}
	return o
}
