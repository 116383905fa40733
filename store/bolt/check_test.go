package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// large makes a database of some branches, nested buckets and a freelist.
func large(t *testing.T) string {
	t.Helper()
	path, _ := filled(t)
	s, err := Open(path, Options{bounds: small, hooks: unsynced})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 30 {
		sid := frames.SessionID(fmt.Sprintf("s-%03d", n))
		evs := make([]store.Event, 100)
		for i := range evs {
			evs[i] = placed(sid, frames.Seq(i+1))
		}
		if _, err := s.Append(t.Context(), sid, store.Head{}, evs); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Trim(t.Context(), "s-003", 60); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// examine returns all that is wrong with a database.
func examine(t *testing.T, path string) []string {
	t.Helper()
	var out []string
	if err := Examine(t.Context(), path, Visit{Finding: func(f Finding) { out = append(out, f.String()) }}); err != nil {
		t.Fatalf("Examine: %v", err)
	}
	return out
}

// Examine shows every kept event of every log in order, the logs and the rows.
func TestExamineShowsEverything(t *testing.T) {
	path := large(t)
	seen, heads, rows := map[frames.SessionID][]store.Event{}, map[frames.SessionID]store.Head{}, 0
	err := Examine(t.Context(), path, Visit{
		Finding: func(f Finding) { t.Errorf("found %v", f) },
		Log:     func(sid frames.SessionID, h store.Head) { heads[sid] = h },
		Event:   func(sid frames.SessionID, e store.Event) { seen[sid] = append(seen[sid], e) },
		Row:     func(r store.Row) { rows++ },
	})
	if err != nil || rows != 1 {
		t.Fatalf("Examine: %v, %d rows; want 1", err, rows)
	}
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List(t.Context(), "", "", 1000)
	if err != nil || len(list) != len(heads) || len(list) != len(seen) {
		t.Fatalf("%d logs, %d shown, %d with events: %v", len(list), len(heads), len(seen), err)
	}
	for _, l := range list {
		want, err := s.Read(t.Context(), l.SessionID, l.Head.First-1, 1000, 1<<30)
		same := func(a, b store.Event) bool {
			return a.Seq == b.Seq && a.ID == b.ID && string(a.Data) == string(b.Data)
		}
		if err != nil || heads[l.SessionID] != l.Head || !slices.EqualFunc(seen[l.SessionID], want, same) {
			t.Errorf("%s: shown head %+v and %d events; want %+v and %d: %v", l.SessionID, heads[l.SessionID], len(seen[l.SessionID]), l.Head, len(want), err)
		}
	}
}

// Each damage is found, and one finding does not hide the next.
func TestExamineFindsEveryDamage(t *testing.T) {
	path := large(t)
	s, err := Open(path, Options{bounds: bounds{events: 1, bytes: 1, commits: 1}, hooks: unsynced})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 { // everything but the last commits is folded
		if err := s.Put(t.Context(), store.Row{Table: "t", Key: fmt.Sprint(n), Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, func(tx *bbolt.Tx) error {
		flip := func(b *bbolt.Bucket, k, v []byte) error {
			v = append([]byte{}, v...)
			v[len(v)-1] ^= 1
			return b.Put(k, v)
		}
		chunks, heads := tx.Bucket(bucketChunks), tx.Bucket(bucketHeads)
		return errors.Join(
			chunks.Delete(chunkKey("s-001", 1)),
			flip(chunks, chunkKey("s-002", 1), chunks.Get(chunkKey("s-002", 1))),
			heads.Delete([]byte("s-004")),
			flip(heads, []byte("s-005"), heads.Get([]byte("s-005"))),
			chunks.Put([]byte("short"), []byte("x")),
			tx.Bucket(bucketCommits).Put(commitKey(1<<40), seal(commitName(1<<40), nil)),
			tx.Bucket([]byte(rowPrefix+"t")).Put([]byte("7"), []byte("bad value")),
		)
	})
	got := strings.Join(examine(t, path), "\n")
	for _, want := range []string{
		`session "s-001": `, `session "s-002": seq 64`, `session "s-004": `, `session "s-005": `,
		`the chunk key "short" does not parse`, fmt.Sprintf("commit %d has no live record", 1<<40), `table "t", key "7"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("found\n%s\nwant also %q", got, want)
		}
	}
	if strings.Contains(got, "s-006") || strings.Contains(got, "pages") {
		t.Errorf("found\n%s\nwant nothing of s-006 and pages", got)
	}
}

// pagesOf returns the numbers of a file's pages with these flags.
func pagesOf(t *testing.T, image []byte, flags int) []uint64 {
	t.Helper()
	var out []uint64
	for off := 0; off+4096 <= len(image); off += 4096 {
		if f, _ := flagsOf(image[off:]); f == flags && binary.NativeEndian.Uint64(image[off:]) == uint64(off/4096) {
			out = append(out, uint64(off/4096))
		}
	}
	return out
}

// nest makes every bucket in a leaf the one at root.
func nest(page []byte, root uint64) {
	_, count := flagsOf(page)
	for i := range count {
		if e, ok := parseElement(page[pageHeader+i*elementBytes:], leafPage); ok && e.bucket {
			binary.NativeEndian.PutUint64(e.value, root)
		}
	}
}

// A page graph with circles, pages used twice and paths that double at every step
// is damage, found in a pass over the file.
func TestCheckEndsOnCircles(t *testing.T) {
	path, _ := filled(t)
	s, err := Open(path, Options{hooks: unsynced})
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]store.Row, 30_000) // some branches below a branch
	for i := range rows {
		rows[i] = store.Row{Table: "t", Key: fmt.Sprintf("%020d", i), Value: []byte("x")}
	}
	if err := errors.Join(s.Put(t.Context(), rows...), s.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	branches := pagesOf(t, whole, branchPage)
	if len(branches) < 2 {
		t.Fatalf("the database has %d branches; want some", len(branches))
	}
	m, _ := newest(readMetas(bytes.NewReader(whole)))
	for _, to := range []string{"itself", "another", "one after the other", "buckets"} {
		image := slices.Clone(whole)
		if to == "buckets" { // each is the root, which holds them all
			for _, id := range pagesOf(t, whole, leafPage) {
				nest(image[id*4096:], m.root)
			}
			branches = nil
		}
		for i, id := range branches {
			page := image[id*4096:]
			_, count := flagsOf(page)
			for e := range count {
				child := page[pageHeader+e*elementBytes+8:]
				switch to {
				case "itself":
					binary.NativeEndian.PutUint64(child, id)
				case "another":
					binary.NativeEndian.PutUint64(child, branches[(i+1)%len(branches)])
				default:
					binary.NativeEndian.PutUint64(child, branches[min(i+1, len(branches)-1)])
				}
			}
		}
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Check(path); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "pages") {
			t.Errorf("children that are %s: Check = %v, want damaged pages", to, err)
		}
	}
}

// Whatever single word of a page's bookkeeping is changed, Check ends; where it
// finds nothing, everything can be read and is right.
func TestCheckEndsOnAnyDamage(t *testing.T) {
	path := large(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	used := slices.Concat(pagesOf(t, whole, branchPage), pagesOf(t, whole, leafPage), pagesOf(t, whole, freelistPage))
	found := 0
	for range 25 {
		image := slices.Clone(whole)
		at := int(used[rnd.IntN(len(used))])*4096 + 4*rnd.IntN(40)
		value := []uint32{0, 1, 7, 0xFFFF, 1 << 31, 0xFFFFFFFF, rnd.Uint32(), uint32(rnd.IntN(len(whole) / 4096))}[rnd.IntN(8)]
		binary.NativeEndian.PutUint32(image[at:], value)
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		switch err := Check(path); {
		case errors.Is(err, store.ErrCorrupt):
			found++
		case err != nil:
			t.Errorf("%#x at %d: Check = %v", value, at, err)
		default:
			readsRight(t, path, fmt.Sprintf("%#x at %d", value, at))
		}
	}
	if found < 6 {
		t.Errorf("Check found only %d of 25 damages", found)
	}
}

// readsRight reads every log of a database that Check found nothing wrong with.
func readsRight(t *testing.T, path, what string) {
	t.Helper()
	s, err := Open(path, Options{hooks: unsynced})
	if err != nil {
		t.Errorf("%s: Check found nothing, Open: %v", what, err)
		return
	}
	defer s.Close()
	for n := range 30 {
		sid := frames.SessionID(fmt.Sprintf("s-%03d", n))
		h, err := s.Head(t.Context(), sid)
		if err != nil || h.Seq != 100 {
			t.Errorf("%s: head of %s: %+v, %v", what, sid, h, err)
			continue
		}
		evs, err := s.Read(t.Context(), sid, h.First-1, 1000, 1<<30)
		if err != nil || len(evs) != int(h.Seq-h.First)+1 {
			t.Errorf("%s: %d events of %s: %v", what, len(evs), sid, err)
		}
		for _, e := range evs {
			if string(e.Data) != string(placed(sid, e.Seq).Data) {
				t.Errorf("%s: %s seq %d: wrong bytes", what, sid, e.Seq)
			}
		}
	}
}
