package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt keeps two meta pages and writes them in turn, one per commit; a database
// opens on the valid one with the higher transaction. A whole database has two
// valid ones whose transactions follow each other, so one that is not valid, or
// far behind, may have been the newest: then the last commit is lost.

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	pageHeader  = 16 // id u64, flags u16, count u16, overflow u32
	metaBytes   = 64 // of a meta, the checksum included

	noFreelist = ^uint64(0) // the freelist is not kept on disk
)

// metaPage is one of the two meta pages, as it is on disk.
type metaPage struct {
	valid    bool
	pageSize int
	root     uint64
	freelist uint64
	pages    uint64 // in use: the high water mark
	txid     uint64
}

// parseMeta parses a meta page; b starts with the page's header.
func parseMeta(b []byte) metaPage {
	if len(b) < pageHeader+metaBytes {
		return metaPage{}
	}
	b = b[pageHeader : pageHeader+metaBytes]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaBytes-8])
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	m := metaPage{pageSize: int(u32(b[8:])), root: u64(b[16:]), freelist: u64(b[32:]), pages: u64(b[40:]), txid: u64(b[48:])}
	m.valid = u32(b) == boltMagic && u32(b[4:]) == boltVersion && u64(b[56:]) == sum.Sum64() &&
		m.pageSize >= 1<<9 && m.pageSize <= 1<<24
	return m
}

// readMetas reads both meta pages. The second one is looked for at every page size
// if the first one, which says it, is not valid.
func readMetas(r io.ReaderAt) [2]metaPage {
	var out [2]metaPage
	if out[0] = metaAt(r, 0); out[0].valid {
		out[1] = metaAt(r, int64(out[0].pageSize))
		return out
	}
	for shift := range 16 {
		size := 1 << (10 + shift)
		if m := metaAt(r, int64(size)); m.valid && m.pageSize == size {
			out[1] = m
			break
		}
	}
	return out
}

func metaAt(r io.ReaderAt, off int64) metaPage {
	b := make([]byte, pageHeader+metaBytes)
	if _, err := r.ReadAt(b, off); err != nil {
		return metaPage{}
	}
	return parseMeta(b)
}

// newest is the meta page that bbolt goes by; ok is false if neither is valid.
func newest(m [2]metaPage) (_ metaPage, ok bool) {
	if m[1].valid && (!m[0].valid || m[1].txid > m[0].txid) {
		return m[1], true
	}
	return m[0], m[0].valid
}

// behind says why the newest of the meta pages may not be the last one written, ""
// if nothing speaks for that. A copy of a database starts with transactions that
// are up to two apart.
func behind(m [2]metaPage) string {
	a, b := m[0], m[1]
	switch {
	case !a.valid && !b.valid:
		return "" // it does not open at all
	case !a.valid || !b.valid:
		return "one of its two meta pages is damaged, perhaps that of the last commit"
	case max(a.txid, b.txid)-min(a.txid, b.txid) > 2, a.txid == b.txid:
		return fmt.Sprintf("its two meta pages are of the commits %d and %d, which do not follow each other", a.txid, b.txid)
	}
	return ""
}

// suspect reads the meta pages of the file at path; see [behind].
func suspect(path string, opts Options) (string, error) {
	f, err := openPrivate(opts.OpenFile, path, os.O_RDONLY, 0)
	if err != nil {
		return "", fmt.Errorf("bolt: open %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read
	return behind(readMetas(f)), nil
}
