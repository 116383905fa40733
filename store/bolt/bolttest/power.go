// Package bolttest takes the power from a real database: it notes what every
// write replaces, and forgets that when the database syncs, so that after the
// process was killed the writes that a disk need not have kept can be undone.
//
// It reaches into the store and into bbolt by reflection, so that the product has
// no seam for it. It does not see the system call fdatasync: it takes it that
// bbolt syncs where its source says so (before and after the meta page, and when
// the file grows), if it is told to sync. Tests only.
package bolttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/muxhost/muxhost/store/bolt"
)

// Sector is what a disk writes whole or not at all, in bytes.
const Sector = 512

const (
	metaPages  = 2
	recordHead = 12 // offset and length of what follows
)

// disk notes in the journal what the writes since the last sync replaced.
type disk struct {
	db    *bbolt.DB
	write func([]byte, int64) (int, error)

	mu      sync.Mutex // guards journal
	journal *os.File
}

// Attach notes every write of s from now on in the file journal, which it makes
// anew. s was just opened and has not been written to. With noSync the database
// is told never to sync, so that everything from now on can be lost: that is how
// a test shows that it would notice.
func Attach(s *bolt.Store, journal string, noSync bool) error {
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("bolttest: the journal: %w", err)
	}
	store := reflect.ValueOf(s).Elem()
	d := &disk{journal: f, db: *(**bbolt.DB)(unsafe.Pointer(store.FieldByName("db").UnsafeAddr()))}
	d.db.NoSync = noSync
	commit := (*func(*bbolt.Tx) error)(unsafe.Pointer(store.FieldByName("hooks").FieldByName("commit").UnsafeAddr()))
	*commit = d.commit
	field := reflect.ValueOf(d.db).Elem().FieldByName("ops").FieldByName("writeAt")
	write := (*func([]byte, int64) (int, error))(unsafe.Pointer(field.UnsafeAddr()))
	d.write, *write = *write, d.writeAt
	return nil
}

// writeAt is what bbolt writes with. Nothing reaches the file before the journal
// says what was there.
func (d *disk) writeAt(b []byte, off int64) (int, error) {
	if off < int64(metaPages*d.db.Info().PageSize) {
		if err := d.synced(); err != nil { // bbolt syncs the data before it writes a meta page
			return 0, err
		}
	}
	if err := d.note(len(b), off); err != nil {
		return 0, err
	}
	return d.write(b, off)
}

// note adds what the n bytes at off hold now; what lies beyond the end is zero.
func (d *disk) note(n int, off int64) error {
	rec := make([]byte, recordHead+n)
	binary.BigEndian.PutUint64(rec, uint64(off))
	binary.BigEndian.PutUint32(rec[8:], uint32(n))
	f, err := os.Open(d.db.Path())
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(rec[recordHead:], off); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.journal.Write(rec)
	return err
}

// synced forgets what can no longer be lost.
func (d *disk) synced() error {
	if d.db.NoSync {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.journal.Truncate(0)
}

// commit commits as the store does; bbolt has synced the meta page then.
func (d *disk) commit(tx *bbolt.Tx) error {
	if err := tx.Commit(); err != nil {
		return err
	}
	return d.synced()
}

// Lose makes of the database at path, whose process is dead, what a loss of power
// could have left: each sector that was written since the last sync holds, by
// chance, what one of those writes put there or what was there before. With all,
// nothing of them is left. It returns how many sectors changed; without a journal,
// none.
func Lose(path, journal string, all bool, rnd *rand.Rand) (int, error) {
	were, err := replaced(journal)
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("bolttest: %w", err)
	}
	lost, keep := 0, rnd.IntN(5) // of four sectors
	if all {
		keep = 0
	}
	for _, off := range slices.Sorted(maps.Keys(were)) {
		if rnd.IntN(4) < keep {
			continue
		}
		versions := were[off]
		i := rnd.IntN(len(versions))
		if all {
			i = 0
		}
		if _, err := f.WriteAt(versions[i], off); err != nil {
			return lost, errors.Join(err, f.Close())
		}
		lost++
	}
	return lost, f.Close()
}

// replaced reads a journal: for each sector what it held before each write. A
// record that was cut by the end of the process had no write.
func replaced(journal string) (map[int64][][]byte, error) {
	b, err := os.ReadFile(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bolttest: the journal: %w", err)
	}
	were := map[int64][][]byte{}
	for len(b) >= recordHead {
		off, n := int64(binary.BigEndian.Uint64(b)), int(binary.BigEndian.Uint32(b[8:]))
		if len(b) < recordHead+n {
			break
		}
		for at := 0; at < n; at += Sector {
			sector := b[recordHead+at : recordHead+min(at+Sector, n)]
			were[off+int64(at)] = append(were[off+int64(at)], sector)
		}
		b = b[recordHead+n:]
	}
	return were, nil
}
