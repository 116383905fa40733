package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// filled makes a database with some events and rows, closed again.
func filled(t *testing.T) (path string, head store.Head) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "db")
	s, err := Open(path, Options{bounds: small, hooks: unsynced})
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		if head, err = appendOne(t, s, "filled", head); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(t.Context(), store.Row{Table: "t", Key: "k", Value: []byte("value of a row")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, head
}

// refused opens a database that must be refused, with a message that says why.
func refused(t *testing.T, path, why string) {
	t.Helper()
	s, err := Open(path, Options{})
	if err == nil {
		_ = s.Close()
		t.Fatalf("Open succeeded, want a refusal: %s", why)
	}
	if _, ok := errors.AsType[*DamagedError](err); !ok || !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), why) {
		t.Errorf("Open: %v; want a *DamagedError that says %q", err, why)
	}
}

// A second opening fails within two seconds and names the process.
func TestSecondOpenNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	openIn(t, dir, Options{})
	start := time.Now()
	_, err := Open(filepath.Join(dir, "db"), Options{})
	if e, ok := errors.AsType[*LockedError](err); !ok || e.PID != os.Getpid() || e.Since == "" {
		t.Errorf("second Open: %v, want a *LockedError with pid %d", err, os.Getpid())
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("refused after %v, want at most 2 s", d)
	}
}

// A database that vanished, was emptied or was exchanged is refused, and nothing
// is created in its place.
func TestOpenRefusesWhatTheMarkerContradicts(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		path, _ := filled(t)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "is missing")
		if _, err := os.Stat(path); err == nil {
			t.Error("a new database was created")
		}
	})
	t.Run("empty", func(t *testing.T) {
		path, _ := filled(t)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "is empty")
	})
	t.Run("exchanged", func(t *testing.T) {
		path, _ := filled(t)
		other, _ := filled(t)
		if err := os.Rename(other, path); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "belongs here")
	})
}

// Files that are no database of ours, or of a newer format, are refused.
func TestOpenRefusesForeignFiles(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, []byte(strings.Repeat("text\n", 5000)), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "invalid database")
	})
	t.Run("other database", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		change(t, path, func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("x"))
			return err
		})
		refused(t, path, "not one of muxhost")
	})
	t.Run("newer format", func(t *testing.T) {
		path, _ := filled(t)
		change(t, path, func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketMeta).Put([]byte("format"), seal("meta/format", []byte("2")))
		})
		refused(t, path, "its format is 2")
	})
}

// change edits a closed database behind the store's back.
func change(t *testing.T, path string, fn func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A first opening that is killed at any step leaves what the next one handles.
func TestFirstOpenSurvivesBeingKilled(t *testing.T) {
	killed := errors.New("killed here")
	for _, at := range []string{"created", "initialised", "renamed"} {
		t.Run(at, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Open(filepath.Join(dir, "db"), Options{hooks: hooks{step: func(name string) error {
				if name == at {
					return killed
				}
				return nil
			}}})
			if !errors.Is(err, killed) {
				t.Fatalf("Open: %v, want the kill", err)
			}
			s := openIn(t, dir, Options{})
			if _, err := appendOne(t, s, "a", store.Head{}); err != nil {
				t.Errorf("append afterwards: %v", err)
			}
		})
	}
	t.Run("before the marker", func(t *testing.T) {
		path, head := filled(t)
		if err := os.Remove(path + ".id"); err != nil {
			t.Fatal(err)
		}
		s := openIn(t, filepath.Dir(path), Options{})
		if h, err := s.Head(t.Context(), "filled"); err != nil || h != head {
			t.Errorf("Head = %+v, %v; want %+v", h, err, head)
		}
		if _, err := os.Stat(path + ".id"); err != nil {
			t.Errorf("the marker was not written again: %v", err)
		}
	})
}

// Files open to others and symbolic links are refused, whichever of the three.
func TestOpenRefusesFilesThatAreNotPrivate(t *testing.T) {
	for _, suffix := range []string{"", ".id", ".lock"} {
		path, _ := filled(t)
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("db%s was created with %v, %v; want 0600", suffix, info.Mode(), err)
		}
		if err := os.Chmod(path+suffix, 0o640); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(path, Options{}); !errors.Is(err, errPrivate) {
			t.Errorf("db%s with mode 0640: %v (%v), want a refusal", suffix, err, s)
		}
		path, _ = filled(t)
		if err := errors.Join(os.Rename(path+suffix, path+suffix+".real"), os.Symlink(path+suffix+".real", path+suffix)); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(path, Options{}); err == nil {
			_ = s.Close()
			t.Errorf("db%s as a symbolic link was opened", suffix)
		}
	}
}

// A file that was cut is refused with an error, not with a crash.
func TestOpenRefusesCutFiles(t *testing.T) {
	for _, size := range []int64{100, 4096, 8192, 3 * 4096, 16 << 10} {
		path, _ := filled(t)
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, Options{})
		if err == nil {
			_ = s.Close()
			t.Errorf("cut to %d bytes: opened", size)
		} else if _, ok := errors.AsType[*DamagedError](err); !ok {
			t.Errorf("cut to %d bytes: %v, want a *DamagedError", size, err)
		}
	}
}

// A flipped bit in a stored value is an error of Open, Read or Get, and of
// Check; wrong bytes are never returned.
func TestFlippedBitsAreNeverServed(t *testing.T) {
	for _, bucket := range []string{"commits", "chunks", "heads", rowPrefix + "t"} {
		for _, place := range []float64{0.1, 0.5, 0.99} {
			path, head := filled(t)
			change(t, path, func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte(bucket))
				k, v := b.Cursor().Last()
				if own := b.Bucket(k); own != nil {
					b = own
					k, v = own.Cursor().Last()
				}
				v = append([]byte{}, v...)
				v[int(place*float64(len(v)))] ^= 0x10
				return b.Put(k, v)
			})
			if err := Check(path); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s at %v: Check = %v, want ErrCorrupt", bucket, place, err)
			}
			if err := readEverything(t, path, head); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s at %v: reading everything: %v, want ErrCorrupt", bucket, place, err)
			}
		}
	}
}

func readEverything(t *testing.T, path string, head store.Head) error {
	t.Helper()
	s, err := Open(path, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Get(t.Context(), "t", "k"); err != nil {
		return err
	}
	return verifyAckedIs(t, s, int(head.Seq))
}

func verifyAckedIs(t *testing.T, s *Store, n int) error {
	t.Helper()
	for seq := range n {
		evs, err := s.Read(t.Context(), "filled", frames.Seq(seq), 1, 0)
		if err != nil {
			return err
		}
		if want := placed("filled", frames.Seq(seq+1)); string(evs[0].Data) != string(want.Data) {
			t.Errorf("seq %d: wrong bytes %q", seq+1, evs[0].Data)
		}
	}
	return nil
}

// A database that is in use cannot be checked, and that is no damage.
func TestCheckOfADatabaseInUseIsNoDamage(t *testing.T) {
	dir := t.TempDir()
	openIn(t, dir, Options{})
	err := Check(filepath.Join(dir, "db"))
	if err == nil || errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Check = %v; want an error that is no damage", err)
	}
}
