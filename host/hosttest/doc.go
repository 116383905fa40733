// Package hosttest tests a host from outside: a proxy that cuts, stalls and
// dribbles at random bytes, and a recorder, a client of its own that trusts
// nothing and notices every gap, repeat and wrong order.
//
// The recorder speaks the wire by itself and shares no code with rpc/client, so
// that neither can hide the other's mistakes.
package hosttest
