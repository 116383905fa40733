// Package conform is the conformance kit: it plays several hundred checks against any
// server that claims the contract, as a raw client, and says which of its sentences
// the server breaks.
//
// A check makes sessions of its own and removes them. Checks wait for messages,
// never for time; they run several at a time, and the report has a fixed order. The
// kit shares no code with any host or client: it sends bytes over a WebSocket, and
// reads JSON without types.
//
// # What a server needs
//
// The kit takes an address, a token of the scope admin, and a directory that exists
// on the server's machine. It needs a test agent, named "demo" unless told
// otherwise, which has no model but plays what the session's config says:
//
//	{"speed":0}                        answers any prompt with a turn of: reasoning that
//	                                   streams, a message that streams and holds the
//	                                   prompt's text ("You said: …"), usage/updated
//	                                   (inputTokens the same each turn, summed up over
//	                                   the session); without delays
//	                                   The prompt "show me" plays the tour below
//	{"role":"stream","chunks":C,"size":S,"everyMs":M,"durableEvery":D}
//	                                   streams C chunks of S bytes, one every M ms
//	                                   (default 0), and writes an assistant/message for
//	                                   a block after every D chunks (default: at the end)
//	{"role":"asks","count":N,"parallel":P}
//	                                   asks approval of N calls of the tool "load" with
//	                                   the inputs {"n":1}, {"n":2} …, P of them open at
//	                                   once; each has tool/call before and tool/result
//	                                   after; then says "A of N allowed"
//	{"role":"spawns","count":N,"depth":D}
//	                                   starts N child sessions, which start as many, D
//	                                   levels deep, and waits for them
//	{"role":"tasks","count":N,"chunks":C,"size":S,"everyMs":M}
//	                                   begins N background tasks and ends its turn; each
//	                                   prints C chunks, or goes on until it is cancelled
//	                                   where C is 0 or absent
//	{"role":"wide","count":C,"size":S} emits an event of the type conform.example/note,
//	                                   whose data open.go spells out; asks approval of a
//	                                   call of the tool "wide" with the input {"text":
//	                                   C times S bytes}; then says as much in one message
//
// The tour: model/start; reasoning; todo/write with three entries, written again as
// work goes on; text; a tool call with several pieces of progress; two children that
// work at the same time, one of which starts a child that asks for approval, and
// ends once it is answered; the question "database" with the options SQLite and
// Postgres; then model/end, usage, text. Steering is never taken: it becomes the
// next prompt.
//
// conform imports coder/websocket and nothing of this module. Only cmd
// imports it.
package conform
