package blob

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/muxhost/muxhost/frames"
)

// fileDraft is a draft in a file of the directory. A crash leaves it behind, and
// the next [OpenDir] removes it.
type fileDraft struct {
	d     *Dir
	f     *os.File
	name  string
	bytes int64
	// placed says that the file has the blob's name already.
	placed bool
}

func (d *Dir) newDraft() (draft, error) {
	name := tempPrefix + rand.Text()
	f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file for an upload: %w", err)
	}
	return &fileDraft{d: d, f: f, name: name}, nil
}

// Write appends p. What a failed write left is overwritten by the next.
func (w *fileDraft) Write(p []byte) (int, error) {
	if err := w.d.take(int64(len(p))); err != nil {
		return 0, err
	}
	if _, err := w.f.WriteAt(p, w.bytes); err != nil {
		w.d.give(int64(len(p)))
		return 0, fmt.Errorf("write an upload: %w", err)
	}
	w.bytes += int64(len(p))
	return len(p), nil
}

func (w *fileDraft) at(offset int64, n int) ([]byte, error) {
	p := make([]byte, n)
	if _, err := w.f.ReadAt(p, offset); err != nil {
		return nil, fmt.Errorf("read an upload: %w", err)
	}
	return p, nil
}

func (w *fileDraft) keep(id frames.BlobID) error {
	if err := errors.Join(w.f.Truncate(w.bytes), w.f.Sync()); err != nil {
		return fmt.Errorf("sync an upload: %w", err)
	}
	fresh, err := w.d.place(w.name, id)
	w.placed = w.placed || fresh
	if err != nil {
		return err
	}
	w.drop()
	return nil
}

// drop closes the file, and removes it unless it has become a blob.
func (w *fileDraft) drop() {
	_ = w.f.Close() // it was synced, or is of no use
	if w.placed {
		return
	}
	_ = w.d.root.Remove(w.name) // at the next start, if it fails
	w.d.give(w.bytes)
}

// memoryDraft is a draft in memory.
type memoryDraft struct {
	s   *Memory
	buf bytes.Buffer
}

func (s *Memory) newDraft() (draft, error) { return &memoryDraft{s: s}, nil }

func (w *memoryDraft) Write(p []byte) (int, error) {
	if err := w.s.take(int64(len(p))); err != nil {
		return 0, err
	}
	return w.buf.Write(p)
}

func (w *memoryDraft) at(offset int64, n int) ([]byte, error) {
	return w.buf.Bytes()[offset : offset+int64(n)], nil
}

func (w *memoryDraft) keep(id frames.BlobID) error {
	w.s.mu.Lock()
	_, had := w.s.blobs[id]
	if !had {
		w.s.blobs[id] = w.buf.Bytes()
	}
	w.s.mu.Unlock()
	if had {
		w.drop()
	}
	return nil
}

func (w *memoryDraft) drop() { w.s.give(int64(w.buf.Len())) }
