package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
)

// Memory keeps blobs in memory, for hosts that keep nothing. It is safe for
// concurrent use.
type Memory struct {
	quota
	mu    sync.Mutex // guards blobs
	blobs map[frames.BlobID][]byte
}

// NewMemory returns an empty store. limit is in bytes, 0 means [DefaultQuota].
func NewMemory(limit int64) *Memory {
	if limit <= 0 {
		limit = DefaultQuota
	}
	return &Memory{quota: quota{limit: limit}, blobs: map[frames.BlobID][]byte{}}
}

// Put keeps everything that r yields and returns its id and size, or [ErrQuota].
func (s *Memory) Put(ctx context.Context, r io.Reader) (frames.BlobID, int64, error) {
	m := &meter{ctx: ctx, r: r, q: &s.quota}
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(m); err != nil {
		s.give(m.taken)
		return "", 0, fmt.Errorf("write a blob: %w", err)
	}
	sum := sha256.New()
	sum.Write(buf.Bytes())
	id := idOf(sum)
	s.mu.Lock()
	_, had := s.blobs[id]
	if !had {
		s.blobs[id] = buf.Bytes()
	}
	s.mu.Unlock()
	if had {
		s.give(m.taken)
	}
	return id, m.taken, nil
}

// Read returns at most limit bytes (0: [MaxPage], which is also the most) from
// offset on, or [ErrNotFound].
func (s *Memory) Read(_ context.Context, id frames.BlobID, offset int64, limit int) (Page, error) {
	s.mu.Lock()
	b, ok := s.blobs[id]
	s.mu.Unlock()
	if !ok {
		return Page{}, ErrNotFound
	}
	at, n := pageBounds(int64(len(b)), offset, limit)
	return Page{Data: slices.Clone(b[at : at+int64(n)]), Bytes: int64(len(b))}, nil
}

// Open opens a whole blob, or returns [ErrNotFound].
func (s *Memory) Open(_ context.Context, id frames.BlobID) (io.ReadCloser, error) {
	s.mu.Lock()
	b, ok := s.blobs[id]
	s.mu.Unlock()
	if !ok {
		return nil, ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// Close does nothing.
func (s *Memory) Close() error { return nil }
