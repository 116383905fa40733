package main

import (
	"reflect"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// schemaFiles adds the JSON Schemas: one file for each event, frame, params and
// result, and what they share in defs.json.
func schemaFiles(d docs, files map[string][]byte) {
	s := newSchemas(d, "../defs.json#/$defs/")
	for _, info := range frames.EventTypes() {
		files["schema/events/"+fileName(string(info.Type))+".json"] = document(eventSchema(s, info))
	}
	for _, info := range frames.FrameTypes() {
		files["schema/frames/"+fileName(string(info.Type))+".json"] = document(frameSchema(s, info))
	}
	for _, m := range rpc.Methods() {
		files["schema/params/"+m.Name+".json"] = document(
			head("params of "+m.Name, m.Doc).with("$ref", s.of(m.Params, strict)[0].value))
		files["schema/results/"+m.Name+".json"] = document(
			head("result of "+m.Name, m.Doc).with("$ref", s.of(m.Result, open)[0].value))
	}
	files["schema/defs.json"] = document(definitionsFile(d, s))
}

// definitionsFile holds the definitions that s made. Inside the file references
// need no file name, so they are made anew.
func definitionsFile(d docs, s *schemas) object {
	inside := newSchemas(d, "#/$defs/")
	for _, info := range frames.EventTypes() {
		inside.of(payloadType(info), open)
	}
	for _, info := range frames.FrameTypes() {
		inside.of(paramsType(info), open)
	}
	for _, m := range rpc.Methods() {
		inside.of(m.Params, strict)
		inside.of(m.Result, open)
	}
	if len(inside.defs) < len(s.defs) {
		panic("gen: a schema refers to what defs.json does not hold") // a mistake in this program
	}
	return head("shared definitions", "What the schemas of muxhost "+frames.ProtocolVersion+
		" share. Types whose name ends in Param or Params refuse unknown members; all others carry and ignore them.").
		with("$defs", inside.definitions())
}

// head begins a schema file.
func head(title, doc string) object {
	return object{{"$schema", draft}, {"title", title}}.described(doc)
}

func payloadType(info frames.EventInfo) reflect.Type { return reflect.TypeOf(info.New()).Elem() }

func paramsType(info frames.FrameInfo) reflect.Type { return reflect.TypeOf(info.New()).Elem() }

// eventSchema is the schema of one whole event.
func eventSchema(s *schemas, info frames.EventInfo) object {
	number := "seq"
	if !info.Class.Durable() {
		number = "after"
	}
	data := s.of(payloadType(info), open)
	if info.Class == frames.ClassDurableReasoning {
		data = object{{"anyOf", []any{data, withheld()}}}
	}
	return append(head(string(info.Type), info.Doc).
		with("x-family", info.Family).
		with("x-durable", info.Class.Durable()).
		with("x-model", info.Model),
		s.envelope(object{{"const", string(info.Type)}}, data, number)...)
}

// withheld is the data that a client gets which wants no reasoning.
func withheld() object {
	return object{
		{"type", "object"},
		{"properties", object{{"withheld", object{{"const", true}}}, {"content", false}, {"blocks", false}, {"partial", false}}},
		{"required", []string{"withheld"}},
		{"additionalProperties", true},
		{"description", `What delivery reasoning "off" gets instead.`},
	}
}

// frameSchema is the schema of one whole notification.
func frameSchema(s *schemas, info frames.FrameInfo) object {
	return append(head(string(info.Type), info.Doc), object{
		{"type", "object"},
		{"properties", object{
			{"jsonrpc", object{{"const", "2.0"}}},
			{"method", object{{"const", string(info.Type)}}},
			{"params", s.of(paramsType(info), open)},
		}},
		{"required", []string{"jsonrpc", "method", "params"}},
		{"additionalProperties", true},
	}...)
}
