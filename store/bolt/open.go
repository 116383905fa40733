package bolt

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// format is the version of the layout that this package writes.
const format = 1

const lockTimeout = time.Second

// DamagedError says that the files at Path are not what they should be. It
// wraps [store.ErrCorrupt].
type DamagedError struct {
	Path   string
	Reason string // what is wrong
	Advice string // what to do
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("bolt: the database %s cannot be used: %s. %s", e.Path, e.Reason, e.Advice)
}
func (e *DamagedError) Unwrap() error { return store.ErrCorrupt }

// LockedError says that another process has the database open.
type LockedError struct {
	PID   int // 0 if unknown
	Path  string
	Since string // when that process opened it
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("bolt: %s is in use by process %d (since %s); stop that process, or use another directory", e.Path, e.PID, e.Since)
}

const adviceRestore = "Restore it from a backup; to start empty instead, move the file and its .id file away"

// Open opens the database at path, whose directory exists, and creates it if
// neither it nor its marker is there. It returns within two seconds if another
// process has it open: [*LockedError]. Other errors: [*DamagedError].
func Open(path string, opts Options) (*Store, error) {
	lock, err := acquire(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Store{lock: lock, state: newState(), hooks: opts.hooks, bounds: opts.bounds}
	if s.hooks.commit == nil {
		s.hooks.commit = (*bbolt.Tx).Commit
	}
	if s.bounds == (bounds{}) {
		s.bounds = bounds{tailEvents, tailBytes, tailCommits}
	}
	if err := s.open(path, opts); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	s.start()
	return s, nil
}

// open prepares the files, opens the database and loads the state.
func (s *Store) open(path string, opts Options) error {
	m, err := prepare(path, opts)
	if err != nil {
		return err
	}
	why, err := suspect(path, opts)
	if err != nil {
		return err
	}
	s.db, err = openDB(path, opts)
	if err != nil {
		return err
	}
	err = guard(path, func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			if m, err = checkMeta(path, tx, m); err != nil {
				return err
			}
			return s.state.load(tx)
		})
	})
	if err == nil {
		err = guard(path, func() error { return s.settle(path, m, why, opts.NewEpochs) })
	}
	if err != nil {
		return errors.Join(asDamaged(path, err), s.db.Close())
	}
	return nil
}

// settle compares the database with the mark of its last commit, gives the logs new
// epochs if commits may be missing, and writes marker and mark. why is what speaks
// for a loss already.
func (s *Store) settle(path string, m meta, why string, asked bool) error {
	last, txid, err := openLast(path, m.id)
	if err != nil {
		return err
	}
	if have := uint64(s.state.txid); txid > have {
		why = fmt.Sprintf("its last commit is %d, though %s.last says that %d was acknowledged", have, path, txid)
	}
	if why == "" && asked {
		why = "it was asked for"
	}
	if why != "" {
		if err := s.renewEpochs(); err != nil {
			return errors.Join(err, last.f.Close())
		}
	}
	s.replaced, s.last = why, last
	last.set(s.state.txid)
	if err := errors.Join(last.sync(), writeMarker(path, m)); err != nil {
		return errors.Join(err, last.f.Close())
	}
	return nil
}

// guard runs fn; a panic or a memory fault in it is a [*DamagedError].
func guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &DamagedError{path, fmt.Sprintf("reading it panicked: %v", p), adviceRestore}
		}
	}()
	return fn()
}

// asDamaged turns corruption found while opening into a [*DamagedError].
func asDamaged(path string, err error) error {
	if _, ok := errors.AsType[*DamagedError](err); ok || !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	return &DamagedError{path, err.Error(), adviceRestore}
}

// openDB opens an existing file with bbolt.
func openDB(path string, opts Options) (db *bbolt.DB, err error) {
	bo := &bbolt.Options{
		Timeout:         lockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: opts.InitialMmapSize,
		MaxSize:         opts.MaxSize,
		NoStatistics:    true,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			return openPrivate(opts.OpenFile, name, flag&^os.O_CREATE, perm)
		},
	}
	if bo.InitialMmapSize == 0 {
		bo.InitialMmapSize = mmapSize(path)
	}
	err = guard(path, func() error {
		db, err = bbolt.Open(path, 0o600, bo)
		return err
	})
	if _, ok := errors.AsType[*DamagedError](err); ok {
		return nil, err
	}
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, berrors.ErrTimeout) || errors.Is(err, errPrivate) {
			return nil, fmt.Errorf("bolt: open %s: %w", path, err)
		}
		return nil, &DamagedError{path, err.Error(), adviceRestore}
	}
	if opts.hooks.opened != nil {
		opts.hooks.opened(db)
	}
	return db, nil
}

// mmapSize is how much of a file is mapped at once: room to double, because growing
// the map waits for readers, and a backup is a long one. Where mapping more than the
// file enlarges it, or address space is short, it is 256 MiB.
func mmapSize(path string) int {
	const least = 256 << 20
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" || strconv.IntSize < 64 {
		return least
	}
	return max(least, int(2*info.Size()))
}

// meta identifies a database; the marker and the bucket "meta" both hold it.
type meta struct {
	id     string
	format int
}

// prepare makes sure that there is a database file that belongs to the marker,
// and creates both if neither is there. Killed at any point, it leaves something
// that the next call handles: the database appears under its name only when it
// is complete, and the marker only after it.
func prepare(path string, opts Options) (meta, error) {
	m, marked, err := readMarker(path)
	if err != nil {
		return meta{}, err
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return meta{}, fmt.Errorf("bolt: %w", err)
	case err == nil && !info.Mode().IsRegular():
		return meta{}, fmt.Errorf("bolt: %s is not a regular file (%v); name the database file itself", path, info.Mode().Type())
	case err == nil && info.Size() > 0:
		return m, nil
	case marked:
		what := "is missing"
		if err == nil {
			what = "is empty"
		}
		return meta{}, &DamagedError{path, fmt.Sprintf("the file %s, though %s.id says that database %s belongs here", what, path, m.id), adviceRestore}
	}
	return create(path, opts)
}

