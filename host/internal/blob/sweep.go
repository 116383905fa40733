package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// listPage is how many names of the directory are read at once.
const listPage = 256

// All yields the id of every blob that exists throughout the call, and perhaps of
// some that come or go meanwhile, in no order. The error is the last pair.
func (d *Dir) All(ctx context.Context) iter.Seq2[frames.BlobID, error] {
	return func(yield func(frames.BlobID, error) bool) {
		dir, err := d.root.Open(".")
		if err != nil {
			yield("", fmt.Errorf("list the blob directory: %w", err))
			return
		}
		defer dir.Close() //nolint:errcheck // only read
		for ctx.Err() == nil {
			entries, err := dir.ReadDir(listPage)
			for _, e := range entries {
				if id := frames.BlobID(e.Name()); e.Type().IsRegular() && ValidID(id) && !yield(id, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield("", fmt.Errorf("list the blob directory: %w", err))
				return
			}
		}
		yield("", context.Cause(ctx))
	}
}

// All is as that of [Dir].
func (s *Memory) All(context.Context) iter.Seq2[frames.BlobID, error] {
	return func(yield func(frames.BlobID, error) bool) {
		s.mu.Lock()
		ids := slices.Collect(maps.Keys(s.blobs))
		s.mu.Unlock()
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}
}

// TempFile makes a private file in the directory that the next opening removes, for
// bytes that are on their way. The caller closes it and removes it by its name.
func (d *Dir) TempFile() (*os.File, error) {
	f, err := os.CreateTemp(d.root.Name(), tempPrefix+"*")
	if err != nil {
		return nil, fmt.Errorf("make a file beside the blobs: %w", err)
	}
	return f, nil
}

// TempFile makes a private file in the system's directory for such files.
func (s *Memory) TempFile() (*os.File, error) { return os.CreateTemp("", "muxhost-*") }

// Swept is what a sweep did.
type Swept struct {
	Kept, Removed           int
	KeptBytes, RemovedBytes int64
	// Young are those of Kept that nobody needs, but that are not old enough.
	Young int
}

// Sweep removes the blobs that needed refuses and that were written before the
// given time. Nobody else uses the directory meanwhile: a blob that is put at the
// same time could be taken for an old one. Killed at any moment, it has removed
// some of them. It ends with ctx.
func (d *Dir) Sweep(ctx context.Context, needed func(frames.BlobID) bool, before time.Time) (Swept, error) {
	var out Swept
	var dead []frames.BlobID
	for id, err := range d.All(ctx) {
		if err != nil {
			return out, err
		}
		info, err := d.root.Lstat(string(id))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, fmt.Errorf("look at a blob: %w", err)
		}
		switch {
		case !needed(id) && info.ModTime().Before(before):
			dead = append(dead, id)
			out.RemovedBytes += info.Size()
			continue
		case !needed(id):
			out.Young++
		}
		out.Kept++
		out.KeptBytes += info.Size()
	}
	for _, id := range dead {
		if err := d.root.Remove(string(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("remove a blob: %w", err)
		}
		out.Removed++
	}
	d.give(out.RemovedBytes)
	return out, d.sync()
}

// ID returns the id of the content with a SHA-256 in hex.
func ID(digest string) frames.BlobID { return frames.BlobID(prefix + digest) }

// Find appends every id that stands anywhere in text to ids.
func Find(ids []frames.BlobID, text []byte) []frames.BlobID {
	const size = len(prefix) + 2*sha256.Size
	for {
		i := bytes.Index(text, []byte(prefix))
		if i < 0 || len(text)-i < size {
			return ids
		}
		if id := frames.BlobID(text[i : i+size]); ValidID(id) {
			ids = append(ids, id)
			i += size - 1
		}
		text = text[i+1:]
	}
}

// Verify reads a blob and compares its content with its id.
func (d *Dir) Verify(ctx context.Context, id frames.BlobID) error {
	f, err := d.root.Open(string(id))
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("open a blob: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("read a blob: %w", err)
	}
	if got := idOf(sum); got != id {
		return fmt.Errorf("the content of blob %s has the digest %s", id, got)
	}
	return ctx.Err()
}
