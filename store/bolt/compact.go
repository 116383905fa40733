package bolt

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// Lock is the right to use the database at a path while nobody has it open.
type Lock struct{ f *lockFile }

// Acquire takes the lock of the database at path, which need not exist; its
// directory does. It is what [Open] takes: [*LockedError] if somebody has it.
func Acquire(path string) (*Lock, error) {
	f, err := acquire(path + ".lock")
	if err != nil {
		return nil, err
	}
	return &Lock{f}, nil
}

// Release gives the lock back.
func (l *Lock) Release() error { return l.f.release() }

// compactBytes is how much one transaction of a compaction copies.
const compactBytes = 4 << 20

// Compact writes the database at from into a new file to, without the space that
// from no longer uses; seen, if not nil, sees all of from. The copy is synced, and
// checked: it holds every log and row that from holds. A database with a finding is
// not compacted ([*DamagedError]). The caller holds the lock of from. When Compact
// fails it leaves no file to.
func Compact(ctx context.Context, from, to string, seen Visit) error {
	before, err := digest(ctx, from, seen)
	if err == nil {
		err = compact(ctx, from, to)
	}
	if err != nil {
		return err
	}
	after, err := digest(ctx, to, Visit{})
	if err == nil && before != after {
		err = fmt.Errorf("bolt: compact %s: the copy differs from it; the database is unchanged", from)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}

// compact copies a database.
func compact(ctx context.Context, from, to string) (err error) {
	f, err := openPrivate(nil, to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("bolt: compact: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(to))
		}
	}()
	if err := f.Close(); err != nil {
		return fmt.Errorf("bolt: compact: %w", err)
	}
	src, err := bbolt.Open(from, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return fmt.Errorf("bolt: compact: open %s: %w", from, err)
	}
	dst, err := bbolt.Open(to, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, NoSync: true})
	if err != nil {
		return errors.Join(fmt.Errorf("bolt: compact: open %s: %w", to, err), src.Close())
	}
	err = guard(from, func() error {
		if err := store.Cancelled(ctx); err != nil {
			return err
		}
		return bbolt.Compact(dst, src, compactBytes)
	})
	if err = errors.Join(err, dst.Sync(), dst.Close(), src.Close()); err != nil {
		return fmt.Errorf("bolt: compact %s: %w", from, err)
	}
	return syncParent(to)
}

// Replace puts the database file at from in the place of the one at to, if there is
// one, by one renaming: whenever the process is killed, one of them is there, and
// whole. The caller holds the lock of to, and both lie in one file system.
func Replace(from, to string) error {
	if info, err := os.Lstat(to); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("bolt: %s is not a regular file (%v)", to, info.Mode().Type())
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bolt: %w", err)
	}
	if err := Forget(to); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(from, to), syncParent(to)); err != nil {
		return fmt.Errorf("bolt: put %s in place: %w", to, err)
	}
	return nil
}

// digest sums up all that a database holds, while seen sees it. Whatever is wrong
// with it is an error.
func digest(ctx context.Context, path string, seen Visit) ([sha256.Size]byte, error) {
	var sums [3]hash.Hash // of events, rows, and logs
	for i := range sums {
		sums[i] = sha256.New()
	}
	logs := map[frames.SessionID]store.Head{}
	var bad error
	err := Examine(ctx, path, Visit{
		Finding: func(f Finding) {
			if bad == nil {
				bad = &DamagedError{path, f.String(), adviceRestore}
			}
		},
		Log: func(sid frames.SessionID, h store.Head) {
			if logs[sid] = h; seen.Log != nil {
				seen.Log(sid, h)
			}
		},
		Event: func(sid frames.SessionID, e store.Event) {
			add(sums[0], []byte(sid), []byte(e.ID), []byte(e.Type), e.Data, binary.BigEndian.AppendUint64(nil, uint64(e.Seq)))
			if seen.Event != nil {
				seen.Event(sid, e)
			}
		},
		Row: func(r store.Row) {
			if add(sums[1], []byte(r.Table), []byte(r.Key), r.Value); seen.Row != nil {
				seen.Row(r)
			}
		},
	})
	var out [sha256.Size]byte
	if err := errors.Join(bad, err); err != nil {
		return out, err
	}
	for _, sid := range slices.Sorted(maps.Keys(logs)) {
		add(sums[2], []byte(sid), fmt.Appendf(nil, "%+v", logs[sid]))
	}
	all := sha256.New()
	for _, s := range sums {
		all.Write(s.Sum(nil))
	}
	return [sha256.Size]byte(all.Sum(out[:0])), nil
}

// add writes parts to h so that their bounds count.
func add(h hash.Hash, parts ...[]byte) {
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
}
