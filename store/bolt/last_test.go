package bolt

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// reopened opens a database, and returns each log's epoch and why they are new.
func reopened(t *testing.T, path string) (epochs map[frames.SessionID]frames.Epoch, why string) {
	t.Helper()
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	list, err := s.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	epochs = map[frames.SessionID]frames.Epoch{}
	for _, l := range list {
		epochs[l.SessionID] = l.Head.Epoch
	}
	why = s.Replaced()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return epochs, why
}

// twoLogs makes a database with two logs, closed again, and their epochs.
func twoLogs(t *testing.T) (path string, epochs map[frames.SessionID]frames.Epoch) {
	t.Helper()
	path, _ = filled(t)
	s, err := Open(path, Options{bounds: small})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := appendOne(t, s, "second", store.Head{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), store.Row{Table: "t", Key: "last"}); err != nil { // the commit that may be lost
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	epochs, why := reopened(t, path)
	if again, w := reopened(t, path); why != "" || w != "" || again["filled"] != epochs["filled"] || len(epochs) != 2 {
		t.Fatalf("a whole database opens with epochs %v, then %v (%q, %q); want the same two", epochs, again, why, w)
	}
	return path, epochs
}

// wantNewEpochs opens a database whose logs must get new epochs, once.
func wantNewEpochs(t *testing.T, path string, old map[frames.SessionID]frames.Epoch, reason string) {
	t.Helper()
	got, why := reopened(t, path)
	if !strings.Contains(why, reason) {
		t.Errorf("opened saying %q, want %q", why, reason)
	}
	for sid, e := range old {
		if got[sid] == e || got[sid] == "" {
			t.Errorf("session %s: epoch %q, before it was %q; want a new one", sid, got[sid], e)
		}
	}
	again, why := reopened(t, path)
	if why != "" || again["filled"] != got["filled"] {
		t.Errorf("opened again: epochs %v, then %v (%q); want them kept", got, again, why)
	}
	if err := Check(path); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// zeroMeta destroys a meta page, the newest or the older one.
func zeroMeta(t *testing.T, path string, theNewest bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := readMetas(f)
	i := 0
	if (m[1].txid > m[0].txid) == theNewest {
		i = 1
	}
	if _, err := f.WriteAt(make([]byte, m[i].pageSize), int64(i*m[i].pageSize)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whichever meta page is destroyed, the database opens with new epochs, with the
// mark of the last commit and without it.
func TestDestroyedMetaPageGivesNewEpochs(t *testing.T) {
	for _, theNewest := range []bool{true, false} {
		for _, marked := range []bool{true, false} {
			path, old := twoLogs(t)
			zeroMeta(t, path, theNewest)
			if !marked {
				if err := os.Remove(path + ".last"); err != nil {
					t.Fatal(err)
				}
			}
			reason := "one of its two meta pages is damaged"
			if theNewest && marked {
				reason = "was acknowledged"
			}
			wantNewEpochs(t, path, old, reason)
		}
	}
}

// An older copy that took the database's place is noticed, also when the process
// that wrote the newer one was killed.
func TestOlderCopyGivesNewEpochs(t *testing.T) {
	for _, killed := range []bool{false, true} {
		path, old := twoLogs(t)
		image, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := appendOne(t, s, "third", store.Head{}); err != nil {
			t.Fatal(err)
		}
		mark, err := os.ReadFile(path + ".last")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if killed { // what was in the file before the clean end
			if err := os.WriteFile(path+".last", mark, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		wantNewEpochs(t, path, old, "was acknowledged")
	}
}

// A mark that is missing, torn or another database's says nothing.
func TestUnreadableMarkSaysNothing(t *testing.T) {
	for name, text := range map[string]string{
		"torn":     "muxhost ABC 000000",
		"other's":  lastLine("another", 1<<40),
		"no sum":   "muxhost ABC 99999999999 00000000\n",
		"nonsense": "\x00\x00\n\n",
	} {
		path, old := twoLogs(t)
		if err := os.WriteFile(path+".last", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, why := reopened(t, path); why != "" || got["filled"] != old["filled"] {
			t.Errorf("%s: epochs %v became %v, %q", name, old, got, why)
		}
		if b, err := os.ReadFile(path + ".last"); err != nil || len(b) < 40 {
			t.Errorf("%s: the mark was not written anew: %q, %v", name, b, err)
		}
	}
}

// NewEpochs changes epochs and nothing else; deleted sessions stay deleted.
func TestNewEpochsChangeNothingElse(t *testing.T) {
	path, old := twoLogs(t)
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Head(t.Context(), "filled")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "gone", store.Head{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(path, Options{NewEpochs: true})
	if err != nil {
		t.Fatal(err)
	}
	after, err := s.Head(t.Context(), "filled")
	if err != nil {
		t.Fatal(err)
	}
	if s.Replaced() == "" || after.Epoch == before.Epoch || after.Epoch == old["filled"] {
		t.Errorf("epoch %q, before %q", after.Epoch, before.Epoch)
	}
	if after.Epoch = before.Epoch; after != before {
		t.Errorf("head %+v, before %+v", after, before)
	}
	if gone, err := s.Head(t.Context(), "gone"); err != nil || gone != (store.Head{Deleted: true}) {
		t.Errorf("the deleted session: %+v, %v", gone, err)
	}
	if err := verifyAckedIs(t, s, int(before.Seq)); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A snapshot opens with the epochs it has, also after each of the first commits.
func TestSnapshotKeepsEpochs(t *testing.T) {
	path, old := twoLogs(t)
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if err := s.Put(t.Context(), store.Row{Table: "t", Key: "k", Value: []byte{byte(n)}}); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "db")
		writeFileFrom(t, to, func(w io.Writer) error { _, err := s.Snapshot(t.Context(), w); return err })
		for range 3 {
			if got, why := reopened(t, to); why != "" || got["filled"] != old["filled"] {
				t.Errorf("the snapshot opens with %v (%q), want %v", got, why, old)
			}
			c, err := Open(to, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Put(t.Context(), store.Row{Table: "t", Key: "k", Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeFileFrom(t *testing.T, path string, fn func(io.Writer) error) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := fn(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
