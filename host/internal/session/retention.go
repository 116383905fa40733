package session

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// Retention bounds what is kept of logs. A log over a bound by more than a tenth
// is trimmed to the bound, as far as the ends of its turns allow: never the running
// turn, an open request, a prompt that waits, or the last event. What is dropped is
// kept as a fold, which counts for no bound; where that is large, a trim waits until
// enough is to be dropped. Zero fields bound nothing.
type Retention struct {
	MaxAge    time.Duration // of a turn that has ended
	MaxEvents int64         // of one session
	MaxBytes  int64         // of one session's events
	// MaxTotalBytes is of all sessions' events; those that were used least
	// recently are trimmed first.
	MaxTotalBytes int64
}

// keeper trims logs to what [Retention] allows: after turns, and all of them from
// time to time. It works beside the actors. What it relies on stays true whatever
// they do meanwhile: a turn that has ended has ended for good, and so has a request
// that was settled or a prompt that left the queue.
type keeper struct {
	m    *Manager
	r    Retention
	stop context.CancelFunc
	wake chan struct{} // holds one token: ended is not empty

	mu    sync.Mutex
	ended map[frames.SessionID]struct{} // guarded by mu: had a turn end; at most all sessions

	// The goroutine's own.
	logs   map[frames.SessionID]*kept
	bytes  int64     // of all logs
	shrunk time.Time // when trimming to MaxTotalBytes last came to nothing
}

// kept is what the keeper remembers of a log.
type kept struct {
	measured bool
	bytes    int64 // of its events
	grown    int64 // the entry's, when bytes was right
	first    frames.Seq
	oldest   time.Time // of event first
	// Nothing could be cut: the next try is at this head or this time.
	retry frames.Seq
	until time.Time
	stuck frames.Seq // at this head time alone changes nothing
}

// The waits of a keeper.
const (
	minRound = time.Minute
	maxRound = 10 * time.Minute
	// keepPatience is how long a log that could not be cut is left alone, and
	// how long the host is where no log could be.
	keepPatience = time.Hour
)

// startKeeper starts the keeper, where something bounds what is kept.
func (m *Manager) startKeeper() {
	if m.cfg.Retention == (Retention{}) {
		return
	}
	ctx, stop := context.WithCancel(m.io)
	k := &keeper{
		m: m, r: m.cfg.Retention, stop: stop, wake: make(chan struct{}, 1),
		ended: map[frames.SessionID]struct{}{}, logs: map[frames.SessionID]*kept{},
	}
	m.keeper = k
	m.wg.Go(func() { k.run(ctx) })
}

// turnEnded has the keeper look at a session soon. It never blocks. A nil keeper
// does nothing.
func (k *keeper) turnEnded(sid frames.SessionID) {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.ended[sid] = struct{}{}
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// end stops the keeper; the manager waits for it.
func (k *keeper) end() {
	if k != nil {
		k.stop()
	}
}

func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(min(max(k.r.MaxAge/20, minRound), maxRound))
	defer tick.Stop()
	k.round(ctx, k.m.allIDs())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.forget()
			k.round(ctx, k.m.allIDs())
		case <-k.wake:
			k.mu.Lock()
			ended := slices.Sorted(maps.Keys(k.ended))
			clear(k.ended)
			k.mu.Unlock()
			k.round(ctx, ended)
		}
	}
}

// allIDs returns every session, oldest first.
func (m *Manager) allIDs() []frames.SessionID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return ids(m.dir.order)
}

// round looks at sessions, and then at all of them together.
func (k *keeper) round(ctx context.Context, sids []frames.SessionID) {
	for _, sid := range sids {
		if ctx.Err() != nil {
			return
		}
		k.visit(ctx, sid)
	}
	k.shrink(ctx)
}

// forget lets go of logs that were deleted.
func (k *keeper) forget() {
	for sid, l := range k.logs {
		if _, ok := k.m.logSpan(sid); !ok {
			k.bytes -= l.bytes
			delete(k.logs, sid)
		}
	}
}

// logSpan is what a log spans, as the manager knows it.
type logSpan struct {
	first, head      frames.Seq
	created, updated time.Time
	grown            int64
}

func (s logSpan) events() int64 { return int64(s.head - s.first + 1) }

func (m *Manager) logSpan(sid frames.SessionID) (logSpan, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.dir.byID[sid]
	if e == nil {
		return logSpan{}, false
	}
	return logSpan{max(e.first, 1), e.sum.Head, e.sum.CreatedAt.Time, e.sum.UpdatedAt.Time, e.grown}, true
}

