package main

import (
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// openRPC is the OpenRPC document. It refers to nothing outside of itself, so
// that a host can hand it out.
func openRPC(d docs) object {
	s := newSchemas(d, "#/components/schemas/")
	methods := []any{}
	for _, m := range rpc.Methods() {
		methods = append(methods, openMethod(s, m))
	}
	return object{
		{"openrpc", "1.3.2"},
		{"info", info()},
		{"methods", methods},
		{"components", object{{"schemas", s.definitions()}, {"errors", openErrors()}}},
	}
}

func info() object {
	return object{
		{"title", "muxhost"},
		{"version", frames.ProtocolVersion},
		{"description", "Runs coding agents; clients call these methods over the WebSocket /v1/ws, or one at a time with POST /v1/rpc."},
	}
}

func openMethod(s *schemas, m rpc.MethodInfo) object {
	params := []any{}
	for f := range fieldsOf(m.Params) {
		params = append(params, object{
			{"name", f.name},
			{"required", !f.optional},
			{"schema", s.field(f, strict)},
		})
	}
	faults := []any{}
	for _, k := range kinds {
		if k.returns(m) {
			faults = append(faults, object{{"$ref", "#/components/errors/" + string(k.kind)}})
		}
	}
	return object{
		{"name", m.Name},
		{"summary", m.Doc},
		{"paramStructure", "by-name"},
		{"params", params},
		{"result", object{{"name", published(m.Result)}, {"schema", s.of(m.Result, open)}}},
		{"errors", faults},
		{"x-scope", string(m.Scope)},
		{"x-changes", m.Changes},
	}
}

// openErrors lists every kind under the one code they share.
func openErrors() object {
	o := object{}
	for _, k := range kinds {
		o = o.with(string(k.kind), object{
			{"code", rpc.CodeKind},
			{"message", k.doc},
			{"data", object{{"kind", string(k.kind)}}},
		})
	}
	return o
}
