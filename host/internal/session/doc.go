// Package session owns the order of things in a session: it numbers every
// event, stores it, and only then tells others.
//
// A live session has one [actor], a goroutine with a bounded mailbox; whatever
// changes the session is a step of it. A step encodes its events once with the
// numbers they will have, appends them with the rows that belong to them, lets
// the caller place its response, and publishes. What could not be stored was
// never said. Agents run beside the actor, one turn at a time, and are held back
// by its mailbox; clients never are.
//
// An actor never waits for another actor; agents' goroutines and callers do. The
// [Manager]'s mutex guards the directory and the marks of cancelled turns;
// nothing blocks or calls out under it.
//
// The source of truth is the store: a cold session is its log and one small
// record. session knows no sockets and no methods ([Publisher] is all it sees of
// clients), and leaves the question who answered first to package pending.
package session
