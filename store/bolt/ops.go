package bolt

import (
	"bytes"
	"context"
	"crypto/rand"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// Append implements [store.Store].
func (s *Store) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (store.Head, error) {
	if err := store.CheckAppend(sid, evs, rows); err != nil {
		return store.Head{}, err
	}
	return s.write(ctx, &appendOp{sid, at, evs, rows})
}

type appendOp struct {
	sid  frames.SessionID
	at   store.Head
	evs  []store.Event
	rows []store.Row
}

func (o *appendOp) session() frames.SessionID { return o.sid }
func (o *appendOp) size() int                 { return eventBytes(o.evs) + rowBytes(o.rows) }

func (o *appendOp) plan(g *batch) (store.Head, error) {
	l := g.log(o.sid)
	switch {
	case l.head.Deleted:
		return store.Head{}, store.ErrDeleted
	case o.at.Rev != l.head.Rev || o.at.Fence < l.head.Fence:
		return o.repeated(g, l)
	}
	isNew := l.head.Seq == 0
	if isNew {
		l.head.First, l.head.Epoch = 1, frames.Epoch(rand.Text())
	}
	l.head.Fence = o.at.Fence
	if isNew {
		g.putHead(o.sid, l)
	}
	l = g.add(o.sid, l, o.evs)
	g.putRows(o.rows)
	g.stage(o.sid, l)
	return l.head, nil
}

// repeated answers an append whose at is not the head: with the head it made,
// if its events are what is stored there, and with a conflict otherwise.
func (o *appendOp) repeated(g *batch, l log) (store.Head, error) {
	conflict := &store.ConflictError{Actual: l.head}
	last := o.at.Seq + frames.Seq(len(o.evs))
	if last < max(l.head.First, 1) || last > l.head.Seq || last < o.at.Seq {
		return store.Head{}, conflict
	}
	from := max(o.at.Seq+1, l.head.First)
	r := reader{sid: o.sid, sum: sidSum(o.sid), log: &l, txid: g.id, limit: int(last - from + 1), maxBytes: store.MaxBatch * store.MaxEvent, first: true}
	if err := r.read(g.tx, from); err != nil {
		return store.Head{}, err
	}
	for _, e := range r.out {
		if id := o.evs[e.Seq-o.at.Seq-1].ID; id == "" || id != e.ID {
			return store.Head{}, conflict
		}
	}
	then := l.head
	then.Seq, then.Rev, then.LastID = last, uint64(last), o.evs[len(o.evs)-1].ID
	return then, nil
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, rows ...store.Row) error {
	if err := store.CheckRows(rows); err != nil {
		return err
	}
	_, err := s.write(ctx, putOp(rows))
	return err
}

type putOp []store.Row

func (o putOp) session() frames.SessionID { return "" }
func (o putOp) size() int                 { return rowBytes(o) }

func (o putOp) plan(g *batch) (store.Head, error) {
	g.putRows(o)
	return store.Head{}, nil
}

// Trim implements [store.Store]. A chunk that holds kept events too stays whole
// until the last of them goes.
func (s *Store) Trim(ctx context.Context, sid frames.SessionID, before frames.Seq, rows ...store.Row) error {
	if err := store.CheckRows(rows); err != nil {
		return err
	}
	_, err := s.write(ctx, &trimOp{sid, before, rows})
	return err
}

type trimOp struct {
	sid    frames.SessionID
	before frames.Seq
	rows   []store.Row
}

func (o *trimOp) session() frames.SessionID { return o.sid }
func (o *trimOp) size() int                 { return rowBytes(o.rows) }

func (o *trimOp) plan(g *batch) (store.Head, error) {
	l := g.log(o.sid)
	if l.head.Deleted {
		return store.Head{}, store.ErrDeleted
	}
	g.putRows(o.rows)
	first := min(o.before, l.head.Seq)
	if first <= l.head.First {
		return l.head, nil
	}
	l.head.First = first
	if from := l.tailFirst(); first > from {
		l = g.kill(l, int(first-from))
	}
	g.dropChunks(o.sid, first)
	g.putHead(o.sid, l)
	g.fixed[o.sid] = true
	g.stage(o.sid, l)
	return l.head, nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, sid frames.SessionID, at store.Head) error {
	if err := store.CheckSession(sid); err != nil {
		return err
	}
	_, err := s.write(ctx, &deleteOp{sid, at})
	return err
}

type deleteOp struct {
	sid frames.SessionID
	at  store.Head
}

func (o *deleteOp) session() frames.SessionID { return o.sid }
func (o *deleteOp) size() int                 { return 0 }

func (o *deleteOp) plan(g *batch) (store.Head, error) {
	l := g.log(o.sid)
	switch {
	case l.head.Deleted:
		return store.Head{}, nil
	case o.at.Rev != l.head.Rev || o.at.Fence < l.head.Fence:
		return store.Head{}, &store.ConflictError{Actual: l.head}
	}
	g.kill(l, len(l.tail))
	g.dropChunks(o.sid, frames.MaxInteger)
	g.dropRows(o.sid)
	l = log{head: store.Head{Deleted: true}}
	g.putHead(o.sid, l)
	g.fixed[o.sid] = true
	g.stage(o.sid, l)
	return l.head, nil
}

// dropChunks deletes a session's chunks whose every event is below first.
func (g *batch) dropChunks(sid frames.SessionID, first frames.Seq) {
	b := g.tx.Bucket(bucketChunks)
	c := b.Cursor()
	prefix := chunkKey(sid, 0)[:len(sid)+1]
	var keys [][]byte
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if lastSeq(v) >= first {
			break
		}
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		must(b.Delete(k))
	}
}

