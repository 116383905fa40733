package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// One View copies at most this much, so that none lives long: a reader pins
// every page that was freed since it began.
const (
	viewEvents = 256
	viewBytes  = 256 << 10
)

// view runs fn in a short read transaction. A panic or a fault in it, which
// means a damaged file, makes the store read-only.
func (s *Store) view(ctx context.Context, fn func(*bbolt.Tx) error) (err error) {
	if err := store.Cancelled(ctx); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = corrupt("reading the database panicked: %v", p)
			s.fail(err)
		}
	}()
	err = s.db.View(fn)
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}

// Head implements [store.Store].
func (s *Store) Head(ctx context.Context, sid frames.SessionID) (store.Head, error) {
	if err := store.Cancelled(ctx); err != nil {
		return store.Head{}, err
	}
	if s.closed.Load() {
		return store.Head{}, store.ErrClosed
	}
	l, _, _ := s.state.get(sid)
	if err := s.doubt(sid); err != nil {
		return store.Head{}, err
	}
	return l.head, nil
}

// Read implements [store.Store].
func (s *Store) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]store.Event, error) {
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	if maxBytes <= 0 {
		maxBytes = store.DefaultBytes
	}
	var out []store.Event
	size := 0
	for {
		r := &reader{limit: min(limit-len(out), viewEvents), maxBytes: min(maxBytes-size, viewBytes), first: len(out) == 0}
		if err := s.readPage(ctx, sid, after, r); err != nil {
			return nil, err
		}
		page := r.out
		for i := range page {
			size += len(page[i].Data)
		}
		out = append(out, page...)
		if len(page) == 0 || len(out) >= limit || size >= maxBytes {
			return out, nil
		}
		after = page[len(page)-1].Seq
	}
}

// Size implements [store.Store]. It looks at a few thousand records per View.
func (s *Store) Size(ctx context.Context, sid frames.SessionID) (int64, error) {
	for {
		h, err := s.Head(ctx, sid)
		if err != nil || h.Seq == 0 {
			return 0, err
		}
		n, err := s.sizeFrom(ctx, sid, h.First)
		switch {
		case errors.Is(err, store.ErrDeleted):
			return 0, nil
		case !errors.Is(err, store.ErrTrimmed): // else it was trimmed meanwhile
			return n, err
		}
	}
}

func (s *Store) sizeFrom(ctx context.Context, sid frames.SessionID, first frames.Seq) (int64, error) {
	total := int64(0)
	for {
		r := &reader{limit: 16 * viewEvents, maxBytes: math.MaxInt, count: true}
		if err := s.readPage(ctx, sid, first-1, r); err != nil || r.n == 0 {
			return total, err
		}
		total += int64(r.size)
		first += frames.Seq(r.n)
	}
}

// readPage reads one page in one View into r, whose bounds are set. The first page
// has at least one event, unless after is the head.
func (s *Store) readPage(ctx context.Context, sid frames.SessionID, after frames.Seq, r *reader) error {
	for {
		l, txid, applied := s.state.get(sid)
		switch {
		case s.closed.Load():
			return store.ErrClosed
		case l.head.Deleted:
			return store.ErrDeleted
		case after >= l.head.Seq:
			return store.Cancelled(ctx)
		case after+1 < l.head.First:
			return &store.TrimmedError{First: l.head.First}
		}
		r.sid, r.sum, r.log, r.txid = sid, sidSum(sid), &l, txid
		r.out, r.n, r.size = nil, 0, 0
		err := s.view(ctx, func(tx *bbolt.Tx) error { return r.read(tx, after+1) })
		if !errors.Is(err, errMoved) {
			return err
		}
		// A commit that drops these events is not applied to memory yet: look
		// again when it is.
		select {
		case <-applied:
		case <-ctx.Done():
			return store.Cancelled(ctx)
		case <-s.stopped:
			return store.ErrClosed
		}
		if err := s.failed(); err != nil {
			return err
		}
	}
}

// errMoved says that the database has moved on from the state that was read.
var errMoved = errors.New("bolt: moved")

// reader copies events of one session out of one transaction, which is the one
// that log mirrors or a later one.
type reader struct {
	sid      frames.SessionID
	sum      uint32
	log      *log
	txid     int // the transaction that log mirrors
	limit    int
	maxBytes int
	first    bool
	count    bool // only count the events and their bytes
	out      []store.Event
	n        int // events taken
	size     int // bytes of their Data
}

func (r *reader) read(tx *bbolt.Tx, seq frames.Seq) error {
	commits := tx.Bucket(bucketCommits)
	var lastNo uint64
	var value []byte
	for seq <= r.log.head.Seq {
		if from := r.log.tailFirst(); seq >= from {
			p := r.log.tail[seq-from]
			if p.commit != lastNo {
				lastNo, value = p.commit, getCommit(commits, p.commit)
			}
			if value != nil {
				if uint64(p.off)+uint64(p.n) > uint64(len(value)) {
					return corrupt("session %q seq %d lies outside of commit %d", r.sid, seq, p.commit)
				}
				more, err := r.take(value[p.off:p.off+p.n], seq)
				if err != nil || !more {
					return err
				}
				seq++
				continue
			}
		}
		next, more, err := r.readChunk(tx, seq) // folded, perhaps since
		if err != nil || !more {
			return err
		}
		seq = next
	}
	return nil
}

