package main

import (
	"iter"
	"reflect"
	"strings"
)

// field is one member of a JSON object, as a Go field tells it.
type field struct {
	owner    reflect.Type // the struct that declares it
	goName   string
	name     string // on the wire
	typ      reflect.Type
	optional bool // may be absent
	nullable bool // is null where it has no value
}

// fieldsOf yields the members of a struct in their order, those of embedded
// structs among them.
func fieldsOf(t reflect.Type) iter.Seq[field] {
	return func(yield func(field) bool) { eachField(t, yield) }
}

func eachField(t reflect.Type, yield func(field) bool) bool {
	for f := range t.Fields() {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported(), name == "-":
		case f.Anonymous:
			if !eachField(f.Type, yield) {
				return false
			}
		default:
			optional := strings.Contains(opts, "omit")
			nullable := !optional && f.Type.Kind() == reflect.Pointer
			if !yield(field{t, f.Name, name, f.Type, optional, nullable}) {
				return false
			}
		}
	}
	return true
}
