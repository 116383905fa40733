package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// noon is the time of every example.
var noon = frames.At(time.Date(2026, 11, 30, 12, 0, 0, 5e6, time.UTC))

// maker builds values by reflection: with every field set, or with those alone
// that are never absent.
type maker struct {
	t    *testing.T
	full bool
}

// of returns a pointer to a value of typ.
func (m maker) of(typ reflect.Type) any {
	v := reflect.New(typ)
	m.fill(v.Elem(), rule{})
	return v.Interface()
}

func (m maker) fill(v reflect.Value, r rule) {
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(noon))
	case v.Type() == rawType:
		v.SetBytes(m.raw(r))
	case v.Kind() == reflect.Struct:
		m.fillStruct(v)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		m.fill(v.Elem(), r)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes([]byte("bytes"))
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		m.fill(v.Index(0), r)
		m.fill(v.Index(1), r)
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		m.fill(value, r)
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), value)
	case v.Kind() == reflect.String:
		v.SetString(wordOf(v.Type(), r))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(max(r.min, 1))
	case v.CanUint():
		v.SetUint(7)
	default:
		m.t.Fatalf("no example of %s", v.Type())
	}
}

func (m maker) fillStruct(v reflect.Value) {
	for f := range fieldsOf(v.Type()) {
		skip := f.optional || f.nullable || f.typ.Kind() == reflect.Slice && f.typ != rawType
		if m.full || !skip {
			m.fill(v.FieldByName(f.goName), rules[f.owner.String()+"."+f.goName])
		}
	}
}

func wordOf(t reflect.Type, r rule) string {
	switch {
	case r.words != nil:
		return r.words[0]
	case enums[t] != nil:
		return enums[t][0]
	}
	return "some <text> & more"
}

func (m maker) raw(r rule) []byte {
	switch {
	case r.as == reflect.TypeFor[view]():
		return exampleView(m.t)
	case r.event:
		return m.event(frames.EventTypes()[0])
	case r.object:
		return []byte(`{"any":[1,null]}`)
	}
	return []byte(`[{"any":null}]`)
}

// event encodes an event of a type.
func (m maker) event(info frames.EventInfo) []byte {
	m.t.Helper()
	e, err := frames.NewEvent(m.of(payloadType(info)).(frames.Payload))
	if err != nil {
		m.t.Fatal(err)
	}
	e.Time = noon
	if info.Class.Durable() {
		e.Seq = 1
	}
	if m.full {
		e.TurnID, e.TraceID, e.By = "turn", "trace", &frames.By{ClientID: "client", Label: "my phone"}
	}
	b, err := frames.EncodeEvent(e)
	if err != nil {
		m.t.Fatal(err)
	}
	return b.Data
}

// frame encodes a frame of a type.
func (m maker) frame(info frames.FrameInfo) []byte {
	m.t.Helper()
	b, err := frames.EncodeFrame(m.of(paramsType(info)).(frames.Frame))
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

// exampleView is a view that has seen one event of each type inside a turn.
func exampleView(t *testing.T) []byte {
	t.Helper()
	v := frames.NewView()
	order := []frames.EventType{frames.SessionCreatedEvent, frames.TurnStartEvent}
	for _, info := range frames.EventTypes() {
		switch info.Type {
		case frames.SessionCreatedEvent, frames.TurnStartEvent, frames.TurnEndEvent, frames.SessionCompactedEvent,
			frames.ApprovalDecidedEvent, frames.PromptDequeuedEvent:
		default:
			order = append(order, info.Type)
		}
	}
	seq := frames.Seq(0)
	for _, typ := range order {
		e := frames.Event{Type: typ, Time: noon, TurnID: "turn", After: seq, Data: exampleData(t, typ)}
		if frames.ClassOf(typ).Durable() {
			seq++
			e.Seq, e.After = seq, 0
		}
		if err := v.ApplyEvent(e); err != nil {
			t.Fatalf("apply %s: %v", typ, err)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// exampleData is the payload of a type with all fields set.
func exampleData(t *testing.T, typ frames.EventType) []byte {
	for _, info := range frames.EventTypes() {
		if info.Type == typ {
			e, err := frames.NewEvent(maker{t, true}.of(payloadType(info)).(frames.Payload))
			if err != nil {
				t.Fatal(err)
			}
			return e.Data
		}
	}
	t.Fatalf("there is no event type %s", typ)
	return nil
}

// edit returns JSON text with the object at path changed; of a list on the way it
// takes the first element.
func edit(t *testing.T, text []byte, change func(map[string]any), path ...string) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	at, ok := lookup(doc, path)
	if !ok {
		t.Fatalf("%s: there is no object at %v", text, path)
	}
	change(at)
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func lookup(doc map[string]any, path []string) (map[string]any, bool) {
	for _, name := range path {
		next := doc[name]
		if list, ok := next.([]any); ok && len(list) > 0 {
			next = list[0]
		}
		o, ok := next.(map[string]any)
		if !ok {
			return nil, false
		}
		doc = o
	}
	return doc, true
}

// mutants returns texts that a schema of typ at path must refuse: each member
// with a value of another type, a word that is none or a number out of bounds,
// each required one left out; and the same in the objects within.
func mutants(t *testing.T, typ reflect.Type, text []byte, path ...string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	where := strings.Join(append([]string{typ.String()}, path...), " ")
	for f := range fieldsOf(typ) {
		set := func(why string, value any) {
			all[where+"."+f.name+": "+why] = edit(t, text, func(o map[string]any) { o[f.name] = value }, path...)
		}
		r, narrow := rules[f.owner.String()+"."+f.goName]
		if f.typ != rawType || narrow {
			set("another type", []any{[]any{}})
		}
		switch kind := f.typ.Kind(); {
		case kind == reflect.String && (r.words != nil || enums[f.typ] != nil):
			set("no such word", "no such word")
		case r.words != nil:
			set("no such word", []any{"no such word"})
		case kind == reflect.Int, kind == reflect.Int64, kind == reflect.Uint64:
			set("too large", max(r.max, maxInteger)+1)
			set("a fraction", 1.5)
		}
		if r.max > 0 {
			set("out of bounds", r.max+1)
		}
		if !f.optional {
			all[where+" without "+f.name] = edit(t, text, func(o map[string]any) { delete(o, f.name) }, path...)
		}
		if inner, ok := within(f.typ); ok && has(t, text, append(path, f.name)) {
			maps.Copy(all, mutants(t, inner, text, append(slices.Clone(path), f.name)...))
		}
	}
	return all
}

// within returns the struct that a field of type typ holds, if it does.
func within(typ reflect.Type) (reflect.Type, bool) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ, typ.Kind() == reflect.Struct && typ != timeType
}

// has reports whether JSON text has an object at path.
func has(t *testing.T, text []byte, path []string) bool {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	_, ok := lookup(doc, path)
	return ok
}
