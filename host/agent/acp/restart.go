package acp

import (
	"fmt"
	"time"
)

const (
	// maxFailures is how often an agent may fail within failureWindow before it is
	// left alone for a while.
	maxFailures   = 5
	failureWindow = 2 * time.Minute
	// firstDelay is how long it is left alone at first. Each further failure doubles
	// that, up to maxDelay.
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
)

// restarts judges whether an agent that failed may be started again.
type restarts struct {
	fails []time.Time // the last ones, at most maxFailures
	delay time.Duration
	why   string // the last failure
}

// failed notes a crash, or a start that failed.
func (r *restarts) failed(now time.Time, why string) {
	r.expire(now)
	r.fails, r.why = append(r.fails, now), why
	switch {
	case r.delay > 0:
		r.delay = min(2*r.delay, maxDelay)
	case len(r.fails) >= maxFailures && now.Sub(r.fails[len(r.fails)-maxFailures]) <= failureWindow:
		r.delay = firstDelay
	}
	r.fails = r.fails[max(0, len(r.fails)-maxFailures):]
}

// expire forgets failures after a time without any.
func (r *restarts) expire(now time.Time) {
	if n := len(r.fails); n > 0 && now.Sub(r.fails[n-1]) > r.delay+failureWindow {
		*r = restarts{}
	}
}

// refuse is why the agent is not started now, nil if it may be.
func (r *restarts) refuse(now time.Time, name string) error {
	r.expire(now)
	if r.delay == 0 {
		return nil
	}
	next := r.fails[len(r.fails)-1].Add(r.delay)
	if !now.Before(next) {
		return nil
	}
	return fmt.Errorf("acp: %s failed again and again and is not started before %s (in %v); its last failure: %s",
		name, next.UTC().Format(time.TimeOnly+" UTC"), next.Sub(now).Round(time.Second), r.why)
}
