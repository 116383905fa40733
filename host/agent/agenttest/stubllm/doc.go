// Package stubllm is a language model that does what its prompt tells it, so that
// real agents can be driven without a network.
//
// It answers four public wire formats, as far as coding agents use them:
//
//	POST …/chat/completions                      OpenAI Chat Completions
//	POST …/responses                             OpenAI Responses, streaming only
//	POST …/messages, …/messages/count_tokens     Anthropic Messages
//	POST …:generateContent, :streamGenerateContent, :countTokens   Gemini
//	GET  …/models                                a list of one model
//
// A script travels inside the prompt, as [Script] builds it: "STUB64:" and a base64
// JSON array of steps. The server keeps no state: the step to play is told by the
// number of tool results behind the last marker, so that any number of sessions can
// talk at once, and a marker inside the arguments of a tool gives a subagent its own
// script. A prompt without a marker, and a request that offers no tools, such as one
// for a title, gets a short fixed answer.
//
// It is for tests: there is no authentication. Listen on loopback only.
package stubllm
