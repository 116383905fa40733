package bolt

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

var (
	bucketMeta    = []byte("meta")
	bucketCommits = []byte("commits")
	bucketChunks  = []byte("chunks")
	bucketHeads   = []byte("heads")
	rowPrefix     = "row/" // and the table's name
)

// pos is where an unfolded record lies.
type pos struct {
	commit uint64
	off, n uint32
}

// log is what memory knows of one session. Values are replaced, not changed,
// so a reader's copy stays good; tail's elements are never overwritten.
type log struct {
	head   store.Head
	folded frames.Seq // the last seq in chunks
	foldID string     // its event's id
	tail   []pos      // where the events from tailFirst to head.Seq lie
}

// tailFirst is the seq of the first event in the tail.
func (l *log) tailFirst() frames.Seq { return l.head.Seq + 1 - frames.Seq(len(l.tail)) }

// commit is one value in the bucket of commits that still has live records.
type commit struct {
	no   uint64
	live int // records that are neither folded nor dropped
}

// state mirrors the database as of the last successful commit.
type state struct {
	commits []commit // ascending; the writer's own

	mu      sync.RWMutex // guards all below; nothing blocks under it
	logs    map[frames.SessionID]log
	order   []frames.SessionID // sorted ids of sessions that are not deleted
	events  int                // live records in the tail
	bytes   int
	txid    int           // of that commit
	nextNo  uint64        // the next commit's number; never used twice
	applied chan struct{} // closed and replaced when a commit was applied
}

func newState() *state {
	return &state{logs: map[frames.SessionID]log{}, nextNo: 1, applied: make(chan struct{})}
}

// get returns a copy of a session's log,
// with the transaction that it mirrors and what is closed at the next one.
func (st *state) get(sid frames.SessionID) (l log, txid int, applied <-chan struct{}) {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return st.logs[sid], st.txid, st.applied
}

// commit returns the entry of a commit that has live records.
func (st *state) commit(no uint64) *commit {
	i, found := slices.BinarySearchFunc(st.commits, no, func(c commit, no uint64) int { return cmp.Compare(c.no, no) })
	if !found {
		panic(corrupt("commit %d is unknown", no))
	}
	return &st.commits[i]
}

// wake lets go those who wait for a commit to be applied.
func (st *state) wake() {
	st.mu.Lock()
	defer st.mu.Unlock()
	close(st.applied)
	st.applied = make(chan struct{})
}

// set replaces a session's log. The caller holds mu.
func (st *state) set(sid frames.SessionID, l log) {
	_, known := st.logs[sid]
	st.logs[sid] = l
	i, listed := slices.BinarySearch(st.order, sid)
	switch {
	case l.head.Deleted && listed:
		st.order = slices.Delete(slices.Clone(st.order), i, i+1)
	case !known && !l.head.Deleted:
		if i < len(st.order) {
			st.order = slices.Clone(st.order) // readers walk the old one
		}
		st.order = slices.Insert(st.order, i, sid)
	}
}

// load rebuilds the state from a database and verifies all that it reads: heads
// and the unfolded tail.
func (st *state) load(tx *bbolt.Tx) error {
	st.txid = tx.ID()
	c := tx.Bucket(bucketHeads).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		sid := frames.SessionID(k)
		h, err := decodeHead(sid, v)
		if err != nil {
			return err
		}
		st.set(sid, log{head: h, folded: h.Seq, foldID: h.LastID})
	}
	commits := tx.Bucket(bucketCommits)
	c = commits.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if len(k) != 8 {
			return corrupt("a commit's key has %d bytes, want 8", len(k))
		}
		no := binary.BigEndian.Uint64(k)
		if err := st.loadCommit(no, getCommit(commits, no)); err != nil {
			return err
		}
	}
	return nil
}

func (st *state) loadCommit(no uint64, value []byte) error {
	gs, err := groups(no, value, true)
	if err != nil {
		return err
	}
	live := 0
	for _, g := range gs {
		n, err := st.loadGroup(no, g)
		if err != nil {
			return err
		}
		live += n
	}
	st.nextNo = no + 1
	st.commits = append(st.commits, commit{no: no, live: live})
	return nil
}

// loadGroup adds a group's live records to its session's tail and counts them.
func (st *state) loadGroup(no uint64, g group) (int, error) {
	l, known := st.logs[g.sid]
	if !known {
		return 0, corrupt("commit %d has events of session %q, which has no head", no, g.sid)
	}
	sum, live, recs := sidSum(g.sid), 0, g.recs
	for range g.n {
		n := recordLen(recs)
		if n == 0 {
			return 0, corrupt("commit %d is cut short", no)
		}
		e, err := decodeRecord(recs[:n], sum)
		if err != nil {
			return 0, err
		}
		if !l.head.Deleted && e.Seq > l.folded && e.Seq >= l.head.First {
			if want := max(l.head.Seq+1, l.head.First); e.Seq != want {
				return 0, corrupt("session %q: seq %d follows where %d was expected", g.sid, e.Seq, want)
			}
			l.head.Seq, l.head.Rev, l.head.LastID, l.head.Fence = e.Seq, uint64(e.Seq), e.ID, e.Fence
			l.tail = append(l.tail, pos{no, uint32(g.off + len(g.recs) - len(recs)), uint32(n)})
			live++
			st.bytes += n
		}
		recs = recs[n:]
	}
	st.logs[g.sid] = l
	st.events += live
	return live, nil
}
