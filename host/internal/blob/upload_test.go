package blob_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
)

// uploads returns uploads into s.
func uploads(t *testing.T, s store) *blob.Uploads {
	t.Helper()
	u := blob.NewUploads(s.(blob.Drafts))
	t.Cleanup(u.Close)
	return u
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// whole reads a blob.
func whole(t *testing.T, s store, id frames.BlobID) []byte {
	t.Helper()
	var out []byte
	for {
		p, err := s.Read(t.Context(), id, int64(len(out)), 0)
		if err != nil {
			t.Fatal(err)
		}
		if out = append(out, p.Data...); int64(len(out)) == p.Bytes {
			return out
		}
	}
}

// Chunks make a blob; whoever missed an answer repeats its chunk, at any point, and
// it changes nothing.
func TestChunksMakeABlob(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		u := uploads(t, s)
		all := bytes.Repeat([]byte("0123456789"), 60_000)
		var p blob.Progress
		for at := 0; at < len(all); at += 100_000 {
			sum := ""
			if at+100_000 == len(all) {
				sum = digest(all)
			}
			chunk := all[at : at+100_000]
			for range 2 { // each twice
				if at == 0 && p.Upload != "" {
					break
				}
				var err error
				if p, err = u.Write(t.Context(), "me", p.Upload, int64(at), chunk, sum); err != nil {
					t.Fatalf("chunk at %d: %v", at, err)
				}
				if p.Bytes != int64(at+len(chunk)) {
					t.Errorf("after the chunk at %d there are %d bytes", at, p.Bytes)
				}
			}
			if _, err := u.Write(t.Context(), "me", p.Upload, 0, all[:100_000], ""); err != nil && p.Blob == "" {
				t.Errorf("the first chunk again: %v", err)
			}
		}
		if p.Blob != frames.BlobID("sha256-"+digest(all)) || !bytes.Equal(whole(t, s, p.Blob), all) {
			t.Errorf("the blob is %s", p.Blob)
		}
		if s.Used() != int64(len(all)) {
			t.Errorf("%d bytes are in use, want %d", s.Used(), len(all))
		}
		// The same again by another owner is kept once.
		q, err := u.Write(t.Context(), "you", "", 0, all[:300_000], "")
		if err == nil {
			q, err = u.Write(t.Context(), "you", q.Upload, 300_000, all[300_000:], digest(all))
		}
		if err != nil || q.Blob != p.Blob || s.Used() != int64(len(all)) {
			t.Errorf("the same content again: %+v, %v, %d bytes in use", q, err, s.Used())
		}
	})
}

// What does not fit what is there is refused and says how much is; the upload
// goes on.
func TestChunksThatDoNotFit(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		u := uploads(t, s)
		p, err := u.Write(t.Context(), "me", "", 0, []byte("abcdef"), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			at   int64
			data string
		}{{7, "x"}, {5, "fg"}} {
			_, err := u.Write(t.Context(), "me", p.Upload, c.at, []byte(c.data), "")
			if e, ok := errors.AsType[*blob.OffsetError](err); !ok || e.Bytes != 6 {
				t.Errorf("%q at %d: %v, want an OffsetError with 6 bytes", c.data, c.at, err)
			}
		}
		_, err = u.Write(t.Context(), "me", p.Upload, 2, []byte("xx"), "")
		if e, ok := errors.AsType[*blob.RepeatError](err); !ok || e.Bytes != 6 {
			t.Errorf("other bytes: %v, want a RepeatError", err)
		}
		if _, err := u.Write(t.Context(), "you", p.Upload, 6, []byte("g"), ""); !errors.Is(err, blob.ErrNoUpload) {
			t.Errorf("another owner: %v, want ErrNoUpload", err)
		}
		if _, err := u.Write(t.Context(), "me", "no-such", 0, nil, ""); !errors.Is(err, blob.ErrNoUpload) {
			t.Errorf("an unknown upload: %v, want ErrNoUpload", err)
		}
		q, err := u.Write(t.Context(), "me", p.Upload, 6, []byte("g"), digest([]byte("abcdefg")))
		if err != nil || string(whole(t, s, q.Blob)) != "abcdefg" {
			t.Errorf("the last chunk: %+v, %v", q, err)
		}
		if _, err := u.Write(t.Context(), "me", p.Upload, 7, []byte("h"), ""); err == nil {
			t.Error("a blob was written on")
		}
	})
}

