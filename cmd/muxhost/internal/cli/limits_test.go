package cli

import "testing"

// The limits that serve is given are those that the host tells its clients.
func TestLimitsOfServeHold(t *testing.T) {
	s := serveIn(t, stateIn(t), "--max-queue", "3", "--max-tree", "5", "--max-depth", "7", "--spawn-rate", "11")
	c, err := s.a.dial(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	got, err := c.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"maxQueue": 3, "maxTree": 5, "maxTreeDepth": 7, "spawnsPerMinute": 11} {
		if got.Limits[name] != want {
			t.Errorf("%s is %d, want %d", name, got.Limits[name], want)
		}
	}
}
