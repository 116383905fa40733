// Package demo is an agent without a model: it plays a script.
//
// The prompt "show me" plays everything a client can see: reasoning, streamed
// text, a plan, a tool with progress, two subagents of which one asks for
// approval two levels down, a question, usage. Any other prompt is answered with
// a short streamed echo, and "background" begins a task. Nothing is ever run; the
// script says so.
//
// The config of a session chooses a role and the pace; see [Config]. The roles
// stream, asks, spawns, tasks and wide make load instead of sense. Everything is
// deterministic: the same prompts and answers give the same events.
//
// demo imports frames and host/agent only. It waits for timers that end with
// their context, so it runs in virtual time.
package demo
