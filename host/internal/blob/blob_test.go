package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
)

// store is what both makers are.
type store interface {
	Put(ctx context.Context, r io.Reader) (frames.BlobID, int64, error)
	Read(ctx context.Context, id frames.BlobID, offset int64, limit int) (blob.Page, error)
	Open(ctx context.Context, id frames.BlobID) (io.ReadCloser, error)
	Used() int64
	Close() error
}

// both runs a test against each maker.
func both(t *testing.T, limit int64, f func(t *testing.T, s store)) {
	t.Run("memory", func(t *testing.T) { f(t, blob.NewMemory(limit)) })
	t.Run("dir", func(t *testing.T) { f(t, open(t, t.TempDir(), limit)) })
}

func open(t *testing.T, dir string, limit int64) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// An opened blob yields the whole, however large, also while others read it.
func TestAnOpenedBlobIsTheWhole(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		whole := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
		id, _, err := s.Put(t.Context(), bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		var readers [2]io.ReadCloser
		for i := range readers {
			if readers[i], err = s.Open(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range readers {
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, whole) {
				t.Errorf("read %d bytes, %v; want the %d that were put", len(got), err, len(whole))
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A blob's id is its SHA-256, pages put together are the whole, and the same
// content is kept once.
func TestPagesOfABlobMakeTheWhole(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		whole := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
		id, n, err := s.Put(t.Context(), iotest.HalfReader(bytes.NewReader(whole)))
		if err != nil || n != int64(len(whole)) || id != frames.BlobID(fmt.Sprintf("sha256-%x", sha256.Sum256(whole))) {
			t.Fatalf("Put = %s, %d, %v", id, n, err)
		}
		if again, _, err := s.Put(t.Context(), bytes.NewReader(whole)); err != nil || again != id || s.Used() != n {
			t.Errorf("the same again = %s, %v; %d bytes used, want %d", again, err, s.Used(), n)
		}
		var got []byte
		for {
			p, err := s.Read(t.Context(), id, int64(len(got)), 99_999)
			if err != nil || p.Bytes != n {
				t.Fatalf("Read at %d = %d bytes of %d, %v", len(got), len(p.Data), p.Bytes, err)
			}
			if len(p.Data) == 0 {
				break
			}
			got = append(got, p.Data...)
		}
		if !bytes.Equal(got, whole) {
			t.Errorf("read %d bytes that differ from the %d written", len(got), len(whole))
		}
		if p, err := s.Read(t.Context(), id, 0, 1<<30); err != nil || len(p.Data) != blob.MaxPage {
			t.Errorf("a huge limit gave %d bytes, %v; want %d", len(p.Data), err, blob.MaxPage)
		}
		for _, off := range []int64{-1, n, n + 1, 1 << 60} {
			if _, err := s.Read(t.Context(), id, off, 10); err != nil {
				t.Errorf("Read at %d: %v", off, err)
			}
		}
	})
}

// Ids that are not exactly 64 lower case hex digits never reach the file system.
func TestOddIDsAreNotFound(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		zero := strings.Repeat("0", 64)
		for _, id := range []string{"", "sha256-", "sha256-" + zero, "sha256-" + zero + "0", "sha256-../" + zero[3:], "../secret", "/etc/passwd", "SHA256-" + zero, "sha256-" + strings.Repeat("A", 64), zero} {
			if r, err := s.Open(t.Context(), frames.BlobID(id)); !errors.Is(err, blob.ErrNotFound) || r != nil {
				t.Errorf("Open(%q) = %v, %v, want nil, ErrNotFound", id, r, err)
			}
			if _, err := s.Read(t.Context(), frames.BlobID(id), 0, 10); !errors.Is(err, blob.ErrNotFound) {
				t.Errorf("Read(%q) = %v, want ErrNotFound", id, err)
			}
		}
	})
}

// A write beyond the quota, one whose source fails and one that is cancelled leave
// nothing behind and free what they had taken.
func TestFailedWritesLeaveNothing(t *testing.T) {
	both(t, 1000, func(t *testing.T, s store) {
		if _, _, err := s.Put(t.Context(), bytes.NewReader(make([]byte, 600))); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Put(t.Context(), bytes.NewReader(bytes.Repeat([]byte("x"), 600))); !errors.Is(err, blob.ErrQuota) {
			t.Errorf("beyond the quota: %v, want ErrQuota", err)
		}
		broken := errors.New("broken")
		if _, _, err := s.Put(t.Context(), io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
			t.Errorf("a failing source: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.Put(ctx, strings.NewReader("abc")); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if s.Used() != 600 {
			t.Errorf("%d bytes are counted, want 600", s.Used())
		}
		if _, _, err := s.Put(t.Context(), bytes.NewReader(make([]byte, 400))); err != nil {
			t.Errorf("what fits exactly: %v", err)
		}
	})
}

// A reopened directory knows its blobs and their size, has cleared what an
// interrupted write left, and is private.
func TestReopenedDirectoryKeepsItsBlobs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	d := open(t, dir, 0)
	id, _, err := d.Put(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".new-LEFT"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d = open(t, dir, 0)
	p, err := d.Read(t.Context(), id, 1, 3)
	if err != nil || string(p.Data) != "ell" || p.Bytes != 5 || d.Used() != 5 {
		t.Errorf("after reopening: %q of %d, %v, %d used", p.Data, p.Bytes, err, d.Used())
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v; want one blob", entries, err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, string(id)): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

// A link planted under a blob's name is not followed out of the directory, and a
// link in place of the directory is refused.
func TestLinksOutOfTheDirectoryAreRefused(t *testing.T) {
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "blobs")
	d := open(t, dir, 0)
	id := "sha256-" + strings.Repeat("0", 64)
	if err := os.Symlink("../secret", filepath.Join(dir, id)); err != nil {
		t.Fatal(err)
	}
	if p, err := d.Read(t.Context(), frames.BlobID(id), 0, 10); err == nil {
		t.Errorf("a planted link was read: %q", p.Data)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.OpenDir(link, 0); err == nil {
		t.Error("a link in place of the directory was accepted")
	}
}

// Many writers of the same and of different blobs at once all succeed.
func TestConcurrentWritersAgree(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				want := fmt.Sprintf("blob %d", i%4)
				id, _, err := s.Put(t.Context(), strings.NewReader(want))
				if err != nil {
					t.Errorf("Put: %v", err)
					return
				}
				if p, err := s.Read(t.Context(), id, 0, 0); err != nil || string(p.Data) != want {
					t.Errorf("Read = %q, %v; want %q", p.Data, err, want)
				}
			})
		}
		wg.Wait()
	})
}
