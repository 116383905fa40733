package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Check opens the database at path read-only, while no process has it open, and
// verifies all of it: bbolt's pages, every checksum, that each log has its
// events without a gap, and that nothing lies around that no head knows of. What
// is wrong is a [*DamagedError] that names the first thing found; a file that
// cannot be opened, or is in use, is another error.
func Check(path string) error {
	return guard(path, func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{
			ReadOnly: true, Timeout: lockTimeout, PreLoadFreelist: true,
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
		err = db.View(func(tx *bbolt.Tx) error { return checkTx(path, tx) })
		return errors.Join(asDamaged(path, err), db.Close())
	})
}

func checkTx(path string, tx *bbolt.Tx) error {
	var pages []error
	for err := range tx.Check() {
		pages = append(pages, err)
	}
	if err := errors.Join(pages...); err != nil {
		return corrupt("its pages: %v", err)
	}
	if _, err := checkMeta(path, tx, meta{}); err != nil {
		return err
	}
	st := newState()
	if err := st.load(tx); err != nil {
		return err
	}
	if i := slices.IndexFunc(st.commits, func(c commit) bool { return c.live == 0 }); i >= 0 {
		return corrupt("commit %d has no live record, but was kept", st.commits[i].no)
	}
	if err := checkChunks(tx, st); err != nil {
		return err
	}
	return checkRows(tx)
}

// checkChunks walks all chunks and compares them with the heads.
func checkChunks(tx *bbolt.Tx, st *state) error {
	next := map[frames.SessionID]frames.Seq{} // what should follow
	c := tx.Bucket(bucketChunks).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if len(k) < 10 || k[len(k)-9] != 0 {
			return corrupt("the chunk key %q does not parse", k)
		}
		sid := frames.SessionID(k[:len(k)-9])
		first := frames.Seq(binary.BigEndian.Uint64(k[len(k)-8:]))
		l, known := st.logs[sid]
		if want, begun := next[sid]; !known || begun && first != want || !begun && first > l.head.First {
			return corrupt("session %q: a chunk begins at %d; first is %d, after the chunk before is %d", sid, first, l.head.First, want)
		}
		last, err := checkChunk(sid, first, v)
		if err != nil {
			return err
		}
		if last > l.folded || last < l.head.First {
			return corrupt("session %q: a chunk holds %d … %d; first is %d, folded is %d", sid, first, last, l.head.First, l.folded)
		}
		next[sid] = last + 1
	}
	return checkReach(st, next)
}

// checkReach checks that chunks and tail of each log meet.
func checkReach(st *state, next map[frames.SessionID]frames.Seq) error {
	for sid, l := range st.logs {
		reach := max(next[sid], l.head.First) // the first seq that chunks lack
		if !l.head.Deleted && l.head.Seq > 0 && reach != l.tailFirst() {
			return corrupt("session %q: chunks end before %d, the tail begins at %d", sid, reach, l.tailFirst())
		}
	}
	return nil
}

// checkChunk verifies the records of one chunk and returns the last seq.
func checkChunk(sid frames.SessionID, first frames.Seq, recs []byte) (frames.Seq, error) {
	sum, want := sidSum(sid), first
	for len(recs) > 0 {
		n := recordLen(recs)
		e, err := decodeRecord(recs[:max(n, 0)], sum)
		if err != nil {
			return 0, fmt.Errorf("session %q seq %d: %w", sid, want, err)
		}
		if e.Seq != want {
			return 0, corrupt("session %q: found seq %d where %d belongs", sid, e.Seq, want)
		}
		want++
		recs = recs[n:]
	}
	return want - 1, nil
}

// checkRows verifies every row of every table.
func checkRows(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		table, ok := strings.CutPrefix(string(name), rowPrefix)
		if !ok {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			_, err := unseal(rowName(table, string(k)), v)
			return err
		})
	})
}
