package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// Limits of uploads.
const (
	// MaxChunk bounds the data of one chunk, in bytes.
	MaxChunk = 512 << 10
	// MaxUpload bounds one upload, in bytes.
	MaxUpload = 64 << 20
	// MaxUploads bounds the unfinished uploads of one owner.
	MaxUploads = 4
	// UploadIdle is how long an upload is kept without a new chunk.
	UploadIdle = 10 * time.Minute
	// UploadYield is how long an upload has to have been idle to make room for a
	// new one of its owner, whose answers may have been lost.
	UploadYield = time.Minute
)

// maxFinished bounds the finished uploads of one owner that are remembered, so
// that the last chunk can be repeated.
const maxFinished = 16

// What callers of [Uploads.Write] branch on, beside [ErrQuota].
var (
	ErrNoUpload   = errors.New("blob: there is no such upload; it may have been idle too long")
	ErrTooMany    = errors.New("blob: too many uploads are unfinished")
	ErrUploadSize = fmt.Errorf("blob: an upload holds at most %d bytes, a chunk %d", MaxUpload, MaxChunk)
)

// OffsetError reports a chunk that does not begin where the upload ends, and does
// not repeat what is there.
type OffsetError struct{ Offset, Bytes int64 }

func (e *OffsetError) Error() string {
	return fmt.Sprintf("expected the upload's next byte, %d, got %d; go on from there", e.Bytes, e.Offset)
}

// RepeatError reports a chunk that says otherwise than what was written there.
type RepeatError struct{ Offset, Bytes int64 }

func (e *RepeatError) Error() string {
	return fmt.Sprintf("the upload has %d bytes, and those from %d on are not the ones of this chunk", e.Bytes, e.Offset)
}

// DigestError reports a whole whose digest is not the one that was promised; the
// upload is dropped.
type DigestError struct{ Want, Got string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("the whole has the digest %s, expected %s; the upload is dropped, begin anew", e.Got, e.Want)
}

// Progress is how far an upload is: Blob is set once it is whole.
type Progress struct {
	Upload string
	Bytes  int64
	Blob   frames.BlobID
}

// draft keeps the bytes of an upload until it is whole. Its methods are called
// one at a time.
type draft interface {
	// Write appends p, all or nothing.
	Write(p []byte) (int, error)
	// at returns the n bytes from an offset on.
	at(offset int64, n int) ([]byte, error)
	// keep makes the whole a blob, durably; the draft is done for then, or as if
	// nothing happened.
	keep(id frames.BlobID) error
	// drop gives the bytes up.
	drop()
}

// Drafts is what [Uploads] writes to; [Dir] and [Memory] are.
type Drafts interface {
	newDraft() (draft, error)
}

// Uploads are blobs that come in chunks. It is safe for concurrent use; whoever
// makes one ends it with [Uploads.Close].
type Uploads struct {
	to   Drafts
	stop chan struct{}
	wake chan struct{} // capacity 1: there is a first upload to watch
	once sync.Once
	wg   sync.WaitGroup

	mu  sync.Mutex // guards all and the used field of uploads
	all map[string]*upload
}

// upload is one blob on its way.
type upload struct {
	id, owner string
	used      time.Time
	// busy is full while a chunk is being written; its holder owns what follows.
	busy  chan struct{}
	draft draft // nil once it is whole, or dropped
	sum   hash.Hash
	bytes int64
	gone  bool
	// blob is set, under mu too, when it is whole.
	blob frames.BlobID
}

// NewUploads returns uploads that become blobs of to. It starts a goroutine that
// drops those that are idle.
func NewUploads(to Drafts) *Uploads {
	u := &Uploads{to: to, all: map[string]*upload{}, stop: make(chan struct{}), wake: make(chan struct{}, 1)}
	u.wg.Go(u.watch)
	return u
}

// Close drops what is unfinished and waits. Later writes find no upload.
func (u *Uploads) Close() {
	u.once.Do(func() { close(u.stop) })
	u.wg.Wait()
	u.sweep(time.Time{})
}

// Write takes the chunk of owner's upload that begins at offset; an empty id
// begins an upload. digest, the SHA-256 of the whole in hex, goes with the last
// chunk, which makes it a blob. A chunk that is there already, byte for byte, is
// harmless, so that whoever missed the answer repeats it. It blocks for the disk,
// with the last chunk for an fsync. Errors: [ErrNoUpload], [ErrTooMany],
// [ErrUploadSize], [ErrQuota], *[OffsetError], *[RepeatError], *[DigestError]; but
// for the last, the upload stays as it was.
func (u *Uploads) Write(ctx context.Context, owner, id string, offset int64, data []byte, digest string) (Progress, error) {
	if len(data) > MaxChunk || offset > MaxUpload-int64(len(data)) {
		return Progress{}, ErrUploadSize
	}
	up, old, err := u.find(owner, id)
	if err != nil {
		return Progress{}, err
	}
	if old != nil {
		u.end(old)
	}
	select {
	case up.busy <- struct{}{}:
	case <-ctx.Done():
		return Progress{}, context.Cause(ctx)
	}
	defer func() { <-up.busy }()
	p, err := u.write(up, offset, data, digest)
	if id == "" && err != nil { // nobody knows its id
		u.drop(up)
	}
	return p, err
}

// drop ends an upload, for whoever holds up.busy.
func (u *Uploads) drop(up *upload) {
	up.gone = true
	if up.draft != nil {
		up.draft.drop()
		up.draft = nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, up.id)
}

