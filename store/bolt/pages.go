package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What a page can be, and its measures.
const (
	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	elementBytes = 16 // of an element in a branch or a leaf
	bucketHeader = 16 // root u64, sequence u64
	nestedBucket = 1  // the flag of a leaf element that is a bucket

	maxDepth    = 128       // pages from the root to a leaf, buckets included
	maxPageSize = 256 << 20 // bytes of one page with its overflow; the largest commit is below
)

// pageGraph walks the pages of a database file, read with plain reads: each page is
// visited at most once, so a damaged graph takes no longer than a whole one, and
// whatever it says cannot hurt the walker. A graph without a finding is a tree that
// bbolt can walk.
type pageGraph struct {
	r      io.ReaderAt
	size   uint64 // of a page
	pages  uint64 // in use
	seen   []uint64
	report func(what string)
}

// checkPages walks the pages that the newest meta page of a file of fileSize bytes
// leads to, and reports what is wrong.
func checkPages(r io.ReaderAt, fileSize int64, report func(what string)) {
	m, ok := newest(readMetas(r))
	if !ok {
		report("both meta pages are damaged")
		return
	}
	if most := uint64(fileSize) / uint64(m.pageSize); m.pages > most || m.pages < 4 {
		report(fmt.Sprintf("it was cut: pages up to %d are in use, and the file has %d", m.pages, most))
		return
	}
	g := &pageGraph{r: r, size: uint64(m.pageSize), pages: m.pages, seen: make([]uint64, m.pages/64+1), report: report}
	g.claim(0, 1, "the first meta page")
	g.claim(1, 1, "the second meta page")
	if m.freelist != noFreelist {
		g.freelist(m.freelist)
	}
	g.page(m.root, nil, nil, 0)
	if m.freelist != noFreelist {
		g.unclaimed()
	}
}

func (g *pageGraph) badf(format string, args ...any) { g.report(fmt.Sprintf(format, args...)) }

// claim marks n pages from id as used, and reports whether nobody else uses them.
func (g *pageGraph) claim(id, n uint64, by string) bool {
	if id >= g.pages || n > g.pages-id {
		g.badf("page %d, named by %s, is beyond the %d pages in use", id+n-1, by, g.pages)
		return false
	}
	for i := id; i < id+n; i++ {
		if g.seen[i/64]&(1<<(i%64)) != 0 {
			g.badf("page %d is used twice, the second time by %s", i, by)
			return false
		}
		g.seen[i/64] |= 1 << (i % 64)
	}
	return true
}

// unclaimed reports pages that are neither used nor free.
func (g *pageGraph) unclaimed() {
	n, sample := 0, uint64(0)
	for i := range g.pages {
		if g.seen[i/64]&(1<<(i%64)) == 0 {
			n, sample = n+1, i
		}
	}
	if n > 0 {
		g.badf("%d pages, such as %d, are neither used nor free", n, sample)
	}
}

// load claims a page with its overflow and reads it; nil when that is reported as
// wrong.
func (g *pageGraph) load(id uint64, by string) []byte {
	if !g.claim(id, 1, by) {
		return nil
	}
	head := make([]byte, pageHeader)
	if _, err := g.r.ReadAt(head, int64(id*g.size)); err != nil {
		g.badf("page %d cannot be read: %v", id, err)
		return nil
	}
	if self := binary.NativeEndian.Uint64(head); self != id {
		g.badf("page %d says that it is page %d", id, self)
		return nil
	}
	more := uint64(binary.NativeEndian.Uint32(head[12:]))
	if more > 0 && !g.claim(id+1, more, fmt.Sprintf("page %d as its overflow", id)) {
		return nil
	}
	if (more+1)*g.size > maxPageSize {
		g.badf("page %d says that it has %d bytes", id, (more+1)*g.size)
		return nil
	}
	b := make([]byte, (more+1)*g.size)
	if _, err := g.r.ReadAt(b, int64(id*g.size)); err != nil && !errors.Is(err, io.EOF) {
		g.badf("page %d cannot be read: %v", id, err)
		return nil
	}
	return b
}

func flagsOf(b []byte) (flags, count int) {
	return int(binary.NativeEndian.Uint16(b[8:])), int(binary.NativeEndian.Uint16(b[10:]))
}