// A whole that is not what was promised is dropped, and gives its room back.
func TestWrongDigestDropsTheUpload(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		u := uploads(t, s)
		p, err := u.Write(t.Context(), "me", "", 0, []byte("abc"), "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = u.Write(t.Context(), "me", p.Upload, 3, []byte("d"), digest([]byte("abcx")))
		if e, ok := errors.AsType[*blob.DigestError](err); !ok || e.Got != digest([]byte("abcd")) {
			t.Errorf("%v, want a DigestError", err)
		}
		if _, err := u.Write(t.Context(), "me", p.Upload, 3, []byte("d"), ""); !errors.Is(err, blob.ErrNoUpload) || s.Used() != 0 {
			t.Errorf("afterwards: %v, %d bytes in use; want ErrNoUpload and none", err, s.Used())
		}
	})
}

// The limits of chunks, uploads and uploads at a time hold at their edges, and the
// quota leaves nothing behind.
func TestLimitsOfUploads(t *testing.T) {
	both(t, 64<<20+100, func(t *testing.T, s store) {
		u := uploads(t, s)
		chunk := make([]byte, blob.MaxChunk)
		if _, err := u.Write(t.Context(), "me", "", 0, append(chunk, 0), ""); !errors.Is(err, blob.ErrUploadSize) {
			t.Errorf("a chunk too large: %v", err)
		}
		p, err := u.Write(t.Context(), "me", "", 0, chunk, "")
		for at := int64(len(chunk)); err == nil && at < blob.MaxUpload; at += int64(len(chunk)) {
			p, err = u.Write(t.Context(), "me", p.Upload, at, chunk, "")
		}
		if err != nil || p.Bytes != blob.MaxUpload {
			t.Fatalf("the largest upload: %+v, %v", p, err)
		}
		if _, err := u.Write(t.Context(), "me", p.Upload, p.Bytes, []byte("x"), ""); !errors.Is(err, blob.ErrUploadSize) {
			t.Errorf("one byte more: %v", err)
		}
		if _, err := u.Write(t.Context(), "me", "", 0, make([]byte, 101), ""); !errors.Is(err, blob.ErrQuota) || s.Used() != blob.MaxUpload {
			t.Errorf("beyond the quota: %v, %d bytes in use", err, s.Used())
		}
		for i := range blob.MaxUploads {
			_, err := u.Write(t.Context(), "me", "", 0, []byte("x"), "")
			if many := i == blob.MaxUploads-1; errors.Is(err, blob.ErrTooMany) != many {
				t.Errorf("upload %d at a time: %v", i+2, err)
			}
		}
		if _, err := u.Write(t.Context(), "you", "", 0, []byte("x"), ""); err != nil {
			t.Errorf("another owner's first: %v", err)
		}
	})
}

