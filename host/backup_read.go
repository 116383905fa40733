package host

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store"
)

// ErrBackup is wrapped by errors that say that a backup is not whole, or none.
var ErrBackup = errors.New("host: this is no whole backup")

// BackupSink takes what [ReadBackup] reads; nil functions are left out. A function
// need not read all it is given.
type BackupSink struct {
	// Store gets the store's snapshot, before any blob.
	Store func(io.Reader) error
	Blob  func(frames.BlobID, io.Reader) error
}

// ReadBackup reads a backup to its end and compares everything with its digest.
// What a sink was given counts only once ReadBackup returned nil. Its memory does
// not depend on the backup's size. The error wraps [ErrBackup] unless it is one of
// reading or the sink's own.
func ReadBackup(ctx context.Context, r io.Reader, sink BackupSink) (BackupSummary, error) {
	rd := &backupReader{ctx: ctx, tar: tar.NewReader(r), sink: sink}
	for {
		h, err := rd.tar.Next()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return rd.sum, tarError(err)
		}
		if err := rd.entry(h); err != nil {
			return rd.sum, err
		}
	}
	if rd.seen != seenEnd {
		return rd.sum, fmt.Errorf("%w: it was cut short; take another one", ErrBackup)
	}
	return rd.sum, nil
}

// tarError tells a file that is no tar from one that cannot be read.
func tarError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it was cut short, or it is no tar: %w", ErrBackup, err)
	}
	return fmt.Errorf("host: read the backup: %w", err)
}

// What of a backup was read so far.
const (
	seenNothing = iota
	seenManifest
	seenStore
	seenEnd
)

type backupReader struct {
	ctx  context.Context //nolint:containedctx // lives as long as one ReadBackup
	tar  *tar.Reader
	sink BackupSink
	seen int
	sum  BackupSummary
}

// entry takes one entry; they come in one order.
func (b *backupReader) entry(h *tar.Header) error {
	id, isBlob := strings.CutPrefix(h.Name, backupBlobs)
	switch {
	case h.Typeflag != tar.TypeReg:
	case h.Name == backupManifest && b.seen == seenNothing:
		b.seen = seenManifest
		return b.manifest()
	case h.Name == backupStore && b.seen == seenManifest:
		b.seen = seenStore
		return b.store(h.Size)
	case isBlob && b.seen == seenStore && blob.ValidID(frames.BlobID(id)):
		return b.blob(frames.BlobID(id), h.Size)
	case h.Name == backupEnd && b.seen == seenStore:
		b.seen = seenEnd
		return b.end()
	}
	return fmt.Errorf("%w: it has %.80q where that does not belong; give a file that muxhost backup wrote", ErrBackup, h.Name)
}

// json reads a small entry.
func (b *backupReader) json(name string, v any) error {
	p, err := io.ReadAll(io.LimitReader(b.tar, 1<<20))
	if err != nil {
		return tarError(err)
	}
	if err := json.Unmarshal(p, v); err != nil {
		return fmt.Errorf("%w: its %s does not parse: %w", ErrBackup, name, err)
	}
	return nil
}

func (b *backupReader) manifest() error {
	m := &b.sum.BackupManifest
	if err := b.json(backupManifest, m); err != nil {
		return err
	}
	if m.Format != BackupFormat {
		return fmt.Errorf("%w that this version reads: its format is %d, want %d; use muxhost %s, which wrote it, or a newer one", ErrBackup, m.Format, BackupFormat, m.Version)
	}
	return nil
}

