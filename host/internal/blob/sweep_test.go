package blob_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
)

// put keeps a text and returns its id.
func put(t *testing.T, d interface {
	Put(context.Context, io.Reader) (frames.BlobID, int64, error)
}, text string,
) frames.BlobID {
	t.Helper()
	id, _, err := d.Put(t.Context(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// All yields each blob once, and nothing else that lies there.
func TestAllYieldsEveryBlob(t *testing.T) {
	dir := t.TempDir()
	d, err := blob.OpenDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f, err := d.TempFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(filepath.Join(dir, "notes"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	mem := blob.NewMemory(0)
	var want []frames.BlobID
	for n := range 600 {
		want = append(want, put(t, d, strings.Repeat("x", n)))
		put(t, mem, strings.Repeat("x", n))
	}
	slices.Sort(want)
	for name, all := range map[string]iter.Seq2[frames.BlobID, error]{"dir": d.All(t.Context()), "memory": mem.All(t.Context())} {
		var got []frames.BlobID
		for id, err := range all {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, id)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %d ids, want %d", name, len(got), len(want))
		}
	}
}

// A sweep removes what is neither needed nor young, and gives its quota back.
func TestSweepKeepsWhatIsNeededOrYoung(t *testing.T) {
	dir := t.TempDir()
	d, err := blob.OpenDir(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	needed, dead, young := put(t, d, "needed"), put(t, d, "dead one"), put(t, d, "young")
	long := time.Now().Add(-time.Hour)
	for _, id := range []frames.BlobID{needed, dead} {
		if err := os.Chtimes(filepath.Join(dir, string(id)), long, long); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.Sweep(t.Context(), func(id frames.BlobID) bool { return id == needed }, time.Now().Add(-time.Minute))
	want := blob.Swept{Kept: 2, Removed: 1, KeptBytes: 11, RemovedBytes: 8, Young: 1}
	if err != nil || got != want {
		t.Errorf("Sweep = %+v, %v; want %+v", got, err, want)
	}
	for id, there := range map[frames.BlobID]bool{needed: true, dead: false, young: true} {
		if _, err := d.Read(t.Context(), id, 0, 0); errors.Is(err, blob.ErrNotFound) == there {
			t.Errorf("%s: %v; want it there: %v", id, err, there)
		}
	}
	if d.Used() != 11 {
		t.Errorf("%d bytes in use after the sweep, want 11", d.Used())
	}
}

// A blob whose content changed is told from a good one.
func TestVerifyTellsChangedBlobs(t *testing.T) {
	dir := t.TempDir()
	d, err := blob.OpenDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	good, bad := put(t, d, "good"), put(t, d, "bad")
	if err := os.WriteFile(filepath.Join(dir, string(bad)), []byte("baD"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(t.Context(), good); err != nil {
		t.Errorf("Verify(good) = %v", err)
	}
	if err := d.Verify(t.Context(), bad); err == nil {
		t.Error("Verify of a changed blob found nothing")
	}
}

// Ids are found wherever they stand in a text.
func TestFindFindsEveryID(t *testing.T) {
	a := blob.ID(strings.Repeat("0a", 32))
	b := blob.ID(strings.Repeat("f1", 32))
	for text, want := range map[string][]frames.BlobID{
		``:                                       nil,
		`{"blob":"` + string(a) + `"}`:           {a},
		string(a) + string(b):                    {a, b},
		`sha256-sha256-` + string(b)[7:]:         {b},
		string(a)[:70]:                           nil,
		strings.ToUpper(string(a)):               nil,
		`x` + string(b) + `00 ` + string(a) + ``: {b, a},
	} {
		if got := blob.Find(nil, []byte(text)); !slices.Equal(got, want) {
			t.Errorf("Find(%q) = %q, want %q", text, got, want)
		}
	}
}