// An upload is dropped when it was idle for ten minutes, not before, and so are
// all when the host goes down.
func TestIdleUploadsAreDropped(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		synctest.Test(t, func(t *testing.T) {
			u := blob.NewUploads(s.(blob.Drafts))
			p, err := u.Write(t.Context(), "me", "", 0, []byte("a"), "")
			if err != nil {
				t.Fatal(err)
			}
			wait := func(d time.Duration) { <-time.After(d); synctest.Wait() }
			wait(blob.UploadIdle - time.Second)
			if _, err := u.Write(t.Context(), "me", p.Upload, 1, []byte("b"), ""); err != nil {
				t.Errorf("just in time: %v", err)
			}
			wait(blob.UploadIdle - time.Second)
			if s.Used() != 2 {
				t.Errorf("%d bytes in use before the time is over, want 2", s.Used())
			}
			wait(time.Second)
			if s.Used() != 0 {
				t.Errorf("%d bytes in use afterwards, want none", s.Used())
			}
			if _, err := u.Write(t.Context(), "me", p.Upload, 2, []byte("c"), ""); !errors.Is(err, blob.ErrNoUpload) {
				t.Errorf("too late: %v, want ErrNoUpload", err)
			}
			if _, err := u.Write(t.Context(), "me", "", 0, []byte("a"), ""); err != nil {
				t.Error(err)
			}
			u.Close()
			u.Close()
			if s.Used() != 0 {
				t.Errorf("%d bytes in use after Close, want none", s.Used())
			}
			if _, err := u.Write(t.Context(), "me", "", 0, []byte("a"), ""); !errors.Is(err, blob.ErrNoUpload) {
				t.Errorf("after Close: %v, want ErrNoUpload", err)
			}
		})
	})
}

// A new upload takes the place of the one that was idle longest, once that is a
// minute: what a client began whose answers were lost does not lock it out.
func TestForgottenUploadsMakeRoom(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		synctest.Test(t, func(t *testing.T) {
			u := blob.NewUploads(s.(blob.Drafts))
			defer u.Close()
			var ids []string
			begin := func() error {
				p, err := u.Write(t.Context(), "me", "", 0, []byte("x"), "")
				ids = append(ids, p.Upload)
				return err
			}
			for range blob.MaxUploads {
				if err := begin(); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
			}
			<-time.After(blob.UploadYield - blob.MaxUploads*time.Second - time.Nanosecond)
			if err := begin(); !errors.Is(err, blob.ErrTooMany) {
				t.Errorf("before the oldest was idle for a minute: %v, want ErrTooMany", err)
			}
			<-time.After(time.Nanosecond)
			if err := begin(); err != nil || s.Used() != blob.MaxUploads {
				t.Errorf("after a minute: %v, %d bytes in use, want %d", err, s.Used(), blob.MaxUploads)
			}
			for i, gone := range []bool{true, false} {
				if _, err := u.Write(t.Context(), "me", ids[i], 1, []byte("y"), ""); errors.Is(err, blob.ErrNoUpload) != gone {
					t.Errorf("upload %d: %v, gone should be %v", i, err, gone)
				}
			}
		})
	})
}

// What a crash leaves of uploads is gone at the next start.
func TestUnfinishedUploadsAreGoneAtTheNextStart(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, 0)
	u := uploads(t, d)
	if _, err := u.Write(t.Context(), "me", "", 0, []byte("abc"), ""); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, 0)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 0 || again.Used() != 0 {
		t.Errorf("%d files and %d bytes are left, %v", len(files), again.Used(), err)
	}
}

// Many at once on the same upload write it once.
func TestChunksAtTheSameTime(t *testing.T) {
	both(t, 0, func(t *testing.T, s store) {
		u := uploads(t, s)
		p, err := u.Write(t.Context(), "me", "", 0, []byte("start "), "")
		if err != nil {
			t.Fatal(err)
		}
		all := "start " + strings.Repeat("chunk ", 8)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for i := range 8 {
					sum := ""
					if i == 7 {
						sum = digest([]byte(all))
					}
					at := int64(6 + 6*i)
					for { // until those before it are there
						_, err := u.Write(t.Context(), "me", p.Upload, at, []byte("chunk "), sum)
						if e, ok := errors.AsType[*blob.OffsetError](err); ok && e.Bytes < at {
							continue
						}
						if e, ok := errors.AsType[*blob.OffsetError](err); err != nil && !(ok && e.Bytes == int64(len(all))) {
							t.Error(fmt.Errorf("chunk %d: %w", i, err))
						}
						break
					}
				}
			})
		}
		wg.Wait()
		if got := string(whole(t, s, frames.BlobID("sha256-"+digest([]byte(all))))); got != all {
			t.Errorf("the blob is %q", got)
		}
	})
}
