package bolt

import (
	"bytes"

	"github.com/muxhost/muxhost/frames"
)

// Sizes of chunks and of the tail.
const (
	chunkEvents = 64
	chunkBytes  = 16 << 10

	// The tail is folded when it holds more than this. Opening reads all of it.
	tailEvents = 32 << 10
	tailBytes  = 16 << 20
	// The oldest commit is folded, too, when so many commits hold live records.
	tailCommits = 8 << 10

	// One commit folds at most this, or four times what it brings, if that is
	// more; so the tail stays near its bound and no commit takes long.
	foldEvents = 256
	foldBytes  = 128 << 10
)

// fold moves the oldest part of the tail into chunks, a session at a time, when
// the tail is over its bound.
func (g *batch) fold() error {
	st := g.s.state
	b := g.s.bounds
	if g.s.crowded || st.events <= b.events && st.bytes <= b.bytes && len(st.commits) <= b.commits {
		return nil
	}
	events, size := max(foldEvents, 4*g.live), max(foldBytes, 4*g.size)
	commits := g.tx.Bucket(bucketCommits)
	for _, c := range st.commits {
		gs, err := groups(c.no, getCommit(commits, c.no), false)
		if err != nil {
			return err
		}
		for _, grp := range gs {
			if events <= 0 || size <= 0 {
				return nil
			}
			n, bytes, err := g.foldLog(grp.sid, c.no, events, size)
			if err != nil {
				return err
			}
			events, size = events-n, size-bytes
		}
	}
	return nil
}

// foldLog folds the committed part of a session's tail if it begins in commit
// no, at most about the given number of events and bytes.
func (g *batch) foldLog(sid frames.SessionID, no uint64, events, size int) (n, bytes int, err error) {
	old := g.log(sid)
	if g.fixed[sid] || len(old.tail) == 0 || old.tail[0].commit != no {
		return 0, 0, nil
	}
	if old.tailFirst() <= g.stagedFold(sid) {
		return 0, 0, nil // folded by an earlier group of the same commit
	}
	w := newChunkWriter(g, sid, old.tailFirst())
	commits := g.tx.Bucket(bucketCommits)
	var last []byte
	for ; n < len(old.tail) && n < events && bytes < size; n++ {
		p := old.tail[n]
		value := getCommit(commits, p.commit)
		if uint64(p.off)+uint64(p.n) > uint64(len(value)) {
			return 0, 0, corrupt("session %q: a record lies outside of commit %d", sid, p.commit)
		}
		last = value[p.off : p.off+p.n]
		w.add(recordSeq(last), last)
		bytes += len(last)
	}
	e, err := decodeRecord(last, sidSum(sid))
	if err != nil {
		return 0, 0, err
	}
	w.flush()
	l, staged := g.logs[sid]
	if !staged {
		l = old
	}
	l = g.kill(l, n)
	l.folded, l.foldID = e.Seq, e.ID
	g.putHead(sid, l)
	g.stage(sid, l)
	return n, bytes, nil
}

// stagedFold is the last seq of a session that this batch has folded.
func (g *batch) stagedFold(sid frames.SessionID) frames.Seq {
	if l, ok := g.logs[sid]; ok {
		return l.folded
	}
	return 0
}

// chunkWriter packs records of one session into chunks.
type chunkWriter struct {
	g     *batch
	sid   frames.SessionID
	first frames.Seq
	n     int
	value []byte
}

// newChunkWriter goes on with the session's last chunk if that is not full.
func newChunkWriter(g *batch, sid frames.SessionID, next frames.Seq) *chunkWriter {
	w := &chunkWriter{g: g, sid: sid}
	recs := findChunk(g.tx, sid, next)
	if len(recs) == 0 || len(recs) >= chunkBytes {
		return w
	}
	n := 0
	for rest := recs; len(rest) > 0; n++ {
		size := recordLen(rest)
		if size == 0 {
			panic(corrupt("session %q: the last chunk is cut short", sid))
		}
		rest = rest[size:]
	}
	if n < chunkEvents {
		w.first, w.n, w.value = recordSeq(recs), n, bytes.Clone(recs)
	}
	return w
}

func (w *chunkWriter) add(seq frames.Seq, rec []byte) {
	if w.n > 0 && (w.n >= chunkEvents || len(w.value)+len(rec) > chunkBytes) {
		w.flush()
	}
	if w.n == 0 {
		w.first = seq
	}
	w.n++
	w.value = append(w.value, rec...)
}

func (w *chunkWriter) flush() {
	if w.n == 0 {
		return
	}
	b := w.g.tx.Bucket(bucketChunks)
	b.FillPercent = chunkFill
	must(b.Put(chunkKey(w.sid, w.first), w.value))
	w.n, w.value = 0, nil
}

const chunkFill = 0.9