// visit trims one session to its own bounds.
func (k *keeper) visit(ctx context.Context, sid frames.SessionID) {
	s, ok := k.m.logSpan(sid)
	if !ok || s.head == 0 {
		return
	}
	l := k.logs[sid]
	if l == nil {
		l = &kept{}
		k.logs[sid] = l
	}
	if err := k.measure(ctx, sid, s, l); err != nil {
		k.failed(sid, err)
		return
	}
	g := goal{events: math.MaxInt64, bytes: math.MaxInt64}
	due := false
	if over(s.events(), k.r.MaxEvents) {
		g.events, due = k.r.MaxEvents, true
	}
	if over(l.bytes, k.r.MaxBytes) {
		g.bytes, due = k.r.MaxBytes, true
	}
	if k.r.MaxAge > 0 && over(int64(time.Since(l.oldest)), int64(k.r.MaxAge)) {
		g.before, due = time.Now().Add(-k.r.MaxAge), true
	}
	if due {
		k.trim(ctx, sid, s, l, g)
	}
}

// over reports whether n is so far over bound that a trim is worth it; 0 bounds
// nothing.
func over(n, bound int64) bool { return bound > 0 && n-bound > bound/10 }

// measure brings l up to date. It reads the log once in the host's life, where
// bytes are bounded, and one event after each trim, where the age is.
func (k *keeper) measure(ctx context.Context, sid frames.SessionID, s logSpan, l *kept) error {
	if k.r.MaxBytes > 0 || k.r.MaxTotalBytes > 0 {
		n := l.bytes + s.grown - l.grown
		if !l.measured {
			var err error
			if n, err = k.m.cfg.Store.Size(ctx, sid); err != nil {
				return err
			}
			l.measured = true
		}
		k.weigh(l, n)
		l.grown = s.grown
	}
	if k.r.MaxAge == 0 || l.first == s.first {
		return nil
	}
	if s.first == 1 {
		l.first, l.oldest = 1, s.created
		return nil
	}
	evs, err := k.m.cfg.Store.Read(ctx, sid, s.first-1, 1, 0)
	if err == nil && len(evs) > 0 {
		l.first, l.oldest = s.first, evs[0].Time
	}
	return err
}

// weigh notes how large a log is.
func (k *keeper) weigh(l *kept, n int64) {
	k.bytes += n - l.bytes
	l.bytes = n
}

// trim cuts one log, and returns how many bytes that dropped. A log that cannot be
// cut is left alone until it has grown, or time has passed that may help.
func (k *keeper) trim(ctx context.Context, sid frames.SessionID, s logSpan, l *kept, g goal) int64 {
	if s.head == l.stuck || s.head < l.retry && time.Now().Before(l.until) {
		return 0
	}
	l.until, l.retry = time.Now().Add(keepPatience), s.head+frames.Seq(s.events()/10)+1
	c, err := k.m.findCut(ctx, sid, s, l.bytes, g)
	if err == nil && c.seq > 0 {
		err = k.m.trimTo(ctx, sid, c)
	}
	if err != nil {
		k.failed(sid, err)
		return 0
	}
	if c.seq == 0 {
		if c.never {
			l.stuck = s.head
		}
		return 0
	}
	l.retry = 0
	if l.measured {
		k.weigh(l, l.bytes-c.bytes)
	}
	k.m.log.Debug("a log was trimmed", "session", string(sid), "first", uint64(c.seq)+1, "events", c.events, "bytes", c.bytes)
	return c.bytes
}

// failed tells why a log was not trimmed, where a person can do something about it.
func (k *keeper) failed(sid frames.SessionID, err error) {
	level := slog.LevelWarn
	if errors.Is(err, context.Canceled) || errors.Is(err, store.ErrDeleted) || errors.Is(err, errNotWorth) {
		level = slog.LevelDebug
	}
	k.m.log.Log(k.m.io, level, "a log could not be trimmed", "session", string(sid), "error", err)
}

// shrink trims what was used least recently until all logs together are within
// their bound. Until they are over it, it looks at none.
func (k *keeper) shrink(ctx context.Context) {
	if !over(k.bytes, k.r.MaxTotalBytes) || time.Since(k.shrunk) < keepPatience {
		return
	}
	if k.forget(); !over(k.bytes, k.r.MaxTotalBytes) {
		return
	}
	for _, sid := range k.leastRecent() {
		excess := k.bytes - k.r.MaxTotalBytes
		if excess <= 0 || ctx.Err() != nil {
			return
		}
		if s, ok := k.m.logSpan(sid); ok {
			l := k.logs[sid]
			k.trim(ctx, sid, s, l, goal{events: math.MaxInt64, bytes: max(l.bytes-excess, 0)})
		}
	}
	if over(k.bytes, k.r.MaxTotalBytes) {
		k.shrunk = time.Now()
	}
}

// leastRecent returns the measured sessions, those first that changed least
// recently.
func (k *keeper) leastRecent() []frames.SessionID {
	updated := make(map[frames.SessionID]time.Time, len(k.logs))
	for sid := range k.logs {
		if s, ok := k.m.logSpan(sid); ok {
			updated[sid] = s.updated
		}
	}
	return slices.SortedFunc(maps.Keys(updated), func(a, b frames.SessionID) int { return updated[a].Compare(updated[b]) })
}
