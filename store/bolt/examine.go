package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// examiner goes once over a database whose pages are a tree.
type examiner struct {
	ctx   context.Context //nolint:containedctx // lives as long as one Examine
	visit Visit
	n     int // findings told
	logs  map[frames.SessionID]*examined
}

// examined is what is known of a log so far.
type examined struct {
	head   store.Head // Seq is the last event seen, in chunks or tail
	folded frames.Seq
	foldID string
	next   frames.Seq // the seq that should come next; 0 before the first chunk
	bad    bool       // told already: more would only follow from it
}

// found tells of something that is wrong, and of a log only the first of it.
func (x *examiner) found(sid frames.SessionID, format string, args ...any) {
	if l := x.logs[sid]; l != nil {
		if l.bad {
			return
		}
		l.bad = true
	}
	if x.n++; x.n <= maxFindings && x.visit.Finding != nil {
		x.visit.Finding(Finding{sid, fmt.Sprintf(format, args...)})
	}
}

// going returns an error when the examination should end.
func (x *examiner) going() error {
	if x.n > maxFindings {
		return errEnough
	}
	return store.Cancelled(x.ctx)
}

// heads reads what is known of each log without its tail.
func (x *examiner) heads(tx *bbolt.Tx) error {
	c := tx.Bucket(bucketHeads).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		sid := frames.SessionID(k)
		h, err := decodeHead(sid, v)
		x.logs[sid] = &examined{head: h, folded: h.Seq, foldID: h.LastID}
		if err != nil {
			x.found(sid, "%v", err)
		}
		if err := x.going(); err != nil {
			return err
		}
	}
	return nil
}

// chunks walks all chunks and compares them with the heads.
func (x *examiner) chunks(tx *bbolt.Tx) error {
	c := tx.Bucket(bucketChunks).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := x.going(); err != nil {
			return err
		}
		if len(k) < 10 || k[len(k)-9] != 0 {
			x.found("", "the chunk key %q does not parse", k)
			continue
		}
		sid := frames.SessionID(k[:len(k)-9])
		first := frames.Seq(binary.BigEndian.Uint64(k[len(k)-8:]))
		l := x.logs[sid]
		switch {
		case l == nil:
			x.found(sid, "a chunk begins at %d, but there is no such log", first)
		case l.bad:
		case l.next != 0 && first != l.next, l.next == 0 && first > l.head.First, l.head.Deleted:
			x.found(sid, "a chunk begins at %d; the log's first is %d, after the chunk before is %d", first, l.head.First, l.next)
		default:
			x.chunk(sid, l, first, v)
		}
	}
	for sid, l := range x.logs {
		if want := l.folded + 1; !l.bad && !l.head.Deleted && l.folded >= max(l.head.First, 1) && l.next != want {
			x.found(sid, "its chunks end before %d, want before %d", l.next, want)
		}
		l.next = max(l.folded+1, l.head.First, 1)
	}
	return x.going()
}

// chunk walks the records of one chunk.
func (x *examiner) chunk(sid frames.SessionID, l *examined, first frames.Seq, recs []byte) {
	sum, want := sidSum(sid), first
	var lastID string
	for len(recs) > 0 {
		n := recordLen(recs)
		e, err := decodeRecord(recs[:max(n, 0)], sum)
		if err == nil && e.Seq != want {
			err = corrupt("found seq %d where %d belongs", e.Seq, want)
		}
		if err != nil {
			x.found(sid, "seq %d: %v", want, err)
			return
		}
		if lastID = e.ID; e.Seq >= l.head.First {
			x.event(sid, e)
		}
		want, recs = want+1, recs[n:]
	}
	l.next = want
	switch {
	case want-1 > l.folded || want-1 < l.head.First:
		x.found(sid, "a chunk holds %d … %d; the log's first is %d, folded is %d", first, want-1, l.head.First, l.folded)
	case want-1 == l.folded && lastID != l.foldID:
		x.found(sid, "its head says that event %d is %q; it is %q", l.folded, l.foldID, lastID)
	}
}

func (x *examiner) event(sid frames.SessionID, e store.Event) {
	if x.visit.Event != nil {
		x.visit.Event(sid, e)
	}
}

// commits walks what is not folded, oldest first.
func (x *examiner) commits(tx *bbolt.Tx) error {
	b := tx.Bucket(bucketCommits)
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if err := x.going(); err != nil {
			return err
		}
		if len(k) != 8 {
			x.found("", "a commit's key has %d bytes, want 8", len(k))
			continue
		}
		no := binary.BigEndian.Uint64(k)
		gs, err := groups(no, getCommit(b, no), true)
		if err != nil {
			x.found("", "%v", err)
			continue
		}
		live := 0
		for _, g := range gs {
			live += x.group(no, g)
		}
		if live == 0 {
			x.found("", "commit %d has no live record, but was kept", no)
		}
	}
	return nil
}

// group walks the records of one session in a commit, and counts the live ones.
func (x *examiner) group(no uint64, g group) (live int) {
	l := x.logs[g.sid]
	if l == nil {
		x.found(g.sid, "commit %d has events of it, but there is no such log", no)
		return 1
	}
	sum, recs := sidSum(g.sid), g.recs
	for range g.n {
		n := recordLen(recs)
		e, err := decodeRecord(recs[:max(n, 0)], sum)
		if err != nil {
			x.found(g.sid, "commit %d: %v", no, err)
			return live + 1
		}
		if recs = recs[n:]; l.head.Deleted || e.Seq <= l.folded || e.Seq < l.head.First {
			continue // folded or dropped since
		}
		live++
		if e.Seq != l.next {
			x.found(g.sid, "seq %d follows where %d was expected", e.Seq, l.next)
		}
		l.next = e.Seq + 1
		l.head.Seq, l.head.Rev, l.head.LastID, l.head.Fence = e.Seq, uint64(e.Seq), e.ID, e.Fence
		if !l.bad {
			x.event(g.sid, e)
		}
	}
	return live
}

// ends looks at each log when all of it was seen.
func (x *examiner) ends(*bbolt.Tx) error {
	for sid, l := range x.logs {
		if l.head.Deleted || l.bad {
			continue
		}
		if l.head.Seq == 0 || l.head.First == 0 || l.head.First > l.head.Seq || l.head.Epoch == "" {
			x.found(sid, "its head says events %d … %d of epoch %q", l.head.First, l.head.Seq, l.head.Epoch)
		} else if x.visit.Log != nil {
			x.visit.Log(sid, l.head)
		}
	}
	return x.going()
}

// rows verifies every row of every table.
func (x *examiner) rows(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		table, ok := strings.CutPrefix(string(name), rowPrefix)
		if !ok {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			value, err := unseal(rowName(table, string(k)), v)
			switch {
			case err != nil:
				x.found("", "table %q, key %q: %v", table, k, err)
			case x.visit.Row != nil:
				x.visit.Row(store.Row{Table: table, Key: string(k), Value: bytes.Clone(value)})
			}
			return x.going()
		})
	})
}
