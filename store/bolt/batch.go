package bolt

import (
	"maps"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// batch is one group being committed: what is staged for the transaction and,
// once that is durable, for memory.
type batch struct {
	s     *Store
	tx    *bbolt.Tx
	id    int // the transaction's
	no    uint64
	dirty bool

	logs   map[frames.SessionID]log  // staged; the writer alone changes state
	value  []byte                    // the commit's value, sealed in flush
	live   int                       // records in value
	size   int                       // bytes of those
	dead   map[uint64]int            // commit → records that die in this batch
	freed  int                       // bytes of those
	killed int                       // records that die
	fixed  map[frames.SessionID]bool // trimmed, deleted or restored: not folded now
}

func newBatch(s *Store, tx *bbolt.Tx) *batch {
	return &batch{
		s: s, tx: tx, id: tx.ID(), no: s.state.nextNo, value: make([]byte, 4, 4<<10),
		logs: map[frames.SessionID]log{}, dead: map[uint64]int{}, fixed: map[frames.SessionID]bool{},
	}
}

// planAll plans every request. One whose session is already changed by this
// group is held back: what it should be told depends on this commit.
func (g *batch) planAll(group []*request) (outs []*outcome, held []*request) {
	outs = make([]*outcome, len(group))
	for i, r := range group {
		if sid := r.op.session(); sid != "" {
			if _, staged := g.logs[sid]; staged {
				held = append(held, r)
				continue
			}
		}
		head, err := r.op.plan(g)
		outs[i] = &outcome{head, err}
	}
	return outs, held
}

// log returns a session as of the last commit. The writer alone changes the
// state, so it reads it without a lock.
func (g *batch) log(sid frames.SessionID) log { return g.s.state.logs[sid] }

// stage replaces a session's log once the commit is durable.
func (g *batch) stage(sid frames.SessionID, l log) {
	g.logs[sid], g.dirty = l, true
}

func (g *batch) sessions() []frames.SessionID { return slices.Collect(maps.Keys(g.logs)) }

// add appends events after l's head to the commit's value, and to l.
func (g *batch) add(sid frames.SessionID, l log, evs []store.Event) log {
	sum, recs := sidSum(sid), make([]byte, 0, 512*len(evs))
	ends := make([]int, len(evs))
	for i := range evs {
		e := evs[i]
		l.head.Seq++
		e.Seq, e.Fence, l.head.LastID = l.head.Seq, l.head.Fence, e.ID
		recs = appendRecord(recs, sum, &e)
		ends[i] = len(recs)
	}
	l.head.Rev = uint64(l.head.Seq)
	g.value = appendGroup(g.value, sid, len(evs), recs)
	base, from := len(g.value)-len(recs), 0
	for _, end := range ends {
		l.tail = append(l.tail, pos{g.no, uint32(base + from), uint32(end - from)})
		from = end
	}
	g.live += len(evs)
	g.size += len(recs)
	return l
}

// kill drops the oldest n records of l's tail, which are folded or gone.
func (g *batch) kill(l log, n int) log {
	for _, p := range l.tail[:n] {
		g.dead[p.commit]++
		g.freed += int(p.n)
	}
	g.killed += n
	if l.tail = l.tail[n:]; len(l.tail) == 0 {
		l.tail = nil
	}
	return l
}

// putRows writes rows into their tables.
func (g *batch) putRows(rows []store.Row) {
	for _, r := range rows {
		g.dirty = true
		name := []byte(rowPrefix + r.Table)
		b := g.tx.Bucket(name)
		switch {
		case r.Value == nil && b == nil:
			continue
		case r.Value == nil:
			must(b.Delete([]byte(r.Key)))
			continue
		case b == nil:
			b = must1(g.tx.CreateBucket(name))
		}
		must(b.Put([]byte(r.Key), seal(rowName(r.Table, r.Key), r.Value)))
	}
}

// putHead writes what the bucket of heads knows of a log.
func (g *batch) putHead(sid frames.SessionID, l log) {
	must(g.tx.Bucket(bucketHeads).Put([]byte(sid), encodeHead(sid, l.head, l.folded, l.foldID)))
}

// flush folds a share of the tail, and writes the commit's value and the
// deletion of commits without a live record.
func (g *batch) flush() error {
	if !g.dirty {
		return nil
	}
	if err := g.fold(); err != nil {
		return err
	}
	b := g.tx.Bucket(bucketCommits)
	b.FillPercent = 1
	if g.live > 0 {
		sealed := seal(commitName(g.no), g.value[4:])
		must(putCommit(b, g.no, sealed))
	}
	for no, n := range g.dead {
		if c := g.s.state.commit(no); c.live == n {
			must(deleteCommit(b, no))
		}
	}
	return nil
}

// apply takes a durable batch over into memory and wakes tailers.
func (g *batch) apply() {
	g.s.last.set(g.id)
	st := g.s.state
	for no, n := range g.dead {
		st.commit(no).live -= n
	}
	if len(g.dead) > 0 {
		st.commits = slices.DeleteFunc(st.commits, func(c commit) bool { return c.live == 0 })
	}
	if g.live > 0 {
		st.commits = append(st.commits, commit{g.no, g.live})
	}
	st.mu.Lock()
	st.nextNo, st.txid = g.no+1, g.id
	st.events += g.live - g.killed
	st.bytes += g.size - g.freed
	for sid, l := range g.logs {
		st.set(sid, l)
	}
	close(st.applied)
	st.applied = make(chan struct{})
	st.mu.Unlock()
	for sid := range g.logs {
		g.s.notify.Changed(sid)
	}
}

// must turns an error that the checks before should have prevented into the
// panic that makes the store read-only.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must1[T any](v T, err error) T {
	must(err)
	return v
}
