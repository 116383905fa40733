package main

import (
	"encoding/json"
	"fmt"
	"reflect"
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

// edit returns JSON text with the object at path changed.
func edit(t *testing.T, text []byte, change func(map[string]any), path ...string) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	at := doc
	for _, name := range path {
		next, ok := at[name].(map[string]any)
		if !ok {
			t.Fatalf("%s: there is no object %s", text, name)
		}
		at = next
	}
	change(at)
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mutants yields texts that a schema of typ at path must refuse: each member
// with a value of no type at all, each required one left out.
func mutants(t *testing.T, typ reflect.Type, text []byte, path ...string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for f := range fieldsOf(typ) {
		if _, narrow := rules[f.owner.String()+"."+f.goName]; f.typ != rawType || narrow {
			all[fmt.Sprintf("%s.%s of a wrong type", typ, f.name)] = edit(t, text, func(o map[string]any) { o[f.name] = []any{[]any{}} }, path...)
		}
		if !f.optional {
			all[fmt.Sprintf("%s without %s", typ, f.name)] = edit(t, text, func(o map[string]any) { delete(o, f.name) }, path...)
		}
	}
	return all
}
