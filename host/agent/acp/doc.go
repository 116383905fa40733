// Package acp runs agents that speak the Agent Client Protocol, version 1, over
// their standard input and output.
//
// The sessions of a driver share one process where the agent can open a session again
// that it lost; otherwise, and where that is configured, each has its own. What the
// agent says becomes events of the contract; whatever the contract has no word for,
// unknown update kinds, unknown fields and `_meta`, is kept as a vendor event whose type
// begins with "acp.agentclientprotocol.com/", byte for byte, or as text where it is no
// I-JSON. Nothing is guessed into something else.
//
// Rules of the room.
//   - The approval mode is set after a session is made, loaded or resumed, and no
//     prompt is sent before the agent acknowledged it. An agent that leaves the
//     mode by itself is put back, or ended.
//   - The agent's log is not the session's: what it replays is dropped.
//   - A permission request becomes [agent.Turn.Ask]. An answer is mapped by the
//     kind of the agent's options, never by their ids: an allowance picks
//     allow_once, also one for always, which the host remembers itself; a
//     rejection picks reject_once, or else is "cancelled", which allows nothing.
//     Where the agent offers no allow_once it is rejected, and nobody is asked.
//   - What an agent calls its call allows nothing by itself: it cannot take a name of
//     the host's own tools, and a kind is not taken for a name.
//   - While no turn runs people are asked by [agent.Background]. A permission request
//     that holds questions and nothing else is asked as questions; no other is.
//   - Every request of the agent is answered: at cancellation, withdrawal, crash
//     and shutdown by this package itself. Files and terminals are not offered.
//   - An agent's own subagents become child sessions ([agent.Turn.Spawn]), and a
//     turn lasts until those that it began have ended.
//   - What the agent says of a session goes to that session alone. What it asks in a
//     session that nobody knows is refused where several sessions share it.
//   - A process that is not needed any more gets the end of its input, then
//     SIGTERM, then SIGKILL; nothing that it started survives it. One that failed
//     again and again is left alone for a while.
//
// An engine is one process and the connection to it, a link one conversation over that,
// a client the agent of one session of the host, which makes a link again when it lost
// one. One goroutine, the lane of a link, owns all state of a conversation; it blocks
// only while events are stored. The goroutine that reads the agent's output hands
// everything to the lanes in order, so an answer of the agent is seen after what the
// agent said before it.
//
// acp imports frames, host/agent, acprpc and host/agent/internal/proc only.
package acp
