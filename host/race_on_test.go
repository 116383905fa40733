//go:build race

package host_test

// under picks a number of rounds: race for runs under the race detector, which is
// ten times slower.
func under(race, _ int) int { return race }
