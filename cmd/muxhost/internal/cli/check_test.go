package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/bolt"
)

// blobFile is where a blob of this text lies.
func blobFile(dir, text string) (frames.BlobID, string) {
	sum := sha256.Sum256([]byte(text))
	id := frames.BlobID("sha256-" + hex.EncodeToString(sum[:]))
	return id, filepath.Join(dir, blobDirName, string(id))
}

// Each thing that is wrong is a line, in words and as JSON, and the exit code says
// that there is one.
func TestCheckPrintsALinePerFinding(t *testing.T) {
	d := stoppedWorld(t)
	if got := object(t, d.ok("check", "--json"), "check"); got["findings"] != 0.0 || got["sessions"] != 3.0 || got["blobs"] == 0.0 {
		t.Errorf("check of a whole state says %v", got)
	}
	gone, path := blobFile(d.dir, "gone")
	there := writeBlob(t, d.dir, "there")
	changed := blobsIn(t, d.dir)[0]
	if changed == filepath.Join(d.dir, blobDirName, string(there)) {
		changed = blobsIn(t, d.dir)[1]
	}
	if err := os.WriteFile(changed, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	change(t, d.dir, func(db *bolt.Store) {
		record := store.Row{Table: store.TableSession, Key: "s-odd", Value: []byte("{}")}
		appendRaw(t, db, "s-odd", "x/y", `{"type":"x/y","seq":1,"ts":"2026-01-01T00:00:00.000Z","data":{"blob" : "`+string(gone)+`","text":"blob: sha256-00"}}`, record)
		appendRaw(t, db, "s-odd", "x/y", `{"type":"x/y","seq":7,"ts":"2026-01-01T00:00:00.000Z","data":{}}`)
		appendRaw(t, db, "s-odd", "x/y", `{"type":"x/z","seq":3,"ts":"2026-01-01T00:00:00.000Z","data":{}}`)
		appendRaw(t, db, "s-odd", "x/y", `{"type":`)
		appendRaw(t, db, "s-bare", "x/y", `{"type":"x/y","seq":1,"ts":"2026-01-01T00:00:00.000Z","data":{"note":"`+string(there)+`"}}`)
		if err := db.Put(t.Context(), store.Row{Table: store.TablePrompt, Key: "s-none/p", Value: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	})
	r := d.run("check")
	for _, want := range []string{
		"session s-odd: it names blob " + string(gone) + ", which is missing",
		"session s-odd: event 2 says that it is event 7", `session s-odd: event 3 is stored as "x/y" and says that it is "x/z"`,
		"session s-odd: event 4: ", "session s-bare: its log has no summary", `session s-none: it has a row in the table "prompt", but no log`,
		"the content of blob " + filepath.Base(changed) + " has the digest",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("check printed\n%s\nwant %q", r.out, want)
		}
	}
	if r.code != exitFailed || !strings.Contains(r.err, "7 findings") || strings.Count(r.out, "\n") != 7 {
		t.Errorf("check: exit %d, %q, and\n%s\nwant 7 findings", r.code, r.err, r.out)
	}
	lines := strings.Split(strings.TrimSpace(d.run("check", "--json").out), "\n")
	for _, line := range lines[:len(lines)-1] {
		var v struct {
			V    int
			Type string
			Data finding
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.V != 1 || v.Type != "finding" || v.Data.What == "" {
			t.Errorf("check --json printed %q: %v", line, err)
		}
	}
	if err := os.WriteFile(path, []byte("gone"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := object(t, d.run("check", "--json").out, "check"); got["findings"] != 6.0 || len(lines) != 8 {
		t.Errorf("with the blob back: %v; before: %d lines", got, len(lines))
	}
}

// A fork that was being copied when the host was killed is nothing wrong: the next
// host removes it.
func TestCheckKnowsUnfinishedForks(t *testing.T) {
	d := stoppedWorld(t)
	half := func(sid frames.SessionID) []store.Row {
		return []store.Row{
			{Table: store.TableBase, Key: string(sid), Value: []byte("{}")}, {Table: store.TableDirty, Key: string(sid), Value: []byte("fork")},
		}
	}
	change(t, d.dir, func(db *bolt.Store) {
		if err := db.Put(t.Context(), half("s-begun")...); err != nil {
			t.Fatal(err)
		}
		appendRaw(t, db, "s-half", "x/y", `{"type":"x/y","seq":1,"ts":"2026-01-01T00:00:00.000Z","data":{}}`, half("s-half")...)
	})
	if got := object(t, d.ok("check", "--json"), "check"); got["findings"] != 0.0 || got["sessions"] != 3.0 {
		t.Errorf("check says %v", got)
	}
	serveIn(t, d.dir).end(t)
	if all, _ := logs(t, d.dir); len(all) != 3 {
		t.Errorf("%d logs, want 3", len(all))
	}
}

// A database whose newest meta page is destroyed is a finding; the host that opens
// it says so, and its clients see new epochs.
func TestLostCommitIsToldByCheckAndServe(t *testing.T) {
	d := stoppedWorld(t)
	_, old := logs(t, d.dir)
	f, err := os.OpenFile(filepath.Join(d.dir, dbFileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, os.Getpagesize()), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d.fails(exitFailed, "finding", "check")
	d.fails(exitFailed, "stays as it is", "compact")
	s := serveIn(t, d.dir)
	s.end(t)
	if !strings.Contains(s.errOut.String(), "every session's log got a new epoch") {
		t.Errorf("the log does not tell:\n%s", s.errOut)
	}
	_, now := logs(t, d.dir)
	for sid, e := range old {
		if now[sid] == e || now[sid] == "" {
			t.Errorf("session %s: epoch %q, before it was %q", sid, now[sid], e)
		}
	}
	d.ok("check")
}

// Compaction gives back the space of deleted sessions and the blobs that nothing
// names; what an event, a row or only a text names stays, and so does a young one.
func TestCompactGivesSpaceBack(t *testing.T) {
	d := stoppedWorld(t)
	inText, inRow, dead := writeBlob(t, d.dir, "in a text"), writeBlob(t, d.dir, "in a row"), writeBlob(t, d.dir, "dead")
	_, young := blobFile(d.dir, "young")
	if err := os.WriteFile(young, []byte("young"), 0o600); err != nil {
		t.Fatal(err)
	}
	change(t, d.dir, func(db *bolt.Store) {
		record := store.Row{Table: store.TableSession, Key: "s-text", Value: []byte("{}")}
		appendRaw(t, db, "s-text", "x/y", `{"type":"x/y","seq":1,"ts":"2026-01-01T00:00:00.000Z","data":{"text":"see `+string(inText)+`."}}`, record)
		for n := range 40 {
			appendRaw(t, db, "s-deleted", "x/y", fmt.Sprintf(`{"type":"x/y","seq":%d,"ts":"2026-01-01T00:00:00.000Z","data":{"text":%q}}`, n+1, strings.Repeat(string(dead), 1000)))
		}
		h, err := db.Head(t.Context(), "s-deleted")
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Delete(t.Context(), "s-deleted", h); err != nil {
			t.Fatal(err)
		}
		if err := db.Put(t.Context(), store.Row{Table: store.TableBase, Key: "s-text", Value: []byte(`{"x":"` + string(inRow) + `"}`)}); err != nil {
			t.Fatal(err)
		}
	})
	want := stateOf(t, d.dir)
	blobs := len(blobsIn(t, d.dir))
	got := object(t, d.ok("compact", "--json"), "compact")
	if got["storeAfter"].(float64)*2 > got["storeBefore"].(float64) || got["blobsRemoved"] != 1.0 || got["blobsYoung"] != 1.0 || got["blobsKept"] != float64(blobs-1) {
		t.Errorf("compact says %v", got)
	}
	if got["blobBytesBefore"].(float64)-got["blobBytesAfter"].(float64) != float64(len("dead")) {
		t.Errorf("compact says %v, want %d bytes less of blobs", got, len("dead"))
	}
	for id, stays := range map[frames.BlobID]bool{inText: true, inRow: true, dead: false} {
		if _, err := os.Stat(filepath.Join(d.dir, blobDirName, string(id))); (err == nil) != stays {
			t.Errorf("blob %s: %v; want it there: %v", id, err, stays)
		}
	}
	if stateOf(t, d.dir) != want {
		t.Error("the logs changed")
	}
	if out := d.ok("compact", "--blob-grace", "0s"); !strings.Contains(out, "removed 1 blob") {
		t.Errorf("compact without grace printed %q", out)
	}
	d.ok("check")
	serveIn(t, d.dir).end(t)
}
