package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Finding is one thing that is wrong with a database.
type Finding struct {
	Session frames.SessionID // whose log or row it is about, "" if none's
	What    string
}

// Visit is what [Examine] calls as it goes; nil functions are left out. What they
// are given is theirs only during the call.
type Visit struct {
	// Finding gets what is wrong, at most 1000 of it.
	Finding func(Finding)
	// Log gets each log that is not deleted, after its events.
	Log func(frames.SessionID, store.Head)
	// Event gets each kept event of a log that is whole, in the order of that log:
	// of all logs what is in chunks, then of all what is not.
	Event func(frames.SessionID, store.Event)
	Row   func(store.Row)
}

// maxFindings bounds what is told of one database.
const maxFindings = 1000

// errEnough ends an examination that has found enough.
var errEnough = errors.New("bolt: too many findings")

// Check opens the database at path read-only, while no process has it open, and
// verifies all of it: its pages, every checksum, that each log has its events
// without a gap, and that nothing lies around that no head knows of. What is wrong
// is a [*DamagedError] that names the first thing found; a file that cannot be
// opened, or is in use, is another error.
func Check(path string) error {
	var bad *DamagedError
	err := Examine(context.Background(), path, Visit{Finding: func(f Finding) {
		if bad == nil {
			bad = &DamagedError{path, f.String(), adviceRestore}
		}
	}})
	if bad != nil {
		return bad
	}
	return err
}

func (f Finding) String() string {
	if f.Session == "" {
		return f.What
	}
	return fmt.Sprintf("session %q: %s", f.Session, f.What)
}

// Examine is [Check] that goes on after a finding as far as it can, and shows what
// it sees. It takes one pass over the file and keeps a bit per page and a few words
// per log in memory, however damaged the file is. Where the pages are no tree it
// tells only that. The error says that the database could not be examined: it is
// in use, is not there, is open to others, or ctx ended; damage is no error.
func Examine(ctx context.Context, path string, v Visit) error {
	x := &examiner{ctx: ctx, visit: v, logs: map[frames.SessionID]*examined{}}
	err := guard(path, func() error { return x.run(path) })
	if e, ok := errors.AsType[*DamagedError](err); ok {
		x.found("", "%s", e.Reason)
		return nil
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// run opens the database read-only and examines it.
func (x *examiner) run(path string) (err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		ReadOnly: true, Timeout: lockTimeout,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			return openPrivate(nil, name, flag, perm)
		},
	})
	if errors.Is(err, berrors.ErrTimeout) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errPrivate) {
		return fmt.Errorf("bolt: check %s: %w", path, err)
	}
	if err != nil {
		return &DamagedError{path, err.Error(), adviceRestore}
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if whole, err := x.pages(path); err != nil || !whole {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		m, err := checkMeta(path, tx, meta{})
		if err != nil {
			return asDamaged(path, err)
		}
		x.compareMark(path, m, uint64(tx.ID()))
		for _, step := range []func(*bbolt.Tx) error{x.heads, x.chunks, x.commits, x.ends, x.rows} {
			if err := step(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// pages checks the graph of pages; whole says whether it can be walked.
func (x *examiner) pages(path string) (whole bool, err error) {
	f, err := openPrivate(nil, path, os.O_RDONLY, 0)
	if err != nil {
		return false, fmt.Errorf("bolt: check %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("bolt: check %s: %w", path, err)
	}
	whole = true
	if why := behind(readMetas(f)); why != "" {
		x.found("", "%s", why)
	}
	checkPages(f, info.Size(), func(what string) {
		whole = false
		x.found("", "its pages: %s", what)
	})
	return whole, nil
}

// compareMark compares the database with the mark of its last commit, if there is
// one.
func (x *examiner) compareMark(path string, m meta, txid uint64) {
	b, err := os.ReadFile(path + ".last")
	if err != nil {
		return // a copy has none
	}
	if last := parseLast(string(b), m.id); last > txid {
		x.found("", "its last commit is %d, though %d was acknowledged: the last commits are lost", txid, last)
	}
}
