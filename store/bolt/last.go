package bolt

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"strings"
)

// lastMark is the file PATH.last: which commit was the last one acknowledged. It
// is written after each commit and before its answers, but synced only when the
// database is opened and closed: a process that dies leaves it exact, a loss of
// power leaves it at that commit or an earlier one, never at a later one.
type lastMark struct {
	f  *os.File
	id string // the database's
}

// openLast opens the mark of database id and reads it; txid is 0 if there is none,
// it is another database's, or it does not parse.
func openLast(path, id string) (m *lastMark, txid uint64, err error) {
	f, err := openPrivate(nil, path+".last", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("bolt: the mark of the last commit: %w", err)
	}
	buf := make([]byte, 128)
	n, _ := f.ReadAt(buf, 0)
	return &lastMark{f, id}, parseLast(string(buf[:n]), id), nil
}

func parseLast(text, id string) (txid uint64) {
	line, _, whole := strings.Cut(text, "\n")
	var of string
	if n, err := fmt.Sscanf(line, "muxhost %s %d", &of, &txid); !whole || n != 2 || err != nil {
		return 0
	}
	if of != id || line+"\n" != lastLine(id, txid) {
		return 0
	}
	return txid
}

// lastLine has the same length for every commit of a database.
func lastLine(id string, txid uint64) string {
	text := fmt.Sprintf("muxhost %s %020d", id, txid)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

// set notes a commit. The mark is a lower bound, so one that cannot be written
// merely notices less.
func (m *lastMark) set(txid int) { _, _ = m.f.WriteAt([]byte(lastLine(m.id, uint64(txid))), 0) }

// sync makes the mark durable.
func (m *lastMark) sync() error {
	if err := m.f.Sync(); err != nil {
		return fmt.Errorf("bolt: sync the mark of the last commit: %w", err)
	}
	return nil
}

func (m *lastMark) close() error { return errors.Join(m.sync(), m.f.Close()) }

// Forget removes what lies beside the database at path and says which database,
// and which commit of it, belongs there; whoever puts another one in its place does
// so first. The caller holds the lock. It is durable when Forget returns.
func Forget(path string) error {
	for _, name := range []string{path + ".last", path + ".id"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("bolt: %w", err)
		}
	}
	return syncParent(path)
}
