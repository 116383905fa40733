package host

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/store/mem"
)

// Who names a session that exists but is not announced yet waits for that, and for
// no session that does not exist; the wait is bounded.
func TestAwaitMeetsASessionBeingBorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublisher(mux.NewHub(mux.Config{}, hubLog{mem.New()}), slog.New(slog.DiscardHandler))
		exists := func(sid frames.SessionID) bool { return sid != "no" }
		start := time.Now()
		var wg sync.WaitGroup
		var waited time.Duration
		wg.Go(func() {
			p.await(t.Context(), "s", exists)
			waited = time.Since(start)
		})
		time.Sleep(time.Second)
		p.Add(frames.Session{SessionID: "other"}, 1, true)
		time.Sleep(500 * time.Millisecond)
		p.Add(frames.Session{SessionID: "s"}, 1, true)
		wg.Wait()
		if waited != 1500*time.Millisecond {
			t.Errorf("await returned after %v, want when the session was added", waited)
		}
		for sid, want := range map[frames.SessionID]time.Duration{"no": 0, "s": 0, "never": birthTime} {
			start = time.Now()
			p.await(t.Context(), sid, exists)
			if d := time.Since(start); d != want {
				t.Errorf("await of %q took %v, want %v", sid, d, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		if p.await(ctx, "never", exists); time.Since(start) != 0 {
			t.Errorf("await of an ended call took %v", time.Since(start))
		}
	})
}
