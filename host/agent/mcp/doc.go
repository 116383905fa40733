// Package mcp gives agents the host's own tools by the Model Context Protocol:
// spawn_subagent, ask_user and report_todo. So any agent that can call such tools
// gets children of any kind, can ask people, and can report its plan.
//
// A [Server] listens on the machine's own loopback address. Each session that is
// offered the tools has a door of its own: a token of 256 random bits that is good
// from [Server.Offer] until the offer is closed. The token is the only secret, is
// taken from the Authorization header only, and decides everything: whose turn a
// call runs in, and which protocol sessions exist. Behind its door an agent can do
// what its running turn can, and nothing else: no tool approves anything, reads a
// log, or names another session.
//
// Rules of the room.
//   - A call runs in the turn that runs when it arrives, and ends with it. While none
//     runs, calls are refused with words for the model.
//   - An agent that has children of its own inside its process calls with its one
//     token: such calls are the session's, whoever of them made them.
//   - spawn_subagent goes through [agent.Turn.Ask], so that a policy can deny it or
//     have a person asked; [DefaultRules] let it run. What is spawned is what was
//     allowed. The other two ask for nothing: they change nothing but what people see.
//   - A call whose caller went away, or withdrew it, ends. A question is withdrawn
//     then. A child cannot be taken back alone: it goes on until it is done or the turn
//     ends, and the same call made again in that turn waits for it instead of
//     starting another. So an agent that gives up too early loses nothing.
//   - Every response and every request is bounded in bytes, number and time; what is
//     over a bound is refused, never queued.
//
// [Bridge] carries the protocol between the standard streams of a process and a
// door, for agents that can only start tools as processes.
//
// mcp imports frames, host/agent and the protocol's official Go library, which it
// hides: no other package sees it.
package mcp
