package auth

import (
	"maps"
	"sync"
	"time"
)

// Failed attempts: a burst, then a steady trickle, over all peers together.
const (
	failBurst = 20
	failEvery = time.Second // one more attempt
)

// limit is a token bucket for failed attempts.
type limit struct {
	mu   sync.Mutex // guards all below
	used float64
	at   time.Time
}

// fail counts one failed attempt and reports whether it was one too many.
func (l *limit) fail(now time.Time) (over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.IsZero() {
		l.used = max(0, l.used-float64(now.Sub(l.at))/float64(failEvery))
	}
	l.at = now
	if l.used+1 > failBurst {
		return true
	}
	l.used++
	return false
}

// maxBudgets bounds the names that a [Budget] keeps apart. Beyond it they share one.
const maxBudgets = 1024

// Budget counts faults by name, such as a token at an address: more than Max within
// Window is too many. Set both before use. It is safe for concurrent use.
type Budget struct {
	Max    int
	Window time.Duration

	mu     sync.Mutex             // guards all below
	faults map[string][]time.Time // the last Max of each name, oldest first
}

// Wait returns how long name has to wait for its budget, 0 if there is some left.
func (b *Budget) Wait(name string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	times := b.faults[b.of(name)]
	if len(times) < b.Max {
		return 0
	}
	return max(0, times[0].Add(b.Window).Sub(now))
}

// Spend counts one fault of name.
func (b *Budget) Spend(name string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.faults == nil {
		b.faults = map[string][]time.Time{}
	}
	if len(b.faults) >= maxBudgets {
		maps.DeleteFunc(b.faults, func(_ string, at []time.Time) bool { return now.Sub(at[len(at)-1]) >= b.Window })
	}
	name = b.of(name)
	at := b.faults[name]
	if len(at) >= b.Max {
		at = at[1:]
	}
	b.faults[name] = append(at, now)
}

// of returns the name that a name is counted under.
func (b *Budget) of(name string) string {
	if _, ok := b.faults[name]; !ok && len(b.faults) >= maxBudgets {
		return ""
	}
	return name
}
