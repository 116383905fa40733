// Package host puts the rooms together: sessions over a store, a hub that carries
// what they publish to client sockets, the methods that clients call, and the HTTP
// handler in front.
//
// An embedder makes a [Host] with [New], mounts [Host.Handler] or calls
// [Host.ListenAndServe], and ends with [Host.Shutdown]:
//
//	h, err := host.New(ctx, host.Config{Store: mem.New(), Drivers: drivers, Token: token})
//	…
//	http.Handle("/", h.Handler())
//
// Nothing answers without a token, not even on loopback. The host reads no
// environment, no flags and no signals, and writes no file but those of
// Config.BlobDir; it logs to the logger that it is given.
//
// host knows how the rooms meet. It does not know the engine of the store, nor any
// agent.
package host
