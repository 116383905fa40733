package main

// value makes up one member.
type value = func(*generator) any

type member struct {
	name string
	make value
}

func short(g *generator) any     { return g.short() }
func id(g *generator) any        { return g.id() }
func small(g *generator) any     { return g.r.IntN(30) }
func either(g *generator) any    { return g.one(2) }
func raw(g *generator) any       { return g.raw() }
func at(g *generator) any        { return g.time() }
func content(g *generator) any   { return g.content() }
func blocks(g *generator) any    { return g.blocks() }
func usage(g *generator) any     { return g.usage() }
func policy(g *generator) any    { return g.policy() }
func labels(g *generator) any    { return g.labels() }
func questions(g *generator) any { return g.questions() }

func always(v any) value      { return func(*generator) any { return v } }
func of(values ...any) value  { return func(g *generator) any { return pick(g, values...) } }
func list(rows ...any) value  { return of(nil, []any{}, rows) }
func call(g *generator) any   { return g.tool() }
func signed(g *generator) any { return g.by() }
func said(g *generator) any   { return g.answers() }

// optional has the members that a payload may have, in an order that is always the
// same, so that a seed gives the same story in each run.
var optional = map[string][]member{
	"session/created": {
		{"agent", short},
		{"cwd", always("/x")},
		{"rootSessionId", always("r")},
		{"depth", small},
		{"origin", always("user")},
		{"title", short},
		{"config", raw},
		{"policy", policy},
		{"labels", labels},
		{"budget", of(nil, object{}, object{"tokens": 4})},
		{"forkedFrom", of(nil, object{"sessionId": "z", "seq": 4})},
		{"callId", id},
	},
	"session/renamed":     {{"title", short}},
	"session/configured":  {{"policy", policy}, {"labels", labels}, {"options", of(nil, object{}, object{"a": nil, "__proto__": 1}, object{"b": []any{}}, []any{}, 1)}},
	"session/compacted":   {{"upTo", small}, {"content", content}},
	"prompt/queued":       {{"promptId", id}, {"mode", always("queue")}, {"content", content}},
	"prompt/dequeued":     {{"promptId", id}},
	"turn/start":          {{"trigger", short}, {"promptId", id}},
	"turn/end":            {{"reason", of("completed", "cancelled")}, {"usage", usage}, {"message", short}},
	"user/message":        {{"promptId", id}, {"content", content}},
	"steering/message":    {{"promptId", id}, {"content", content}},
	"context/message":     {{"promptId", id}, {"content", content}},
	"prompt/blocked":      {{"promptId", id}, {"reason", short}},
	"assistant/message":   {{"content", content}, {"blocks", blocks}, {"partial", either}, {"usage", usage}},
	"reasoning/message":   {{"content", content}, {"blocks", blocks}, {"partial", either}, {"withheld", of(true, false, 1)}},
	"assistant/retracted": {{"blocks", blocks}},
	"tool/call":           {{"input", raw}, {"title", short}, {"locations", list(object{"path": "p", "line": 0})}, {"truncated", of(nil, object{}, object{"bytes": 3})}},
	"tool/result":         {{"callId", id}, {"content", content}, {"isError", either}, {"durationMs", small}, {"details", raw}, {"errorCode", short}},
	"approval/asked": {
		{"id", id},
		{"tool", call},
		{"callId", id},
		{"input", raw},
		{"inputHash", short},
		{"reason", short},
		{"options", list("allowed-once")},
		{"expiresAt", at},
	},
	"question/asked":    {{"id", id}, {"questions", questions}, {"expiresAt", at}},
	"approval/decided":  {{"id", id}, {"outcome", always("rejected")}, {"origin", always("reply")}, {"by", signed}, {"feedback", short}, {"grant", short}},
	"question/decided":  {{"id", id}, {"outcome", always("answered")}, {"origin", always("reply")}, {"by", signed}, {"answers", said}},
	"agent/spawned":     {{"childSessionId", id}, {"callId", short}, {"agent", short}, {"title", short}},
	"agent/completed":   {{"childSessionId", id}, {"status", short}, {"result", content}, {"callId", short}},
	"todo/write":        {{"todos", list(object{"content": "x", "status": "pending", "id": ""}, object{})}},
	"task/started":      {{"taskId", id}, {"kind", short}, {"label", short}},
	"task/completed":    {{"taskId", id}, {"status", short}, {"detail", short}},
	"model/start":       {{"model", short}, {"attempt", small}},
	"model/switched":    {{"to", short}},
	"usage/updated":     {{"usage", usage}},
	"command/available": {{"commands", list(object{"name": "x", "description": ""})}},
	"error":             {{"code", short}, {"message", short}, {"retryable", either}},
}
