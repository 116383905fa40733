package mux

import (
	"slices"
	"sort"

	"github.com/muxhost/muxhost/frames"
)

// Chunks start small, so that a quiet session costs little, and double.
const (
	minChunk = 4 << 10
	maxChunk = 64 << 10
)

// entry is one frame in a chunk.
type entry struct {
	end   uint32 // offset behind the frame
	class frames.Class
	last  frames.Seq // last durable seq up to and including this entry
}

// chunk holds ready WebSocket frames back to back. Its bytes are append-only: a
// slice of them stays valid and unchanged without a lock, also after the ring
// has dropped the chunk.
type chunk struct {
	buf     []byte
	entries []entry
	first   uint64     // number of entries[0]
	before  frames.Seq // last durable seq before entries[0]
}

// start returns the offset of entry i.
func (c *chunk) start(i int) uint32 {
	if i == 0 {
		return 0
	}
	return c.entries[i-1].end
}

// ring holds the newest frames of one session, ready to be written. Entries are
// numbered over the life of the topic; a cursor holds such a number and never a
// chunk, so that a stalled one pins no memory. The topic's lock guards it.
type ring struct {
	sid      frames.SessionID
	overhead int // bytes of a notification around its event
	limit    int
	size     int // capacity of all chunks
	chunks   []*chunk
	next     uint64     // number of the next entry
	last     frames.Seq // last durable seq
}

// append adds e as a ready frame and drops the oldest chunks beyond the limit.
func (r *ring) append(e frames.Encoded) {
	n := r.overhead + len(e.Data)
	c := r.room(maxHeader + n)
	c.buf = appendHeader(c.buf, finText, n)
	c.buf = frames.AppendSessionEvent(c.buf, r.sid, e.Data)
	if e.Class.Durable() {
		r.last = e.Seq
	}
	c.entries = append(c.entries, entry{end: uint32(len(c.buf)), class: e.Class, last: r.last})
	r.next++
}

// room returns the newest chunk, with at least n bytes of room.
func (r *ring) room(n int) *chunk {
	size := minChunk
	if k := len(r.chunks); k > 0 {
		c := r.chunks[k-1]
		if cap(c.buf)-len(c.buf) >= n {
			return c
		}
		// At most a quarter of the ring, so that beginning a chunk never drops
		// most of what readers are about to take.
		size = min(2*cap(c.buf), maxChunk, max(r.limit/4, minChunk))
	}
	c := &chunk{buf: make([]byte, 0, max(size, n)), first: r.next, before: r.last}
	r.chunks = append(r.chunks, c)
	r.size += cap(c.buf)
	drop := 0
	for r.size > r.limit && drop < len(r.chunks)-1 {
		r.size -= cap(r.chunks[drop].buf)
		drop++
	}
	r.chunks = slices.Delete(r.chunks, 0, drop)
	return c
}

// start returns the number of the oldest entry kept.
func (r *ring) start() uint64 {
	if len(r.chunks) == 0 {
		return r.next
	}
	return r.chunks[0].first
}

// covers reports whether every durable event after seq is in the ring.
func (r *ring) covers(seq frames.Seq) bool {
	if len(r.chunks) == 0 {
		return seq >= r.last
	}
	return seq >= r.chunks[0].before
}

// find returns the number of the first entry after durable event seq that is
// not before the next durable one; the ring must cover seq.
func (r *ring) find(seq frames.Seq) uint64 {
	for i := len(r.chunks) - 1; i >= 0; i-- {
		c := r.chunks[i]
		if c.before > seq {
			continue
		}
		k := sort.Search(len(c.entries), func(k int) bool { return c.entries[k].last > seq })
		return c.first + uint64(k)
	}
	return r.next
}

// chunkAt returns the chunk that holds entry pos, which the ring keeps.
func (r *ring) chunkAt(pos uint64) *chunk {
	for i := len(r.chunks) - 1; i > 0; i-- {
		if r.chunks[i].first <= pos {
			return r.chunks[i]
		}
	}
	return r.chunks[0]
}

// prev returns the last durable seq before entry pos.
func (r *ring) prev(pos uint64) frames.Seq {
	if pos == r.next {
		return r.last
	}
	c := r.chunkAt(pos)
	if i := pos - c.first; i > 0 {
		return c.entries[i-1].last
	}
	return c.before
}

// piece is a run of ready frames, or one frame whose data must be withheld.
type piece struct {
	b        []byte
	withhold bool
}

// take appends to out what f lets through of the entries from pos on, up to
// number limit or the end of pos's chunk. It returns the next position and the
// last durable seq before it. pos must be kept and below limit.
func (r *ring) take(pos, limit uint64, f filter, out []piece) ([]piece, uint64, frames.Seq) {
	c := r.chunkAt(pos)
	i, j := int(pos-c.first), min(len(c.entries), int(limit-c.first))
	last := c.entries[j-1].last
	if f.everything() {
		b := c.buf[c.start(i):c.entries[j-1].end:c.entries[j-1].end]
		return append(out, piece{b: b}), c.first + uint64(j), last
	}
	return f.pick(c, i, j, out), c.first + uint64(j), last
}
