package acp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// startingKind is the vendor event that tells of a slow start, with the end of the log.
const (
	startingKind = "starting"
	maxNoteLog   = 512 // bytes
)

// startingNote is the data of that event.
type startingNote struct {
	Agent string `json:"agent"`
	// WaitingFor is "initialize", while the process starts, or "session".
	WaitingFor string `json:"waitingFor"`
	ElapsedMs  int64  `json:"elapsedMs"`
	LimitMs    int64  `json:"limitMs"`
	Log        string `json:"log,omitempty"` // its end
}

// slowStart tells of a start that takes long.
type slowStart struct {
	wg sync.WaitGroup
	on atomic.Pointer[engine]
}

// waits says which agent is waited for.
func (s *slowStart) waits(e *engine) { s.on.Store(e) }

// watch tells c's clients, once, when it takes long. The caller calls done when the
// start is over.
func (s *slowStart) watch(ctx context.Context, c *client) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	s.wg.Go(func() {
		timer := time.NewTimer(c.d.opt.StartNotice)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.tell(ctx, c, time.Since(began))
		case <-ctx.Done():
		}
	})
	return func() { cancel(); s.wg.Wait() }
}

func (s *slowStart) tell(ctx context.Context, c *client, elapsed time.Duration) {
	n := startingNote{
		Agent: c.d.opt.Name, WaitingFor: "initialize",
		ElapsedMs: elapsed.Milliseconds(), LimitMs: c.d.opt.StartTimeout.Milliseconds(),
	}
	if e := s.on.Load(); e != nil {
		n.Log = frames.Tail(e.log.text(), maxNoteLog)
		select {
		case <-e.ready:
			n.WaitingFor = "session"
		default:
		}
	}
	// It is no more than a courtesy: a start whose note is not stored goes on.
	_ = c.session.Background.Emit(ctx, agent.Raw{Type: vendorType(startingKind), Data: acprpc.Marshal(n)})
}
