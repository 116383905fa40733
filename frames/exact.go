package frames

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// shape is what a Go type reads of JSON: the names of a struct, the elements of
// a list or a map. A nil shape reads anything as it is.
type shape struct {
	fields map[string]*shape
	elem   *shape
}

var shapes = indexShapes()

func indexShapes() map[reflect.Type]*shape {
	m := make(map[reflect.Type]*shape)
	for _, info := range eventTypes {
		t := reflect.TypeOf(info.New()).Elem()
		m[t] = shapeOf(t)
	}
	for _, info := range frameTypes {
		t := reflect.TypeOf(info.New()).Elem()
		m[t] = shapeOf(t)
	}
	return m
}

func shapeOf(t reflect.Type) *shape {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem())
	case reflect.Slice, reflect.Map:
		if elem := shapeOf(t.Elem()); elem != nil {
			return &shape{elem: elem}
		}
		return nil
	case reflect.Struct:
		s := &shape{fields: make(map[string]*shape)}
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			s.fields[name] = shapeOf(field.Type)
		}
		return s
	}
	return nil
}

// exactCase returns b, or a copy in which every name that encoding/json would
// take for a field although its case differs is made unknown. b is checked text.
func exactCase(b []byte, s *shape) []byte {
	c := caseChecker{checker: checker{b: b, maxDepth: maxScanDepth}}
	c.space()
	c.walk(s)
	if c.out != nil {
		return c.out
	}
	return b
}

type caseChecker struct {
	checker
	out []byte // set once something was changed
}

// walk passes over the value at c.i.
func (c *caseChecker) walk(s *shape) {
	if s == nil || c.b[c.i] != '{' && c.b[c.i] != '[' {
		c.value(0)
		return
	}
	object := c.b[c.i] == '{'
	c.i++
	for c.more() {
		child := s.elem
		if object {
			child = c.field(s)
		}
		c.walk(child)
	}
}

// field passes over a name and returns the shape of its value.
func (c *caseChecker) field(s *shape) *shape {
	from := c.i + 1
	escaped := c.str()
	raw := c.b[from : c.i-1]
	c.space()
	c.i++ // the colon
	c.space()
	if s.fields == nil {
		return s.elem
	}
	name := raw
	if escaped {
		name = []byte(unquote(c.b[from-1 : from+len(raw)+1]))
	}
	if child, ok := s.fields[string(name)]; ok {
		return child
	}
	for known := range s.fields {
		if strings.EqualFold(known, string(name)) {
			c.hide(from, len(raw))
			break
		}
	}
	return nil
}

// hide overwrites a name with one that no field has.
func (c *caseChecker) hide(from, n int) {
	if c.out == nil {
		c.out = bytes.Clone(c.b)
	}
	for i := range n {
		c.out[from+i] = '-'
	}
}
