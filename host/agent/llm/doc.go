// Package llm is an agent inside the host, for any model behind an
// OpenAI-compatible chat-completions endpoint.
//
// A turn is a loop of steps: ask the model, run the tools it calls, one after the
// other, and ask it again. What the model sees is the surface of the session's log
// (see [frames.View]), read through [agent.Session.History] and, where the log was
// trimmed, [agent.Session.Base]; the agent keeps no memory of its own, so a restart
// changes nothing. Blobs that people's words name are read for each turn. When the
// prompt would pass the model's window, what is old is replaced by a summary
// (session/compacted).
//
// Rules of the room. Every tool that touches files, runs something or spawns goes
// through [agent.Turn.Ask] and does what [agent.Decision.Input] says; reading is asked
// for too, so that a policy can forbid it ([DefaultRules] allow what changes nothing).
// Files are reached through [os.Root]: nothing outside the session's directory is,
// whatever links lie in it. A call that the model got wrong goes back to it as an
// error, never guessed. A request is tried again only while nothing of its answer has
// come. Keys appear in no event and in no error.
//
// llm imports frames, host/agent and host/agent/internal/proc only. Its timers are
// the runtime's, so it runs in virtual time.
package llm
