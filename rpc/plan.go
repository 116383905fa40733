package rpc

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// plan is how values of one type are decoded.
type plan struct {
	typ    reflect.Type
	decode func(d *decoder, p *plan, into reflect.Value) *pathError
	elem   *plan             // of a pointer, slice or map
	fields map[string]*field // of a struct, by wire name
	// required has the bits of the fields without omitempty.
	required uint64
}

// field is one field of a struct.
type field struct {
	name  string
	index int
	bit   uint64
	plan  *plan
}

// planner builds plans; types may be recursive.
type planner map[reflect.Type]*plan

// planOf returns the plan of a params type. It panics on a type that params
// cannot have, which is a mistake in the table of methods.
func planOf(t reflect.Type) *plan { return planner{}.of(t) }

func (pl planner) of(t reflect.Type) *plan {
	if p, ok := pl[t]; ok {
		return p
	}
	p := &plan{typ: t}
	pl[t] = p
	if t == reflect.TypeFor[json.RawMessage]() {
		p.decode = decodeRaw
		return p
	}
	switch t.Kind() {
	case reflect.Struct:
		p.decode = decodeStruct
		pl.structFields(p)
	case reflect.Pointer:
		p.decode, p.elem = decodePointer, pl.of(t.Elem())
	case reflect.Slice:
		p.decode, p.elem = decodeSlice, pl.of(t.Elem())
	case reflect.Map:
		p.decode, p.elem = decodeMap, pl.of(t.Elem())
	case reflect.String:
		p.decode = decodeString
	case reflect.Bool:
		p.decode = decodeBool
	case reflect.Int, reflect.Int64:
		p.decode = decodeInt
	case reflect.Uint, reflect.Uint64:
		p.decode = decodeUint
	default:
		panic(fmt.Sprintf("rpc: params cannot hold %s; use a struct, slice, map, string, bool, 64-bit integer or json.RawMessage", t))
	}
	return p
}

func (pl planner) structFields(p *plan) {
	p.fields = make(map[string]*field, p.typ.NumField())
	for i := range p.typ.NumField() {
		sf := p.typ.Field(i)
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if !sf.IsExported() || name == "" || name == "-" || i >= 64 {
			panic(fmt.Sprintf("rpc: field %s of %s needs a JSON name", sf.Name, p.typ))
		}
		f := &field{name: name, index: i, bit: 1 << i, plan: pl.of(sf.Type)}
		p.fields[name] = f
		if !strings.Contains(opts, "omit") {
			p.required |= f.bit
		}
	}
}

// lookup finds the field with exactly this name; near is the field whose name
// differs only in case.
func (p *plan) lookup(name []byte) (f *field, near string) {
	if f, ok := p.fields[string(name)]; ok {
		return f, ""
	}
	for known := range p.fields {
		if strings.EqualFold(known, string(name)) {
			return nil, known
		}
	}
	return nil, ""
}

// missing names a required field that is not among the bits seen.
func (p *plan) missing(seen uint64) string {
	for i := range p.typ.NumField() {
		if p.required&^seen&(1<<i) != 0 {
			name, _, _ := strings.Cut(p.typ.Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}
