package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

const tempPrefix = ".new-"

// Dir keeps blobs as files of one directory. It is safe for concurrent use, by one
// process at a time.
type Dir struct {
	quota
	root *os.Root
}

// OpenDir opens dir, made with mode 0700 if it is missing, and counts what is in
// it; files that an interrupted write left are removed. quota is in bytes, 0 means
// [DefaultQuota].
func OpenDir(dir string, limit int64) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the blob directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the blob directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: it is not a directory (or a link to one); name a directory for blobs", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the blob directory private: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the blob directory: %w", err)
	}
	d := &Dir{root: root}
	if d.limit = limit; limit <= 0 {
		d.limit = DefaultQuota
	}
	if err := d.count(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// count sums up the blobs and clears leftovers.
func (d *Dir) count() error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list the blob directory: %w", err)
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if err := d.root.Remove(e.Name()); err != nil {
				return fmt.Errorf("remove an unfinished blob: %w", err)
			}
		case ValidID(frames.BlobID(e.Name())):
			info, err := e.Info()
			if err != nil {
				return fmt.Errorf("look at a blob: %w", err)
			}
			d.used += info.Size()
		}
	}
	return nil
}

// Close lets go of the directory. Later calls fail.
func (d *Dir) Close() error { return d.root.Close() }

// Put keeps everything that r yields and returns its id and size. It blocks for
// the reading and one fsync; when it returns nil the blob survives a crash. The
// error is [ErrQuota] when there is no room; nothing is kept then.
func (d *Dir) Put(ctx context.Context, r io.Reader) (frames.BlobID, int64, error) {
	temp := tempPrefix + rand.Text()
	m := &meter{ctx: ctx, r: r, q: &d.quota}
	id, err := d.write(temp, m)
	if err == nil {
		var fresh bool
		if fresh, err = d.place(temp, id); fresh {
			return id, m.taken, err
		}
	}
	_ = d.root.Remove(temp) // absent once renamed
	d.give(m.taken)
	if err != nil {
		return "", 0, err
	}
	return id, m.taken, nil
}

// write fills a new file and syncs it.
func (d *Dir) write(temp string, m *meter) (_ frames.BlobID, err error) {
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("make a file for a blob: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), m); err != nil {
		return "", fmt.Errorf("write a blob: %w", err)
	}
	if err := f.Sync(); err != nil {
		return "", fmt.Errorf("sync a blob: %w", err)
	}
	return idOf(sum), nil
}

// place gives a written file its name. It reports false when the blob was there
// already; it may be another writer's, who has not synced the name yet. Two
// writers of the same blob at once both count it until the next start; that errs
// towards refusing early.
func (d *Dir) place(temp string, id frames.BlobID) (fresh bool, err error) {
	if info, err := d.root.Lstat(string(id)); err == nil && info.Mode().IsRegular() {
		return false, d.sync()
	}
	if err := d.root.Rename(temp, string(id)); err != nil {
		return false, fmt.Errorf("put a blob in place: %w", err)
	}
	return true, d.sync()
}

// sync makes the names in the directory durable.
func (d *Dir) sync() error {
	dir, err := d.root.Open(".")
	if err != nil {
		return fmt.Errorf("open the blob directory to sync it: %w", err)
	}
	defer dir.Close() //nolint:errcheck // only synced
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("sync the blob directory: %w", err)
	}
	return nil
}

// Open opens a whole blob; the caller closes it. An id that is malformed or unknown
// is [ErrNotFound].
func (d *Dir) Open(ctx context.Context, id frames.BlobID) (io.ReadCloser, error) {
	f, err := d.open(ctx, id)
	if err != nil {
		return nil, err // and no typed nil
	}
	return f, nil
}

func (d *Dir) open(ctx context.Context, id frames.BlobID) (*os.File, error) {
	if !ValidID(id) {
		return nil, ErrNotFound
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := d.root.Open(string(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	} else if err != nil {
		return nil, fmt.Errorf("open a blob: %w", err)
	}
	return f, nil
}

// Read returns at most limit bytes (0: [MaxPage], which is also the most) from
// offset on. An id that is malformed or unknown is [ErrNotFound].
func (d *Dir) Read(ctx context.Context, id frames.BlobID, offset int64, limit int) (Page, error) {
	f, err := d.open(ctx, id)
	if err != nil {
		return Page{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return Page{}, fmt.Errorf("look at a blob: %w", err)
	}
	at, n := pageBounds(info.Size(), offset, limit)
	buf := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(f, at, int64(n)), buf); err != nil {
		return Page{}, fmt.Errorf("read a blob: %w", err)
	}
	return Page{Data: buf, Bytes: info.Size()}, nil
}
