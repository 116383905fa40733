package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// object is a JSON object that keeps the order of its members.
type object []member

type member struct {
	name  string
	value any
}

// with returns o with one more member.
func (o object) with(name string, value any) object { return append(o, member{name, value}) }

// described returns o with a description, where there is one.
func (o object) described(doc string) object {
	if doc == "" {
		return o
	}
	return o.with("description", doc)
}

// document writes v as indented JSON with a newline at its end. Lists of plain
// values stay on one line.
func document(v any) []byte {
	var b bytes.Buffer
	write(&b, v, "\n")
	b.WriteByte('\n')
	return b.Bytes()
}

// write writes v; nl is the line break with the indentation of v.
func write(b *bytes.Buffer, v any, nl string) {
	switch v := v.(type) {
	case object:
		writeObject(b, v, nl)
	case []any:
		writeList(b, v, nl)
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		writeList(b, list, nl)
	default:
		writePlain(b, v)
	}
}

func writeObject(b *bytes.Buffer, o object, nl string) {
	if len(o) == 0 {
		b.WriteString("{}")
		return
	}
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(nl + "  ")
		writePlain(b, m.name)
		b.WriteString(": ")
		write(b, m.value, nl+"  ")
	}
	b.WriteString(nl + "}")
}

func writeList(b *bytes.Buffer, list []any, nl string) {
	nested := false
	for _, v := range list {
		if _, ok := v.(object); ok {
			nested = true
		}
	}
	b.WriteByte('[')
	for i, v := range list {
		switch {
		case nested && i > 0:
			b.WriteString("," + nl + "  ")
		case nested:
			b.WriteString(nl + "  ")
		case i > 0:
			b.WriteString(", ")
		}
		write(b, v, nl+"  ")
	}
	if nested {
		b.WriteString(nl)
	}
	b.WriteByte(']')
}

// writePlain writes a string, a number or a boolean.
func writePlain(b *bytes.Buffer, v any) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("gen: write %T: %v", v, err)) // a mistake in this program
	}
	b.WriteString(strings.TrimSuffix(text.String(), "\n"))
}
