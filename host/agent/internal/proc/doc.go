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
// A [Peer] is run by a keeper (on Linux): a process between the host and it, which is
// the host's program again, started with MUXHOST_KEEPER in its environment. The keeper
// is a child subreaper, so that every orphan below it becomes its child, and it kills
// all of them when the leader has ended, when it is told to, and when the host is gone.
// What escapes it is only what another program was asked to start, such as a service
// manager, a container engine or cron, and what kills the keeper itself and wiped its
// environment. Where there are no keepers, what left the process group may survive.
//
// Whether a command may run is decided before it comes here. proc imports frames
// and host/agent only.
package proc
