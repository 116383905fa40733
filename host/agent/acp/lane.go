package acp

import (
	"context"
	"sync"
	"time"

	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// laneSize is how many jobs may wait; whoever brings one more waits itself, which
// makes the agent wait in the end.
const laneSize = 64

// lane runs jobs one after the other, in the order in which they came.
type lane struct {
	in    chan func() // never closed
	stop  chan struct{}
	ended chan struct{} // closed when no job runs any more
	once  sync.Once
	wg    sync.WaitGroup
}

// newLane starts a lane. idle is run as a job when nothing came for quiet.
func newLane(quiet time.Duration, idle func()) *lane {
	l := &lane{in: make(chan func(), laneSize), stop: make(chan struct{}), ended: make(chan struct{})}
	l.wg.Go(func() { l.run(quiet, idle) })
	return l
}

func (l *lane) run(quiet time.Duration, idle func()) {
	defer close(l.ended)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case job := <-l.in:
			job()
			timer.Reset(quiet)
		case <-timer.C:
			idle()
		case <-l.stop:
			for {
				select {
				case job := <-l.in:
					job()
				default:
					return
				}
			}
		}
	}
}

// put queues a job, and waits where the lane is full. It is false where the lane
// has ended.
func (l *lane) put(job func()) bool {
	select {
	case <-l.stop:
		return false
	default:
	}
	select {
	case l.in <- job:
		return true
	case <-l.stop:
		return false
	}
}

// do runs a job and waits for it. It must not be called by a job.
func (l *lane) do(ctx context.Context, job func()) error {
	done := make(chan struct{})
	if !l.put(func() { job(); close(done) }) {
		return acprpc.ErrGone
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.ended:
		select {
		case <-done:
			return nil
		default:
			return acprpc.ErrGone
		}
	}
}

// close runs what is queued and ends the lane.
func (l *lane) close() {
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
}