// pass hands an entry to its sink and returns the digest of all of it.
func (b *backupReader) pass(size int64, sink func(io.Reader) error) (string, error) {
	sum := sha256.New()
	r := io.TeeReader(b.tar, sum)
	if sink != nil {
		if err := sink(r); errors.Is(err, io.ErrUnexpectedEOF) {
			return "", tarError(err)
		} else if err != nil {
			return "", err
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return "", tarError(err)
	}
	return hex.EncodeToString(sum.Sum(nil)), b.ctx.Err()
}

func (b *backupReader) store(size int64) (err error) {
	if size != b.sum.StoreBytes {
		return fmt.Errorf("%w: the store has %d bytes, and its manifest says %d", ErrBackup, size, b.sum.StoreBytes)
	}
	b.sum.StoreSHA256, err = b.pass(size, b.sink.Store)
	return err
}

func (b *backupReader) blob(id frames.BlobID, size int64) error {
	var sink func(io.Reader) error
	if b.sink.Blob != nil {
		sink = func(r io.Reader) error { return b.sink.Blob(id, r) }
	}
	sum, err := b.pass(size, sink)
	if err != nil {
		return err
	}
	if blob.ID(sum) != id {
		return fmt.Errorf("%w: the content of blob %s has the digest %s", ErrBackup, id, sum)
	}
	b.sum.Blobs++
	b.sum.BlobBytes += size
	return nil
}

// end compares what was read with what was written.
func (b *backupReader) end() error {
	var want BackupSummary
	if err := b.json(backupEnd, &want); err != nil {
		return err
	}
	if got := b.sum; got.StoreSHA256 != want.StoreSHA256 || got.Blobs != want.Blobs || got.BlobBytes != want.BlobBytes {
		return fmt.Errorf("%w: it holds a store of digest %s and %d blobs, and was written with %s and %d", ErrBackup, got.StoreSHA256, got.Blobs, want.StoreSHA256, want.Blobs)
	}
	return nil
}

// The names within a directory that [UnpackBackup] filled.
const (
	UnpackedStore = "store"
	UnpackedBlobs = "blobs"
)

// UnpackBackup is [ReadBackup] into a directory, which is empty: the snapshot as
// UnpackedStore, the blobs in UnpackedBlobs, all of mode 0600 and synced. After an
// error the directory holds some of it.
func UnpackBackup(ctx context.Context, r io.Reader, dir string) (BackupSummary, error) {
	blobs := filepath.Join(dir, UnpackedBlobs)
	if err := os.Mkdir(blobs, 0o700); err != nil {
		return BackupSummary{}, fmt.Errorf("host: unpack: %w", err)
	}
	sum, err := ReadBackup(ctx, r, BackupSink{
		Store: func(r io.Reader) error { return unpackFile(filepath.Join(dir, UnpackedStore), r) },
		Blob:  func(id frames.BlobID, r io.Reader) error { return unpackFile(filepath.Join(blobs, string(id)), r) },
	})
	if err != nil {
		return sum, err
	}
	return sum, errors.Join(syncDir(blobs), syncDir(dir))
}

func unpackFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("host: unpack: %w", err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("host: unpack: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("host: unpack: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// VerifyBlobs reads every blob in a directory that no host runs on, and yields each
// id with nil, or with an error if its content is not what its id says. A missing
// directory has none. An empty id comes with the error that ended it all.
func VerifyBlobs(ctx context.Context, dir string) func(yield func(frames.BlobID, error) bool) {
	return func(yield func(frames.BlobID, error) bool) {
		d, err := existingBlobs(dir)
		if d == nil {
			if err != nil {
				yield("", err)
			}
			return
		}
		defer d.Close() //nolint:errcheck // only read
		for id, err := range d.All(ctx) {
			if err != nil {
				yield("", err)
				return
			}
			if !yield(id, d.Verify(ctx, id)) {
				return
			}
		}
	}
}

// existingBlobs opens a directory of blobs, nil if there is none.
func existingBlobs(dir string) (*blob.Dir, error) {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	d, err := blob.OpenDir(dir, 0)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return d, nil
}

// SweptBlobs is what [SweepBlobs] did.
type SweptBlobs = blob.Swept

// SweepBlobs removes from a directory that no host runs on the blobs that needed
// refuses, unless they are younger than grace: a client may have written one for a
// prompt that is still to come.
func SweepBlobs(ctx context.Context, dir string, needed func(frames.BlobID) bool, grace time.Duration) (SweptBlobs, error) {
	d, err := existingBlobs(dir)
	if d == nil {
		return SweptBlobs{}, err
	}
	out, err := d.Sweep(ctx, needed, time.Now().Add(-grace))
	if err = errors.Join(err, d.Close()); err != nil {
		return out, fmt.Errorf("host: sweep: %w", err)
	}
	return out, nil
}

// Unfinished reports whether a stored row says that the log of its key is none of a
// session yet: it was being copied, and the next host that starts removes it.
func Unfinished(r store.Row) bool { return session.Unfinished(r) }

// BlobIDs appends the ids that stand anywhere in text to ids: those of its blobs,
// and what only looks like one.
func BlobIDs(ids []frames.BlobID, text []byte) []frames.BlobID { return blob.Find(ids, text) }
