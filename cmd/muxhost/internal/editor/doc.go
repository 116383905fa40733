// Package editor is an agent to an editor, by the Agent Client Protocol, version 1:
// the editor's side is lines on stdin and stdout, the other side one connection to a
// host. Sessions of the host are the editor's sessions, under the same ids, so that
// one conversation is open here, in a terminal and elsewhere.
//
// Rules of the room.
//   - Nothing is decided here. A permission request is answered by the person at the
//     editor or not at all: an answer "cancelled", an error and an editor that goes
//     away leave it pending for others. What was settled elsewhere is withdrawn with
//     `$/cancel_request`, and a late answer is dropped.
//   - What somebody else does in a session shows here as updates, outside of prompts
//     too. The editor's own prompts are not repeated to it.
//   - `session/load` sends the whole session, folded, then answers; `session/resume`
//     and `session/fork` send nothing of the past; `session/new` answers first.
//   - `session/close` and the end of stdin only detach. Turns go on, what is pending
//     stays.
//   - Only updates of version 1 are sent, but for what the editor offered to take:
//     notices, compactions, and subagents as sessions of their own.
//   - MCP servers that the editor names are not started: agents run under the host,
//     with the host's configuration. The editor is told so.
//
// One goroutine, that of [Serve], owns all state. Calls to the host run beside it and
// hand their results back to it; what it sends waits for an editor that reads slowly,
// and so, in turn, does the reading of frames.
//
// editor imports frames, rpc, rpc/client and host/agent/acp/acprpc only.
package editor
