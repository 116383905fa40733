package conform_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/spec/conform"
)

// broken is a host that breaks one thing.
type broken struct {
	name     string
	families []string // that must fail, and no other
	check    string   // one that must fail
	why      string   // what its report must say
	middle   *middle
}

// Each host that is broken in one thing fails the checks of the family that this
// belongs to, no others, and is told why.
func TestBrokenHostsFailWhereTheyAreBroken(t *testing.T) {
	seen := map[string]bool{}
	for nth, b := range slices.Concat(brokenTransports, brokenWords, brokenOrders, brokenGates, brokenWork, brokenPipes) {
		for _, f := range b.families {
			seen[f] = true
		}
		if raced && slices.Contains(b.families, "slow") {
			continue // a flood takes a minute then
		}
		t.Run(strings.ReplaceAll(b.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			b.play(t, nth)
		})
	}
	for _, f := range conform.Families() {
		if !seen[f] {
			t.Errorf("no host is broken in the family %s", f)
		}
	}
}

// share is how many hosts divide the checks of the families that must pass.
const share = 8

// checks are those of the host's families, and a share of all others. Floods take
// long, so that those are played where they are meant only.
func (b *broken) checks(nth int) []string {
	var out []string
	for i, c := range conform.Checks() {
		if slices.Contains(b.families, c.Family) || i%share == nth%share && c.Family != "slow" && !raced {
			out = append(out, c.ID)
		}
	}
	return out
}

func (b *broken) play(t *testing.T, nth int) {
	opt := conform.Options{Brief: true, Wait: 5 * time.Second, Checks: b.checks(nth)}
	rep := start(t, b.middle).run(t, opt)
	if got := rep.Failed(); !slices.Equal(got, b.families) {
		show(t, rep)
		t.Errorf("a host that %s fails in %v; want %v", b.name, got, b.families)
	}
	for _, r := range rep.Results {
		if r.ID != b.check {
			continue
		}
		if said := r.Came + " | " + r.Want; r.State != conform.Failed || !strings.Contains(said, b.why) || r.Sent == "" {
			t.Errorf("%s %s after %q: %s; want it failed because %s", r.ID, r.State, r.Sent, said, b.why)
		}
		return
	}
	t.Errorf("there is no check %s", b.check)
}