// create makes a new database under another name and moves it to its place.
func create(path string, opts Options) (meta, error) {
	tmp := path + ".new"
	step := func(string) error { return nil }
	if opts.hooks.step != nil {
		step = opts.hooks.step
	}
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return meta{}, fmt.Errorf("bolt: remove what an earlier first start left: %w", err)
	}
	f, err := openPrivate(nil, tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return meta{}, fmt.Errorf("bolt: create: %w", err)
	}
	if err := errors.Join(f.Close(), step("created")); err != nil {
		return meta{}, err
	}
	m := meta{id: rand.Text(), format: format}
	db, err := bbolt.Open(tmp, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return meta{}, fmt.Errorf("bolt: create %s: %w", tmp, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return initialise(tx, m) })
	if err := errors.Join(err, db.Close(), step("initialised")); err != nil {
		return meta{}, fmt.Errorf("bolt: create %s: %w", tmp, err)
	}
	if err := errors.Join(os.Rename(tmp, path), syncParent(path), step("renamed")); err != nil {
		return meta{}, fmt.Errorf("bolt: create: %w", err)
	}
	return m, nil
}

// initialise writes the buckets of an empty database.
func initialise(tx *bbolt.Tx, m meta) error {
	for _, name := range [][]byte{bucketMeta, bucketCommits, bucketChunks, bucketHeads} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	b := tx.Bucket(bucketMeta)
	return errors.Join(
		b.Put([]byte("id"), seal("meta/id", []byte(m.id))),
		b.Put([]byte("format"), seal("meta/format", []byte(strconv.Itoa(m.format)))),
	)
}

// readMeta reads the bucket "meta". A database without one is not ours.
func readMeta(tx *bbolt.Tx) (meta, error) {
	b := tx.Bucket(bucketMeta)
	if b == nil {
		return meta{}, corrupt("the file is a database, but not one of muxhost")
	}
	id, err := unseal("meta/id", b.Get([]byte("id")))
	if err != nil {
		return meta{}, err
	}
	text, err := unseal("meta/format", b.Get([]byte("format")))
	if err != nil {
		return meta{}, err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return meta{}, corrupt("the format %q is not a number", text)
	}
	return meta{id: string(id), format: n}, nil
}

// checkMeta compares the database with its marker, which may be zero, and
// refuses formats that this version does not know. It returns what the database
// says.
func checkMeta(path string, tx *bbolt.Tx, m meta) (meta, error) {
	got, err := readMeta(tx)
	if err != nil {
		return meta{}, err
	}
	switch {
	case got.format != format:
		return meta{}, &DamagedError{path, fmt.Sprintf("its format is %d, and this version of muxhost knows %d", got.format, format), "Use the version of muxhost that wrote it, or a newer one"}
	case m.id != "" && m.id != got.id:
		return meta{}, &DamagedError{path, fmt.Sprintf("it is database %s, though %s.id says that %s belongs here", got.id, path, m.id), "Put the right file back; if this one was put here on purpose, remove the .id file"}
	}
	for _, name := range [][]byte{bucketCommits, bucketChunks, bucketHeads} {
		if tx.Bucket(name) == nil {
			return meta{}, corrupt("the bucket %q is missing", name)
		}
	}
	return got, nil
}

// readMarker reads PATH.id; marked is false if there is none.
func readMarker(path string) (m meta, marked bool, err error) {
	name := path + ".id"
	f, err := openPrivate(nil, name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return meta{}, false, nil
	}
	if err != nil {
		return meta{}, false, fmt.Errorf("bolt: the marker: %w", err)
	}
	buf := make([]byte, 256)
	n, _ := f.Read(buf)
	if err := f.Close(); err != nil {
		return meta{}, false, fmt.Errorf("bolt: the marker: %w", err)
	}
	fields := strings.Fields(string(buf[:n]))
	if len(fields) == 3 && fields[0] == "muxhost" {
		if v, err := strconv.Atoi(fields[2]); err == nil {
			return meta{fields[1], v}, true, nil
		}
	}
	return meta{}, false, &DamagedError{path, fmt.Sprintf("the marker %s does not parse", name), "If the database is the right one, remove the marker; it is written anew"}
}

// writeMarker writes PATH.id, if it is not there: in another file first, synced
// and then renamed, so that it is never half.
func writeMarker(path string, m meta) error {
	if _, marked, err := readMarker(path); marked || err != nil {
		return err
	}
	tmp := path + ".id.new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bolt: the marker: %w", err)
	}
	f, err := openPrivate(nil, tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("bolt: the marker: %w", err)
	}
	_, err = fmt.Fprintf(f, "muxhost %s %d\n", m.id, m.format)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = errors.Join(os.Rename(tmp, path+".id"), syncParent(path))
	}
	if err != nil {
		return fmt.Errorf("bolt: the marker: %w", err)
	}
	return nil
}

// errPrivate says that a file is open to others than its owner.
var errPrivate = errors.New("not private")

// openPrivate opens a file without following a link at its end, and refuses one
// that is not regular, belongs to another user, or is open to others.
func openPrivate(open func(string, int, os.FileMode) (*os.File, error), name string, flag int, perm os.FileMode) (*os.File, error) {
	if open == nil {
		open = os.OpenFile
	}
	f, err := open(name, flag|noFollow, perm)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = private(name, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// syncParent makes the names in the directory of path durable.
func syncParent(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
