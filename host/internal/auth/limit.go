package auth

import (
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
