package conform

// methodRow is a method of the contract: section 5, and the scopes of section 1.
type methodRow struct {
	name  string
	scope string
	// required and optional are the params that the contract names.
	required, optional []string
	// probe are proper params with which the call does no harm: what they name does
	// not exist.
	probe obj
}

// contractMethods are all methods of version 1.0.
func contractMethods() []methodRow {
	nobody := "00000000-0000-7000-8000-000000000000"
	on := func(more obj) obj { return obj{"sessionId": nobody}.with(more) }
	sid := []string{"sessionId"}
	return []methodRow{
		{"host.describe", "observe", nil, nil, obj{}},
		{"rpc.discover", "observe", nil, nil, obj{}},
		{"mux.subscribe", "observe", nil, []string{"sessions", "tree", "host", "delivery"}, obj{"sessions": list{on(nil)}}},
		{"mux.unsubscribe", "observe", nil, []string{"sessions", "host"}, obj{"sessions": list{nobody}}},
		{"sessions.list", "observe", nil, []string{"roots", "parent", "tree", "state", "cwd", "text", "limit", "cursor"}, obj{"limit": 1}},
		{"session.create", "operate", []string{"cwd"}, []string{"agent", "title", "parentSessionId", "config", "policy", "budget", "labels", "requestId"}, obj{"cwd": "/", "parentSessionId": nobody}},
		{"session.get", "observe", sid, []string{"view"}, on(nil)},
		{"session.history", "observe", sid, []string{"after", "before", "limit", "maxBytes"}, on(nil)},
		{"session.prompt", "operate", []string{"sessionId", "content"}, []string{"mode", "promptId"}, on(obj{"content": say("x")})},
		{"session.cancel", "operate", sid, []string{"turnId", "tree"}, on(nil)},
		{"session.configure", "operate", sid, []string{"title", "policy", "budget", "labels"}, on(nil)},
		{"session.export", "observe", []string{"sessionId", "format"}, nil, on(obj{"format": "jsonl"})},
		{"session.fork", "operate", sid, []string{"at"}, on(nil)},
		{"session.close", "operate", sid, nil, on(nil)},
		{"session.delete", "operate", sid, []string{"tree"}, on(nil)},
		{"approval.respond", "answer", []string{"sessionId", "id", "outcome"}, []string{"inputHash", "feedback", "grant"}, on(obj{"id": "none", "outcome": "rejected"})},
		{"question.respond", "answer", []string{"sessionId", "id"}, []string{"answers", "cancel"}, on(obj{"id": "none", "cancel": true})},
		{"pending.list", "observe", nil, []string{"tree"}, obj{"tree": nobody}},
		{"grants.list", "observe", nil, nil, obj{}},
		{"grants.revoke", "operate", []string{"id"}, nil, obj{"id": "none"}},
		{"tasks.list", "observe", nil, []string{"sessionId"}, on(nil)},
		{"tasks.get", "observe", []string{"sessionId", "taskId"}, nil, on(obj{"taskId": "none"})},
		{"tasks.wait", "observe", []string{"sessionId", "taskId"}, nil, on(obj{"taskId": "none"})},
		{"tasks.cancel", "operate", []string{"sessionId", "taskId"}, nil, on(obj{"taskId": "none"})},
		{"blob.read", "observe", []string{"blob"}, nil, obj{"blob": noBlob}},
		{"blob.write", "operate", nil, []string{"data", "sha256"}, obj{"upload": "none", "data": ""}},
		{"clients.list", "admin", nil, nil, obj{}},
		{"tokens.list", "admin", nil, nil, obj{}},
		{"tokens.create", "admin", []string{"label", "scope"}, []string{"trees"}, obj{"label": "x", "scope": "observe", "trees": list{nobody}, "forMs": 1}},
		{"tokens.revoke", "admin", []string{"id"}, nil, obj{"id": "none"}},
	}
}

// noBlob names a blob that nobody has.
const noBlob = "sha256-0000000000000000000000000000000000000000000000000000000000000000"
