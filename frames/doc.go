// Package frames defines every word that crosses the wire: ids, events, frames,
// content blocks, and the one codec that turns them into JSON and back.
//
// An event is one fact of a session. Durable events carry a [Seq]; live-only
// events carry After, the last durable seq before them, and are never stored. A
// frame is a JSON-RPC notification that the host pushes to a client.
//
// Both are values: building one touches no lock, no clock and no socket. Each is
// encoded exactly once; afterwards only its bytes travel ([Encoded]). Unknown
// event types, frame types and fields decode without error and keep their bytes.
//
// The registry ([EventTypes], [FrameTypes]) lists every type with its class; the
// published schemas and tables are generated from it. [View] is the fold: the
// picture of a session as a pure function of its events and frames.
//
// frames imports the standard library only. Every other package may import it.
package frames