// freelist claims the list of free pages and every page on it.
func (g *pageGraph) freelist(id uint64) {
	b := g.load(id, "the meta page as its freelist")
	if b == nil {
		return
	}
	flags, count := flagsOf(b)
	if flags != freelistPage {
		g.badf("page %d is no freelist, its flags are %#x", id, flags)
		return
	}
	ids := b[pageHeader:]
	if count == 0xFFFF { // the list says how long it is
		count = int(min(binary.NativeEndian.Uint64(ids), uint64(len(b))))
		ids = ids[8:]
	}
	if count*8 > len(ids) {
		g.badf("the freelist on page %d is cut short", id)
		return
	}
	for i := range count {
		if !g.claim(binary.NativeEndian.Uint64(ids[i*8:]), 1, "the freelist") {
			return
		}
	}
}

// element is one entry of a page.
type element struct {
	key, value []byte
	child      uint64 // of a branch
	bucket     bool   // the value is one
}

// page checks the subtree at id, whose keys are from low on and below high, nil
// for no bound.
func (g *pageGraph) page(id uint64, low, high []byte, depth int) {
	if depth > maxDepth {
		g.badf("page %d lies %d pages below the root", id, depth)
		return
	}
	b := g.load(id, "its parent")
	if b == nil {
		return
	}
	flags, count := flagsOf(b)
	switch {
	case flags != branchPage && flags != leafPage:
		g.badf("page %d is no page of a tree, its flags are %#x", id, flags)
		return
	case flags == branchPage && count == 0:
		g.badf("page %d is a branch without children", id)
		return
	}
	elems := g.elements(id, b, flags, count, low, high)
	for i, e := range elems {
		switch {
		case flags == branchPage && i+1 < len(elems):
			g.page(e.child, e.key, elems[i+1].key, depth+1)
		case flags == branchPage:
			g.page(e.child, e.key, high, depth+1)
		case e.bucket:
			g.bucket(id, e, depth)
		}
	}
}

// elements parses the entries of a page and checks that their keys ascend within
// the bounds; nil when something is reported as wrong.
func (g *pageGraph) elements(id uint64, b []byte, flags, count int, low, high []byte) []element {
	if pageHeader+count*elementBytes > len(b) {
		g.badf("page %d says that it has %d elements", id, count)
		return nil
	}
	out := make([]element, count)
	for i := range out {
		e, ok := parseElement(b[pageHeader+i*elementBytes:], flags)
		switch {
		case !ok:
			g.badf("page %d: element %d does not parse", id, i)
			return nil
		case i > 0 && bytes.Compare(out[i-1].key, e.key) >= 0,
			i == 0 && low != nil && bytes.Compare(low, e.key) > 0,
			high != nil && bytes.Compare(e.key, high) >= 0:
			g.badf("page %d: the key of element %d is out of order", id, i)
			return nil
		}
		out[i] = e
	}
	return out
}

// parseElement parses the element that b starts with; its key and value lie
// further on in b.
func parseElement(b []byte, flags int) (e element, ok bool) {
	u32 := binary.NativeEndian.Uint32
	cut := func(pos, n uint64) []byte {
		if pos > uint64(len(b)) || n > uint64(len(b))-pos {
			return nil
		}
		return b[pos : pos+n : pos+n]
	}
	if flags == branchPage {
		e.child = binary.NativeEndian.Uint64(b[8:])
		e.key = cut(uint64(u32(b)), uint64(u32(b[4:])))
		return e, e.key != nil
	}
	kind, pos, keyLen, valueLen := u32(b), uint64(u32(b[4:])), uint64(u32(b[8:])), uint64(u32(b[12:]))
	e.bucket = kind == nestedBucket
	e.key, e.value = cut(pos, keyLen), cut(pos+keyLen, valueLen)
	return e, kind <= nestedBucket && e.key != nil && e.value != nil
}

// bucket checks the bucket that an element of page id is.
func (g *pageGraph) bucket(id uint64, e element, depth int) {
	if len(e.value) < bucketHeader {
		g.badf("page %d: the bucket %q is cut short", id, e.key)
		return
	}
	if root := binary.NativeEndian.Uint64(e.value); root != 0 {
		g.page(root, nil, nil, depth+1)
		return
	}
	b := e.value[bucketHeader:] // a small bucket: its only page is its value
	if len(b) < pageHeader {
		g.badf("page %d: the bucket %q is cut short", id, e.key)
		return
	}
	flags, count := flagsOf(b)
	if flags != leafPage {
		g.badf("page %d: the bucket %q is no leaf, its flags are %#x", id, e.key, flags)
		return
	}
	for _, in := range g.elements(id, b, flags, count, nil, nil) {
		if in.bucket {
			g.badf("page %d: the bucket %q holds a bucket within its value", id, e.key)
		}
	}
}
