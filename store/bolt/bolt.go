// Package bolt is the store on one disk: a bbolt database that one process owns.
//
// One goroutine writes. It takes everything that waits, commits it as one
// transaction, and answers when that is durable; nothing waits for a timer. The
// events of a commit, of all sessions, are one value in the bucket "commits"; an
// index in memory says where each lies, and is rebuilt on open. When this tail
// is over its bound, each commit also folds a share of it into the bucket
// "chunks": up to 64 events or 16 KiB of one session per value. Rows are written
// directly, a bucket per table. The bucket "heads" has what is known of a log
// without its tail.
//
// Of the layouts measured, this one is nearest to a plain file with one sync per
// group (BenchmarkAppend, 300-byte events, a busy machine): 0.5 of its rate with
// 1 session, about 0.5 with 64, 0.3 to 0.5 with 1000. A key per event had 0.2 with
// 64 sessions and less than 0.1 with 1000; a large commit beside others on a page,
// 0.4 and 0.38. Two syncs per commit, bbolt's own, are what is left.
//
// Every record, head, row and commit carries a CRC32C; damage is [store.ErrCorrupt],
// never wrong bytes. A panic or a fault inside bbolt makes the store read-only, and
// so does a commit whose last sync failed: what it wrote is in doubt until the
// store is opened again. All other failed commits changed nothing.
//
// Beside the database PATH lie PATH.lock (who has it open), PATH.id (which database
// belongs here), so that an empty or foreign file is refused instead of being taken
// for a new one, and PATH.last (its last commit). A database whose last commits are
// lost, or may be, opens with new epochs; see [Store.Replaced].
package bolt

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// Options of [Open]. The zero value is the default.
type Options struct {
	// InitialMmapSize is how many bytes of address space are mapped at once;
	// 0 means 256 MiB, or twice the file if that is more. While the file is smaller,
	// readers never delay a writer.
	InitialMmapSize int
	// MaxSize bounds the file, in bytes; beyond it writes get [store.ErrFull].
	// 0 means no bound.
	MaxSize int
	// OpenFile opens the database file; nil means [os.OpenFile].
	OpenFile func(name string, flag int, perm os.FileMode) (*os.File, error)
	// NewEpochs gives every log a new epoch: for a database that takes another
	// one's place.
	NewEpochs bool

	hooks  hooks
	bounds bounds
}

// hooks are what tests of this package replace.
type hooks struct {
	opened func(*bbolt.DB)         // called before the first transaction
	commit func(*bbolt.Tx) error   // commits a group
	step   func(name string) error // between the steps of a first opening
}

// bounds of the tail; see fold.
type bounds struct{ events, bytes, commits int }

// Store is an open database. It implements [store.Store].
type Store struct {
	db     *bbolt.DB
	lock   *lockFile
	state  *state
	notify store.Notifier
	hooks  hooks
	bounds bounds

	last     *lastMark
	replaced string // see Replaced

	queue   chan *request
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed when the writer has ended
	wg      sync.WaitGroup
	crowded bool // the last commit found no space: do not fold; the writer's own

	closed   atomic.Bool
	wedged   atomic.Bool // a transaction could not be rolled back
	readOnly atomic.Bool // cause is set

	mu     sync.Mutex // guards below
	cause  error
	doubts map[frames.SessionID]error

	closing  sync.Once
	closeErr error
}

var _ store.Snapshotter = (*Store)(nil)

// ReadOnlyError is what every write gets after a failure that writing on would
// make worse. Reads go on. Start again to leave the state.
type ReadOnlyError struct{ Cause error }

func (e *ReadOnlyError) Error() string { return "bolt: the store is read-only: " + e.Cause.Error() }

func (e *ReadOnlyError) Unwrap() error { return e.Cause }

// fail makes the store read-only; the first cause is kept.
func (s *Store) fail(cause error) {
	s.mu.Lock()
	if s.cause == nil {
		s.cause = &ReadOnlyError{Cause: cause}
	}
	s.mu.Unlock()
	s.readOnly.Store(true)
	s.state.wake()
}

// failed returns nil while the store may be written.
func (s *Store) failed() error {
	if !s.readOnly.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// mark puts sessions in doubt.
func (s *Store) mark(sids []frames.SessionID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sid := range sids {
		s.doubts[sid] = err
	}
}

// doubt returns why a session's head is not known, if so.
func (s *Store) doubt(sid frames.SessionID) error {
	if !s.readOnly.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubts[sid]
}

// Close implements [store.Store]. It waits for the commit under way; what still
// waits for its turn gets [store.ErrClosed].
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeErr = s.shut() })
	return s.closeErr
}

func (s *Store) shut() error {
	close(s.stop)
	s.wg.Wait()
	s.closed.Store(true)
	s.notify.ChangedAll()
	var err error
	if !s.wedged.Load() { // else bbolt would wait for ever
		err = s.db.Close()
	}
	return errors.Join(err, s.last.close(), s.lock.release())
}

// start starts the writer.
func (s *Store) start() {
	s.queue = make(chan *request, queueLen)
	s.stop, s.stopped = make(chan struct{}), make(chan struct{})
	s.doubts = map[frames.SessionID]error{}
	s.wg.Go(s.writer)
}

// ID returns the identity of the database, minted when it was created.
func (s *Store) ID(ctx context.Context) (string, error) {
	var m meta
	err := s.view(ctx, func(tx *bbolt.Tx) (err error) {
		m, err = readMeta(tx)
		return err
	})
	return m.id, err
}
