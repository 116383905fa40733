// Package spec is the published contract of muxhost: schemas, the OpenRPC and
// AsyncAPI documents, tables and TypeScript types. A stranger can write a client
// from this folder alone.
//
// Tables, schemas and documents are generated from frames and rpc by gen; a test
// fails when they drift. Pages of prose are written by hand. The wire has its own
// version and its own list of changes, because clients upgrade on their own.
//
// spec imports nothing but the standard library.
package spec

import _ "embed"

//go:generate go run ./gen

// OpenRPC is the OpenRPC document as JSON. It refers to nothing outside of
// itself. It is not to be changed.
//
//go:embed openrpc.json
var OpenRPC []byte
