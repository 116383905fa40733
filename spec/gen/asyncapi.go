package main

import (
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

const wsMessages = "#/channels/ws/messages/"

// asyncAPI is the AsyncAPI document: one channel, on which the host sends frames
// and responses and receives calls. The methods are the OpenRPC document's.
func asyncAPI() object {
	messages, sent := object{}, []any{}
	for _, f := range frames.FrameTypes() {
		name := fileName(string(f.Type))
		messages = messages.with(name, frameMessage(f, name))
		sent = append(sent, object{{"$ref", wsMessages + name}})
	}
	messages = messages.
		with("request", message("request", "A call; openrpc.json has the methods.", requestSchema())).
		with("response", message("response", "The answer to one call.", responseSchema()))
	return object{
		{"asyncapi", "3.0.0"},
		{"info", object{
			{"title", "muxhost"},
			{"version", frames.ProtocolVersion},
			{"description", "One WebSocket for each client: frames come down it, calls go up. Clients without WebSockets get the same frames as " +
				"Server-Sent Events from GET /v1/events, and make calls with POST /v1/rpc."},
		}},
		{"defaultContentType", "application/json"},
		{"servers", object{{"local", object{{"host", "127.0.0.1:7717"}, {"protocol", "ws"}}}}},
		{"channels", object{{"ws", object{
			{"address", "/v1/ws"},
			{"description", "Subprotocol muxhost.v1; text messages, one JSON-RPC 2.0 object each."},
			{"messages", messages},
		}}}},
		{"operations", operations(sent)},
	}
}

func operations(sent []any) object {
	channel := object{{"$ref", "#/channels/ws"}}
	return object{
		{"push", object{
			{"action", "send"},
			{"channel", channel},
			{"summary", "The host pushes frames."},
			{"messages", sent},
		}},
		{"call", object{
			{"action", "receive"},
			{"channel", channel},
			{"summary", "A client calls a method."},
			{"messages", []any{object{{"$ref", wsMessages + "request"}}}},
			{"reply", object{
				{"channel", channel},
				{"messages", []any{object{{"$ref", wsMessages + "response"}}}},
			}},
		}},
	}
}

func frameMessage(f frames.FrameInfo, name string) object {
	return message(string(f.Type), f.Doc, object{{"$ref", "schema/frames/" + name + ".json"}})
}

func message(name, doc string, schema object) object {
	return object{
		{"name", name},
		{"summary", doc},
		{"payload", object{
			{"schemaFormat", "application/schema+json;version=2020-12"},
			{"schema", schema},
		}},
	}
}

func requestSchema() object {
	methods := []string{}
	for _, m := range rpc.Methods() {
		methods = append(methods, m.Name)
	}
	return object{
		{"type", "object"},
		{"properties", object{
			{"jsonrpc", object{{"const", "2.0"}}},
			{"id", callID()},
			{"method", wordsOf(methods)},
			{"params", object{{"type", "object"}}},
		}},
		{"required", []string{"jsonrpc", "id", "method"}},
	}
}

func responseSchema() object {
	return object{
		{"type", "object"},
		{"properties", object{
			{"jsonrpc", object{{"const", "2.0"}}},
			{"id", object{{"anyOf", []any{callID(), object{{"type", "null"}}}}}},
			{"result", object{}},
			{"error", object{
				{"type", "object"},
				{"properties", object{
					{"code", integer(-maxInteger, maxInteger)},
					{"message", object{{"type", "string"}}},
					{"data", object{{"type", "object"}}},
				}},
				{"required", []string{"code", "message"}},
			}},
		}},
		{"required", []string{"jsonrpc", "id"}},
		{"oneOf", []any{object{{"required", []string{"result"}}}, object{{"required", []string{"error"}}}}},
	}
}

func callID() object {
	return object{{"anyOf", []any{object{{"type", "string"}}, integer(0, maxInteger)}}}
}
