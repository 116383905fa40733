// Package mem is a store in memory: the whole contract of [store.Store] but for
// surviving the process. Tests of other rooms use it, and nothing is quicker to
// read when the contract is unclear.
//
// All state is behind one mutex; nothing blocks under it.
package mem

import (
	"bytes"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// Store keeps everything in maps.
type Store struct {
	notify store.Notifier

	mu     sync.Mutex // guards all below
	closed bool
	logs   map[frames.SessionID]*log
	rows   map[string]map[string][]byte // table, key
}

// log is one session: its head and the events First … Seq.
type log struct {
	head store.Head
	evs  []store.Event
}

var _ store.Snapshotter = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{logs: map[frames.SessionID]*log{}, rows: map[string]map[string][]byte{}}
}

// enter locks the store for one call that must not start after ctx's end.
func (s *Store) enter(ctx context.Context) error {
	if err := store.Cancelled(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// Head implements [store.Store].
func (s *Store) Head(ctx context.Context, sid frames.SessionID) (store.Head, error) {
	if err := s.enter(ctx); err != nil {
		return store.Head{}, err
	}
	defer s.mu.Unlock()
	return s.head(sid), nil
}

func (s *Store) head(sid frames.SessionID) store.Head {
	if l := s.logs[sid]; l != nil {
		return l.head
	}
	return store.Head{}
}

// Append implements [store.Store].
func (s *Store) Append(ctx context.Context, sid frames.SessionID, at store.Head, evs []store.Event, rows ...store.Row) (store.Head, error) {
	if err := store.CheckAppend(sid, evs, rows); err != nil {
		return store.Head{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Head{}, err
	}
	defer s.notify.Changed(sid)
	defer s.mu.Unlock()
	head := s.head(sid)
	switch {
	case head.Deleted:
		return store.Head{}, store.ErrDeleted
	case at.Rev != head.Rev || at.Fence < head.Fence:
		return s.repeated(sid, at, evs)
	}
	if head.Seq == 0 {
		head.First, head.Epoch = 1, frames.Epoch(rand.Text())
	}
	head.Fence = at.Fence
	head = s.push(sid, head, evs)
	s.put(rows)
	return head, nil
}

// repeated answers an append whose at is not the head: with the head it made,
// if evs are what is stored there, and with a conflict otherwise.
func (s *Store) repeated(sid frames.SessionID, at store.Head, evs []store.Event) (store.Head, error) {
	head := s.head(sid)
	last := at.Seq + frames.Seq(len(evs))
	if last < max(head.First, 1) || last > head.Seq {
		return store.Head{}, &store.ConflictError{Actual: head}
	}
	for i := range evs {
		seq := at.Seq + 1 + frames.Seq(i)
		if seq >= head.First && (evs[i].ID == "" || s.logs[sid].evs[seq-head.First].ID != evs[i].ID) {
			return store.Head{}, &store.ConflictError{Actual: head}
		}
	}
	then := head
	then.Seq, then.Rev, then.LastID = last, uint64(last), evs[len(evs)-1].ID
	return then, nil
}

// push appends copies of evs after head and returns the new head.
func (s *Store) push(sid frames.SessionID, head store.Head, evs []store.Event) store.Head {
	l := s.logs[sid]
	if l == nil {
		l = &log{}
		s.logs[sid] = l
	}
	for _, e := range evs {
		head.Seq++
		e.Seq, e.Fence, e.Data = head.Seq, head.Fence, bytes.Clone(e.Data)
		l.evs = append(l.evs, e)
		head.LastID = e.ID
	}
	head.Rev = uint64(head.Seq)
	l.head = head
	return head
}

func (s *Store) put(rows []store.Row) {
	for _, r := range rows {
		if r.Value == nil {
			delete(s.rows[r.Table], r.Key)
			continue
		}
		if s.rows[r.Table] == nil {
			s.rows[r.Table] = map[string][]byte{}
		}
		s.rows[r.Table][r.Key] = append([]byte{}, r.Value...)
	}
}

// Read implements [store.Store].
func (s *Store) Read(ctx context.Context, sid frames.SessionID, after frames.Seq, limit, maxBytes int) ([]store.Event, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	head := s.head(sid)
	switch {
	case head.Deleted:
		return nil, store.ErrDeleted
	case after >= head.Seq:
		return nil, nil
	case after+1 < head.First:
		return nil, &store.TrimmedError{First: head.First}
	}
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	if maxBytes <= 0 {
		maxBytes = store.DefaultBytes
	}
	var out []store.Event
	size := 0
	for _, e := range s.logs[sid].evs[after+1-head.First:] {
		if size += len(e.Data); len(out) > 0 && size > maxBytes || len(out) == limit {
			break
		}
		e.Data = bytes.Clone(e.Data)
		out = append(out, e)
	}
	return out, nil
}

// Tail implements [store.Store].
func (s *Store) Tail(ctx context.Context, sid frames.SessionID, after frames.Seq) (store.Tailer, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if s.head(sid).Deleted {
		return nil, store.ErrDeleted
	}
	return store.NewTailer(s, &s.notify, sid, after), nil
}

// Trim implements [store.Store].
func (s *Store) Trim(ctx context.Context, sid frames.SessionID, before frames.Seq, rows ...store.Row) error {
	if err := store.CheckRows(rows); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	head := s.head(sid)
	if head.Deleted {
		return store.ErrDeleted
	}
	if first := min(before, head.Seq); first > head.First {
		l := s.logs[sid]
		l.evs = slices.Clone(l.evs[first-head.First:])
		l.head.First = first
	}
	s.put(rows)
	return nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, sid frames.SessionID, at store.Head) error {
	if err := store.CheckSession(sid); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.notify.Changed(sid)
	defer s.mu.Unlock()
	head := s.head(sid)
	switch {
	case head.Deleted:
		return nil
	case at.Rev != head.Rev || at.Fence < head.Fence:
		return &store.ConflictError{Actual: head}
	}
	s.logs[sid] = &log{head: store.Head{Deleted: true}}
	for _, t := range s.rows {
		maps.DeleteFunc(t, func(key string, _ []byte) bool { return store.Owns(sid, key) })
	}
	return nil
}

// Size implements [store.Store].
func (s *Store) Size(ctx context.Context, sid frames.SessionID) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := int64(0)
	if l := s.logs[sid]; l != nil {
		for i := range l.evs {
			n += int64(len(l.evs[i].Data))
		}
	}
	return n, nil
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, prefix string, afterSID frames.SessionID, limit int) ([]store.Summary, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	var out []store.Summary
	for _, sid := range slices.Sorted(maps.Keys(s.logs)) {
		head := s.logs[sid].head
		if sid <= afterSID || head.Deleted || !strings.HasPrefix(string(sid), prefix) {
			continue
		}
		if len(out) == limit {
			break
		}
		out = append(out, store.Summary{SessionID: sid, Head: head, Record: bytes.Clone(s.rows[store.TableSession][string(sid)])})
	}
	return out, nil
}

// Restore implements [store.Store].
func (s *Store) Restore(ctx context.Context, sid frames.SessionID, epoch frames.Epoch, firstSeq frames.Seq, evs []store.Event) (store.Head, error) {
	if err := store.CheckRestore(sid, firstSeq, evs); err != nil {
		return store.Head{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Head{}, err
	}
	defer s.notify.Changed(sid)
	defer s.mu.Unlock()
	head := s.head(sid)
	switch {
	case head.Deleted:
		return store.Head{}, store.ErrDeleted
	case store.Restored(head, epoch, firstSeq, evs):
		return head, nil
	case head.Seq != 0:
		return store.Head{}, &store.ConflictError{Actual: head}
	}
	if epoch == "" {
		epoch = frames.Epoch(rand.Text())
	}
	return s.push(sid, store.Head{Seq: firstSeq - 1, First: firstSeq, Epoch: epoch}, evs), nil
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, table, key string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return bytes.Clone(s.rows[table][key]), nil
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, rows ...store.Row) error {
	if err := store.CheckRows(rows); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.put(rows)
	return nil
}

// Scan implements [store.Store].
func (s *Store) Scan(ctx context.Context, table, prefix, afterKey string, limit int) ([]store.Row, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	var out []store.Row
	for _, key := range slices.Sorted(maps.Keys(s.rows[table])) {
		if key <= afterKey || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(out) == limit {
			break
		}
		out = append(out, store.Row{Table: table, Key: key, Value: bytes.Clone(s.rows[table][key])})
	}
	return out, nil
}

// Close implements [store.Store]. What was stored is gone.
func (s *Store) Close() error {
	defer s.notify.ChangedAll()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
