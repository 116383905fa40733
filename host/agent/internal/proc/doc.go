// Package proc runs commands for agents, so that nothing they start outlives them.
//
// A [Marks] starts processes; each leads a process group and carries a mark in its
// environment (MUXHOST_CALL). When its leader ended, or the context of
// [Process.Wait] is done, the group is killed, and then whatever still carries the
// mark (on Linux), also where it left the group. When the host itself is killed, a
// guard process beside it does the same. A process that leaves the group and wipes
// its environment escapes that. A [Recorder] keeps what a process writes within
// bounds.
//
// Whether a command may run is decided before it comes here. proc imports frames
// and host/agent only.
package proc
