// Package pending owns every approval and question that has no outcome yet, and
// is the only judge of who answered first.
//
// A request enters by [Table.Ask] and leaves once: by a client's answer, the
// agent's withdrawal, the cancellation of its turn, its deadline, or shutdown.
// Whoever claims it first under the table's mutex wins; everybody else is told
// how it ended. Nothing here is tied to a connection.
//
// It fails closed. An allow takes effect only after the [Recorder] has put it on
// disk; if that fails the outcome is unavailable. Anything else takes effect at
// once, whether it can be recorded or not. [Table.Ask] never returns an allowing
// outcome together with an error, and settlements that allow are made in one
// unexported function.
//
// The table also holds the stored "always" answers ([Grants]) and judges the
// rules of a policy ([Judge]). It knows no agents, clients, sockets or logs: it
// sees them as a Recorder, a [GrantStore] and two callbacks, and calls none of
// them with a lock held.
//
// pending imports the standard library and frames.
package pending