// readChunk takes events from the chunk that holds seq, up to its end.
func (r *reader) readChunk(tx *bbolt.Tx, seq frames.Seq) (next frames.Seq, more bool, err error) {
	recs := findChunk(tx, r.sid, seq)
	next = seq
	for len(recs) > 0 && next <= r.log.head.Seq {
		n := recordLen(recs)
		if n == 0 {
			return 0, false, corrupt("session %q: the chunk of seq %d is cut short", r.sid, seq)
		}
		if recordSeq(recs[:n]) >= seq {
			if more, err := r.take(recs[:n], next); err != nil || !more {
				return 0, false, err
			}
			next++
		}
		recs = recs[n:]
	}
	if next == seq {
		return 0, false, r.missing(tx, seq)
	}
	return next, true, nil
}

// missing explains why seq is nowhere: damage, or a commit that dropped it and
// is not yet applied to memory.
func (r *reader) missing(tx *bbolt.Tx, seq frames.Seq) error {
	if tx.ID() == r.txid {
		return corrupt("session %q: seq %d is nowhere", r.sid, seq)
	}
	return fmt.Errorf("%w: session %q seq %d", errMoved, r.sid, seq)
}

// findChunk returns the value of the chunk with the greatest first seq that is
// not above seq, nil if there is none.
func findChunk(tx *bbolt.Tx, sid frames.SessionID, seq frames.Seq) []byte {
	c := tx.Bucket(bucketChunks).Cursor()
	key := chunkKey(sid, seq)
	k, v := c.Seek(key)
	if !bytes.Equal(k, key) {
		if k == nil {
			k, v = c.Last()
		} else {
			k, v = c.Prev()
		}
	}
	if len(k) != len(key) || !bytes.Equal(k[:len(k)-8], key[:len(key)-8]) {
		return nil
	}
	return v
}

// take adds one record to the page; more says whether the page has room left.
func (r *reader) take(rec []byte, want frames.Seq) (more bool, err error) {
	if r.n >= r.limit {
		return false, nil
	}
	if r.count {
		if r.size += recordData(rec); recordSeq(rec) != want {
			return false, corrupt("session %q: found seq %d where %d belongs", r.sid, recordSeq(rec), want)
		}
		r.n++
		return true, nil
	}
	e, err := decodeRecord(rec, r.sum)
	if err != nil {
		return false, fmt.Errorf("session %q seq %d: %w", r.sid, want, err)
	}
	if e.Seq != want {
		return false, corrupt("session %q: found seq %d where %d belongs", r.sid, e.Seq, want)
	}
	if (r.n > 0 || !r.first) && r.size+len(e.Data) > r.maxBytes {
		return false, nil
	}
	r.out, r.n, r.size = append(r.out, e), r.n+1, r.size+len(e.Data)
	return true, nil
}

// Tail implements [store.Store].
func (s *Store) Tail(ctx context.Context, sid frames.SessionID, after frames.Seq) (store.Tailer, error) {
	h, err := s.Head(ctx, sid)
	if err != nil {
		return nil, err
	}
	if h.Deleted {
		return nil, store.ErrDeleted
	}
	return store.NewTailer(s, &s.notify, sid, after), nil
}

// List implements [store.Store]. Heads come from memory, records from their
// table.
func (s *Store) List(ctx context.Context, prefix string, afterSID frames.SessionID, limit int) ([]store.Summary, error) {
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	out := s.state.list(prefix, afterSID, limit)
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		for i := range out {
			v, err := getRow(tx, store.TableSession, string(out[i].SessionID))
			if err != nil {
				return err
			}
			out[i].Record = v
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (st *state) list(prefix string, afterSID frames.SessionID, limit int) []store.Summary {
	st.mu.RLock()
	defer st.mu.RUnlock()
	i, found := slices.BinarySearch(st.order, max(afterSID, frames.SessionID(prefix)))
	if found && st.order[i] == afterSID {
		i++
	}
	var out []store.Summary
	for ; i < len(st.order) && len(out) < limit && strings.HasPrefix(string(st.order[i]), prefix); i++ {
		out = append(out, store.Summary{SessionID: st.order[i], Head: st.logs[st.order[i]].head})
	}
	return out
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, table, key string) (value []byte, err error) {
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		value, err = getRow(tx, table, key)
		return err
	})
	return value, err
}

// Scan implements [store.Store].
func (s *Store) Scan(ctx context.Context, table, prefix, afterKey string, limit int) ([]store.Row, error) {
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	var out []store.Row
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(rowPrefix + table))
		if b == nil {
			return nil
		}
		c := b.Cursor()
		k, v := c.Seek([]byte(max(prefix, afterKey)))
		if k != nil && string(k) == afterKey {
			k, v = c.Next()
		}
		for ; k != nil && len(out) < limit && strings.HasPrefix(string(k), prefix); k, v = c.Next() {
			value, err := unseal(rowName(table, string(k)), v)
			if err != nil {
				return err
			}
			out = append(out, store.Row{Table: table, Key: string(k), Value: append([]byte{}, value...)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func rowName(table, key string) string { return "row/" + table + "/" + key }

// getRow returns a copy of a row's value, nil if absent.
func getRow(tx *bbolt.Tx, table, key string) ([]byte, error) {
	b := tx.Bucket([]byte(rowPrefix + table))
	if b == nil || key == "" {
		return nil, nil
	}
	v := b.Get([]byte(key))
	if v == nil {
		return nil, nil
	}
	v, err := unseal(rowName(table, key), v)
	if err != nil {
		return nil, err
	}
	return append([]byte{}, v...), nil
}