// end drops an upload that nobody finds any more.
func (u *Uploads) end(up *upload) {
	up.busy <- struct{}{} // not for long: a chunk is a few writes to the disk
	u.drop(up)
	<-up.busy
}

// find returns an upload of owner's, a new one for an empty id; old is one that
// made room for it, to be ended.
func (u *Uploads) find(owner, id string) (up, old *upload, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if id != "" {
		up := u.all[id]
		if up == nil || up.owner != owner {
			return nil, nil, ErrNoUpload
		}
		up.used = now
		return up, nil, nil
	}
	select {
	case <-u.stop:
		return nil, nil, ErrNoUpload
	default:
	}
	if old, err = u.roomLocked(owner, now); err != nil {
		return nil, nil, err
	}
	up = &upload{id: rand.Text(), owner: owner, used: now, busy: make(chan struct{}, 1), sum: sha256.New()}
	u.all[up.id] = up
	select {
	case u.wake <- struct{}{}:
	default:
	}
	return up, old, nil
}

// roomLocked makes room for one more upload of owner's: where there is none, the
// one that has been idle longest is forgotten and returned, if that is long.
func (u *Uploads) roomLocked(owner string, now time.Time) (old *upload, err error) {
	open := 0
	for _, o := range u.all {
		if o.owner == owner && o.blob == "" {
			open++
			if old == nil || o.used.Before(old.used) {
				old = o
			}
		}
	}
	switch {
	case open < MaxUploads:
		return nil, nil
	case now.Sub(old.used) < UploadYield:
		return nil, fmt.Errorf("%w: %d, at most %d at a time; finish one, or wait until one was idle for %v", ErrTooMany, open, MaxUploads, UploadYield)
	}
	delete(u.all, old.id)
	return old, nil
}

// write is [Uploads.Write] for whoever holds up.busy.
func (u *Uploads) write(up *upload, offset int64, data []byte, digest string) (Progress, error) {
	switch {
	case up.gone:
		return Progress{}, ErrNoUpload
	case up.blob != "":
		return u.repeatLast(up, offset, data, digest)
	case up.draft == nil:
		d, err := u.to.newDraft()
		if err != nil {
			return Progress{}, err
		}
		up.draft = d
	}
	if err := up.take(offset, data); err != nil {
		return Progress{}, err
	}
	p := Progress{Upload: up.id, Bytes: up.bytes}
	if digest == "" {
		return p, nil
	}
	got := hex.EncodeToString(up.sum.Sum(nil))
	if digest != got {
		u.drop(up)
		return Progress{}, &DigestError{Want: digest, Got: got}
	}
	p.Blob = idOf(up.sum)
	if err := up.draft.keep(p.Blob); err != nil {
		return Progress{}, err
	}
	up.draft = nil
	u.finished(up, p.Blob)
	return p, nil
}

// take appends a chunk, or finds that it is there.
func (up *upload) take(offset int64, data []byte) error {
	if end := offset + int64(len(data)); offset < up.bytes && end <= up.bytes {
		there, err := up.draft.at(offset, len(data))
		if err != nil {
			return err
		}
		if !bytes.Equal(there, data) {
			return &RepeatError{Offset: offset, Bytes: up.bytes}
		}
		return nil
	}
	if offset != up.bytes {
		return &OffsetError{Offset: offset, Bytes: up.bytes}
	}
	if _, err := up.draft.Write(data); err != nil {
		return err
	}
	up.sum.Write(data)
	up.bytes += int64(len(data))
	return nil
}

// repeatLast answers the last chunk again.
func (u *Uploads) repeatLast(up *upload, offset int64, data []byte, digest string) (Progress, error) {
	if offset+int64(len(data)) != up.bytes || prefix+digest != string(up.blob) {
		return Progress{}, &OffsetError{Offset: offset, Bytes: up.bytes}
	}
	return Progress{Upload: up.id, Bytes: up.bytes, Blob: up.blob}, nil
}

// finished remembers that up is whole, and forgets the oldest of too many.
func (u *Uploads) finished(up *upload, blob frames.BlobID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	up.blob = blob
	done := slices.DeleteFunc(slices.Collect(maps.Values(u.all)), func(o *upload) bool { return o.owner != up.owner || o.blob == "" })
	slices.SortFunc(done, func(a, b *upload) int { return a.used.Compare(b.used) })
	for ; len(done) > maxFinished; done = done[1:] {
		delete(u.all, done[0].id)
	}
}

// watch drops uploads when they have been idle for too long.
func (u *Uploads) watch() {
	timer := time.NewTimer(UploadIdle)
	defer timer.Stop()
	for {
		timer.Stop()
		if at, some := u.nextIdle(); some {
			timer.Reset(time.Until(at))
		}
		select {
		case <-u.stop:
			return
		case <-u.wake:
		case now := <-timer.C:
			u.sweep(now)
		}
	}
}

// nextIdle returns when the next upload will have been idle for too long.
func (u *Uploads) nextIdle() (at time.Time, some bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, up := range u.all {
		if t := up.used.Add(UploadIdle); !some || t.Before(at) {
			at, some = t, true
		}
	}
	return at, some
}

// sweep drops what has been idle for too long; all, with the zero time.
func (u *Uploads) sweep(now time.Time) {
	for _, up := range u.takeIdle(now) {
		u.end(up)
	}
}

// takeIdle forgets what has been idle for too long, and returns it.
func (u *Uploads) takeIdle(now time.Time) (idle []*upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, up := range u.all {
		if now.IsZero() || !now.Before(up.used.Add(UploadIdle)) {
			idle = append(idle, up)
			delete(u.all, id)
		}
	}
	return idle
}
