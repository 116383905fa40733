//go:build race

package conform_test

// raced says that the race detector is on, and everything takes longer.
const raced = true
