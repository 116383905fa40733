// Package auth says who is at the other end of a request, and whether the request
// may be looked at at all.
//
// Every request passes one [Gate], on every path: first the exact lists of hosts
// and origins (403), then the credentials (401, the same words for missing,
// unknown and wrong). Loopback is no exception. A credential is a token in the
// Authorization header, a token in a WebSocket subprotocol, or a login cookie that
// a token was exchanged for; never anything in a URL. Forwarded headers are not
// read, so a proxy cannot widen what is trusted.
//
// Tokens are configured, or made by one that holds and never for more. Revoking one
// ends those it made and their logins with it; whoever looks a token up later does
// not find it. A token, and a login of it, ends at its time to the nanosecond.
// Storing tokens and closing sockets are the caller's business.
//
// Secrets have at least 256 bits when the host mints them. In memory there are
// only SHA-256 digests, compared in constant time over the whole table. The limit
// on failed attempts protects the log and the processor, not the secret: a right
// token is never locked out by somebody else's wrong ones.
//
// Secret files are 0600 in a directory that is 0700 and belongs to the process's
// user; anything looser, or a symbolic link, is refused with the command that
// mends it.
//
// auth imports the standard library only. It knows no sessions, frames or methods.
package auth
