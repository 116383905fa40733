// Package muxtest joins clients to a hub without a network: sockets are
// [net.Pipe] pairs, so that a whole stack runs in a testing/synctest bubble on
// virtual time. It also has a log that lives in memory.
package muxtest
