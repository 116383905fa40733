// Package shell is the agent that runs command lines.
//
// A prompt is one command line for sh, run in the session's directory after a
// person allowed exactly that. Lines that begin with "@" are for the agent
// itself; see [Help]. Steering goes to the running command's standard input, a
// line at a time; the text "@eof" closes it. The agent has no model: injected
// context is ignored, and it says nothing of its own about a command: the tool
// result is the outcome.
//
// A command line that ends in " &" becomes a task: it outlives its turn, has no
// input, and ends by itself, when the task is cancelled, or with the agent.
//
// Rules of the room. A process starts only from the input of a [agent.Decision]
// that allows. Its environment is [agent.Session.Env] and a mark, nothing else.
// What a command starts dies with it, with its turn or task, or with the host; how,
// and what escapes that, is package proc's business.
//
// shell imports frames, host/agent and host/agent/internal/proc only.
package shell
