package main

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// tsShapes collects how the types of events, frames and views travel, for the
// TypeScript fold to read values by.
type tsShapes map[string]string

// shapeTables writes the tables of TypeScript that exist at run time.
func shapeTables(b *bytes.Buffer) {
	s := tsShapes{}
	s.of(reflect.TypeFor[view]())
	events, params := bytes.Buffer{}, bytes.Buffer{}
	for _, e := range frames.EventTypes() {
		fmt.Fprintf(&events, "  %q: %q,\n", e.Type, s.of(payloadType(e)))
	}
	for _, f := range frames.FrameTypes() {
		fmt.Fprintf(&params, "  %q: %q,\n", f.Type, s.of(paramsType(f)))
	}
	b.WriteString(`
/**
 * How the fields of each type travel: string, int, uint, bool, time, raw (any JSON) or the name of a type; [] before it is a list, {} a map, * a value that
 * may be null; ? after it says that the field is absent where it is empty.
 */
export const shapes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
`)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(b, "  %s: {%s},\n", name, s[name])
	}
	fmt.Fprintf(b, "};\n\n/** The shape of each event's data. */\nexport const eventShapes: Readonly<Record<keyof Events, string>> = {\n%s};\n", events.Bytes())
	fmt.Fprintf(b, "\n/** The shape of each frame's params. */\nexport const frameShapes: Readonly<Record<keyof Frames, string>> = {\n%s};\n", params.Bytes())
	b.WriteString("\n/** The scope that each method needs, and whether it changes something. */\n" +
		"export const methods: { readonly [M in keyof Methods]: { readonly scope: Methods[M][\"scope\"]; readonly changes: boolean } } = {\n")
	for _, m := range rpc.Methods() {
		fmt.Fprintf(b, "  %q: { scope: %q, changes: %t },\n", m.Name, m.Scope, m.Changes)
	}
	b.WriteString("};\n")
}

// of returns the word for t and adds the shapes that it names.
func (s tsShapes) of(t reflect.Type) string {
	switch {
	case t == rawType:
		return "raw"
	case t == timeType:
		return "time"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + s.of(t.Elem())
	case reflect.Slice:
		return "[]" + s.of(t.Elem())
	case reflect.Map:
		return "{}" + s.of(t.Elem())
	case reflect.Struct:
		name := published(t)
		if _, ok := s[name]; !ok {
			s[name] = ""
			s[name] = s.fields(t)
		}
		return name
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Uint64:
		return "uint"
	}
	return "int"
}

func (s tsShapes) fields(t reflect.Type) string {
	list := []string{}
	for f := range fieldsOf(t) {
		word := s.of(f.typ)
		if f.optional {
			word += "?"
		}
		list = append(list, fmt.Sprintf(" %s: %q", f.name, word))
	}
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, ",") + " "
}
