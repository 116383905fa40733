// Package muxhost is the root of the module and holds no code. The program is
// cmd/muxhost; to embed a host in another program, see package host; to write a
// client in Go, see package rpc/client.
package muxhost
