package rpc

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"

	"github.com/muxhost/muxhost/frames"
)

// checker is a params type with rules beyond those of its fields.
type checker interface{ check() error }

// decodeInto decodes params strictly: names match exactly, unknown names, wrong
// types, nulls and missing fields are errors that say where. raw is valid JSON
// without duplicate names; strings and raw values are copied out of it.
func decodeInto[P any](raw []byte, into *P, p *plan) error {
	if raw[0] != '{' {
		return Paramsf("params must be an object, got %s", kindOf(raw))
	}
	d := &decoder{scanner{b: raw}}
	if e := p.decode(d, p, reflect.ValueOf(into).Elem()); e != nil {
		return Paramsf("params%s: %s", e.path, e.message)
	}
	if c, ok := any(into).(checker); ok {
		return c.check()
	}
	return nil
}

// decoder reads one params text.
type decoder struct{ scanner }

// pathError says what is wrong at a path below the params.
type pathError struct{ path, message string }

func (e *pathError) below(parent string) *pathError { e.path = parent + e.path; return e }

func pathErrorf(format string, args ...any) *pathError {
	return &pathError{message: fmt.Sprintf(format, args...)}
}

// want refuses a value of another type.
func (d *decoder) want(first byte, what string) *pathError {
	if d.peek() == first {
		return nil
	}
	return pathErrorf("expected %s, got %s", what, d.kind())
}

func decodeStruct(d *decoder, p *plan, into reflect.Value) *pathError {
	if e := d.want('{', "an object"); e != nil {
		return e
	}
	var seen uint64
	for raw := range d.members() {
		f, near := p.lookup(plain(raw))
		if f == nil {
			return unknownField(raw, near)
		}
		seen |= f.bit
		value := into.Field(f.index)
		if e := f.plan.decode(d, f.plan, value); e != nil {
			return e.below("." + f.name)
		}
		if p.required&f.bit != 0 && value.Kind() == reflect.String && value.Len() == 0 {
			return pathErrorf("must not be empty").below("." + f.name)
		}
	}
	if name := p.missing(seen); name != "" {
		return pathErrorf("is required").below("." + name)
	}
	return p.textMissing(seen, into)
}

// textMissing refuses a text block without its text, which may be empty: what is
// decoded does not tell.
func (p *plan) textMissing(seen uint64, into reflect.Value) *pathError {
	b, ok := into.Addr().Interface().(*frames.ContentBlock)
	if !ok || b.Type != "text" || seen&p.fields["text"].bit != 0 {
		return nil
	}
	return pathErrorf(`is required in a block of type "text"; it may be empty`).below(".text")
}

func unknownField(raw []byte, near string) *pathError {
	if near != "" {
		return pathErrorf("unknown field %s; did you mean %q?", quoted(raw), near)
	}
	return pathErrorf("unknown field %s", quoted(raw))
}

func decodePointer(d *decoder, p *plan, into reflect.Value) *pathError {
	if d.peek() == 'n' {
		d.word()
		return nil
	}
	into.Set(reflect.New(p.typ.Elem()))
	return p.elem.decode(d, p.elem, into.Elem())
}

func decodeSlice(d *decoder, p *plan, into reflect.Value) *pathError {
	if e := d.want('[', "an array"); e != nil {
		return e
	}
	for i := range d.elements() {
		into.Grow(1)
		into.SetLen(i + 1)
		if e := p.elem.decode(d, p.elem, into.Index(i)); e != nil {
			return e.below(fmt.Sprintf("[%d]", i))
		}
	}
	if into.IsNil() {
		into.Set(reflect.MakeSlice(p.typ, 0, 0)) // [] is not absent
	}
	return nil
}

func decodeMap(d *decoder, p *plan, into reflect.Value) *pathError {
	if e := d.want('{', "an object"); e != nil {
		return e
	}
	into.Set(reflect.MakeMap(p.typ))
	for raw := range d.members() {
		value := reflect.New(p.typ.Elem()).Elem()
		if e := p.elem.decode(d, p.elem, value); e != nil {
			return e.below("[" + quoted(raw) + "]")
		}
		into.SetMapIndex(reflect.ValueOf(string(plain(raw))).Convert(p.typ.Key()), value)
	}
	return nil
}

func decodeString(d *decoder, _ *plan, into reflect.Value) *pathError {
	if e := d.want('"', "a string"); e != nil {
		return e
	}
	raw := d.value()
	if bytes.Contains(raw, []byte(`\u`)) && frames.CheckJSON(raw, frames.JSONLimits{IJSON: true}) != nil {
		return pathErrorf("the string holds half a surrogate pair; send whole characters")
	}
	into.SetString(string(plain(raw)))
	return nil
}

func decodeBool(d *decoder, _ *plan, into reflect.Value) *pathError {
	if d.peek() != 't' && d.peek() != 'f' {
		return pathErrorf("expected a boolean, got %s", d.kind())
	}
	into.SetBool(d.value()[0] == 't')
	return nil
}

func decodeInt(d *decoder, _ *plan, into reflect.Value) *pathError {
	raw, e := d.number()
	if e != nil {
		return e
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n >= frames.MaxInteger || n <= -frames.MaxInteger {
		return pathErrorf("expected an integer between -2^53 and 2^53, got %s", short(raw))
	}
	into.SetInt(n)
	return nil
}

func decodeUint(d *decoder, _ *plan, into reflect.Value) *pathError {
	raw, e := d.number()
	if e != nil {
		return e
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || n >= frames.MaxInteger {
		return pathErrorf("expected an integer from 0 to 2^53-1, got %s", short(raw))
	}
	into.SetUint(n)
	return nil
}

// number returns the text of the number that starts here.
func (d *decoder) number() ([]byte, *pathError) {
	if kind := d.kind(); kind != "a number" {
		return nil, pathErrorf("expected an integer, got %s", kind)
	}
	return d.value(), nil
}

func decodeRaw(d *decoder, _ *plan, into reflect.Value) *pathError {
	into.SetBytes(bytes.Clone(d.value()))
	return nil
}

func short(raw []byte) string {
	if len(raw) > 32 {
		return string(raw[:32]) + "…"
	}
	return string(raw)
}