// lastSeq returns the seq of a chunk's last record.
func lastSeq(recs []byte) frames.Seq {
	var seq frames.Seq
	for len(recs) > 0 {
		n := recordLen(recs)
		if n == 0 {
			panic(corrupt("a chunk is cut short"))
		}
		seq, recs = recordSeq(recs[:n]), recs[n:]
	}
	return seq
}

// dropRows deletes a session's rows from every table.
func (g *batch) dropRows(sid frames.SessionID) {
	must(g.tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if !bytes.HasPrefix(name, []byte(rowPrefix)) {
			return nil
		}
		keys := [][]byte{[]byte(sid)}
		c := b.Cursor()
		prefix := []byte(sid + "/")
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			keys = append(keys, bytes.Clone(k))
		}
		for _, k := range keys {
			must(b.Delete(k))
		}
		return nil
	}))
}

// Restore implements [store.Store]. The events go straight into chunks.
func (s *Store) Restore(ctx context.Context, sid frames.SessionID, epoch frames.Epoch, firstSeq frames.Seq, evs []store.Event) (store.Head, error) {
	if err := store.CheckRestore(sid, firstSeq, evs); err != nil {
		return store.Head{}, err
	}
	return s.write(ctx, &restoreOp{sid, epoch, firstSeq, evs})
}

type restoreOp struct {
	sid   frames.SessionID
	epoch frames.Epoch
	first frames.Seq
	evs   []store.Event
}

func (o *restoreOp) session() frames.SessionID { return o.sid }
func (o *restoreOp) size() int                 { return eventBytes(o.evs) }

func (o *restoreOp) plan(g *batch) (store.Head, error) {
	l := g.log(o.sid)
	switch {
	case l.head.Deleted:
		return store.Head{}, store.ErrDeleted
	case store.Restored(l.head, o.epoch, o.first, o.evs):
		return l.head, nil
	case l.head.Seq != 0:
		return store.Head{}, &store.ConflictError{Actual: l.head}
	}
	if o.epoch == "" {
		o.epoch = frames.Epoch(rand.Text())
	}
	l.head = store.Head{Seq: o.first - 1, First: o.first, Epoch: o.epoch}
	w := chunkWriter{g: g, sid: o.sid}
	sum := sidSum(o.sid)
	for _, e := range o.evs {
		l.head.Seq++
		e.Seq, e.Fence, l.head.LastID = l.head.Seq, 0, e.ID
		w.add(e.Seq, appendRecord(nil, sum, &e))
	}
	w.flush()
	l.head.Rev, l.folded, l.foldID = uint64(l.head.Seq), l.head.Seq, l.head.LastID
	g.putHead(o.sid, l)
	g.fixed[o.sid] = true
	g.stage(o.sid, l)
	return l.head, nil
}

func eventBytes(evs []store.Event) int {
	n := 0
	for i := range evs {
		n += len(evs[i].Data) + len(evs[i].ID) + len(evs[i].Type) + 32
	}
	return n
}

func rowBytes(rows []store.Row) int {
	n := 0
	for i := range rows {
		n += len(rows[i].Key) + len(rows[i].Value)
	}
	return n
}
