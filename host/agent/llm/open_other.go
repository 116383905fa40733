//go:build !unix

package llm

// noWait is nothing here: no file waits to be opened.
const noWait = 0
