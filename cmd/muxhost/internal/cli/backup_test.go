package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/bolt"
)

// stoppedWorld makes a state directory with a few sessions, and ends the host again.
func stoppedWorld(t *testing.T) *desktop {
	t.Helper()
	d, s := startedWorld(t)
	_ = d.c.Close()
	s.end(t)
	return d
}

// startedWorld is a running host with a session that was prompted, one that has a
// blob, and one that waits for an answer.
func startedWorld(t *testing.T) (*desktop, *serving) {
	t.Helper()
	d := &desktop{t: t, dir: stateIn(t), cwd: t.TempDir()}
	s := serveIn(t, d.dir)
	c, err := s.a.dial(t.Context(), d.dir)
	if err != nil {
		t.Fatal(err)
	}
	d.c = c
	t.Cleanup(func() { _ = c.Close() })
	for range 2 {
		d.ok("wait", string(d.stream(`{"role":"stream","chunks":20,"size":50,"durableEvery":2}`)), "--timeout", "20s")
	}
	end := d.start("run", "--cwd", d.cwd, "seq 1 200000")
	d.ok("approve", d.id())
	if r := <-end; r.code != 0 {
		t.Fatalf("run: %d %s", r.code, r.err)
	}
	if n := len(blobsIn(t, d.dir)); n == 0 {
		t.Fatal("no blob was made")
	}
	return d, s
}

// stream prompts a new session of the demo agent, and returns its id.
func (d *desktop) stream(config string) frames.SessionID {
	d.t.Helper()
	made, err := d.c.Create(d.t.Context(), rpc.CreateParams{Cwd: d.cwd, Agent: "demo", Config: json.RawMessage(config)})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.c.Prompt(d.t.Context(), rpc.PromptParams{SessionID: made.SessionID, Content: []frames.ContentBlock{frames.Text("go")}}); err != nil {
		d.t.Fatal(err)
	}
	return made.SessionID
}

func blobsIn(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, blobDirName, "sha256-*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// logs reads every log of a state directory that no host runs on.
func logs(t *testing.T, dir string) (map[frames.SessionID][]store.Event, map[frames.SessionID]frames.Epoch) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, dbFileName), bolt.Options{})
	if err != nil {
		t.Fatalf("open the state in %s: %v", dir, err)
	}
	defer db.Close()
	if why := db.Replaced(); why != "" {
		t.Errorf("the state in %s opened with new epochs: %s", dir, why)
	}
	list, err := db.List(t.Context(), "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	out, epochs := map[frames.SessionID][]store.Event{}, map[frames.SessionID]frames.Epoch{}
	for _, l := range list {
		evs, err := db.Read(t.Context(), l.SessionID, l.Head.First-1, 1<<20, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		out[l.SessionID], epochs[l.SessionID] = evs, l.Head.Epoch
	}
	return out, epochs
}

// wantPrefixes checks that each log of got is the beginning of the same one of all.
func wantPrefixes(t *testing.T, got, all map[frames.SessionID][]store.Event) {
	t.Helper()
	for sid, evs := range got {
		if len(evs) > len(all[sid]) {
			t.Errorf("session %s: %d events, the original has %d", sid, len(evs), len(all[sid]))
			continue
		}
		for i, e := range evs {
			if w := all[sid][i]; e.Seq != w.Seq || e.ID != w.ID || !bytes.Equal(e.Data, w.Data) {
				t.Errorf("session %s: event %d is %s %s, want %s %s", sid, i+1, e.ID, e.Data, w.ID, w.Data)
				break
			}
		}
	}
}

// object parses the data of the last JSON line of a verb's output.
func object(t *testing.T, out, kind string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var v struct {
		V    int
		Type string
		Data map[string]any
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil || v.V != 1 || v.Type != kind {
		t.Fatalf("printed %q (%v), want a JSON line of type %s", out, err, kind)
	}
	return v.Data
}

// A backup of a running host restores elsewhere to the same logs and blobs under
// new epochs, and a host runs on it.
func TestBackupOfARunningHostRestores(t *testing.T) {
	d, s := startedWorld(t)
	file := filepath.Join(t.TempDir(), "b.tar")
	got := object(t, d.ok("backup", "--json", file), "backup")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || got["bytes"] != float64(info.Size()) || got["sessions"] != 3.0 || got["file"] != file {
		t.Errorf("backup says %v; the file: %v %v", got, info, err)
	}
	d.fails(exitFailed, "--force", "backup", file)
	if out := d.ok("backup", "--force", file); !strings.Contains(out, "3 sessions") {
		t.Errorf("backup printed %q", out)
	}
	if out := d.ok("check", file); !strings.Contains(out, "all is well: 3 sessions") {
		t.Errorf("check printed %q", out)
	}
	_ = d.c.Close()
	s.end(t)
	all, old := logs(t, d.dir)

	there := &desktop{t: t, dir: stateIn(t), cwd: d.cwd}
	if out := there.ok("restore", file); !strings.Contains(out, "restored 3 sessions") {
		t.Errorf("restore printed %q", out)
	}
	if out := there.ok("check"); !strings.Contains(out, "all is well") {
		t.Errorf("check printed %q", out)
	}
	now, epochs := logs(t, there.dir)
	if wantPrefixes(t, now, all); len(now) != 3 {
		t.Errorf("%d logs were restored, want 3", len(now))
	}
	for sid, e := range epochs {
		if e == old[sid] || e == "" {
			t.Errorf("session %s has the epoch %q, before it was %q; want a new one", sid, e, old[sid])
		}
	}
	if got, want := len(blobsIn(t, there.dir)), len(blobsIn(t, d.dir)); got != want {
		t.Errorf("%d blobs, want %d", got, want)
	}
	serveIn(t, there.dir)
	if out := there.ok("ls"); strings.Count(out, "\n") < 3 {
		t.Errorf("ls on the restored state printed %q", out)
	}
	for sid := range now {
		there.ok("tail", string(sid))
	}
}

// A client that follows a session over a restore of an older backup starts over: it
// ends with the view of what was restored, and loses nothing that comes after it.
func TestClientsStartOverAfterARestore(t *testing.T) {
	d, s := startedWorld(t)
	sid := d.stream(`{"role":"stream","chunks":3,"size":50}`)
	prompt := func() frames.Session {
		t.Helper()
		if _, err := d.c.Prompt(t.Context(), rpc.PromptParams{SessionID: sid, Content: []frames.ContentBlock{frames.Text("more")}}); err != nil {
			t.Fatal(err)
		}
		d.ok("wait", string(sid), "--timeout", "20s")
		r, err := d.c.Get(t.Context(), rpc.GetParams{SessionID: sid})
		if err != nil {
			t.Fatal(err)
		}
		return r.Session
	}
	d.ok("wait", string(sid), "--timeout", "20s")
	file := filepath.Join(t.TempDir(), "b.tar")
	d.ok("backup", file)
	prompt()
	lost := prompt()
	h, err := readHostFile(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	token, err := host.LoadToken(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{URL: h.URL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Subscribe(ctx, rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: sid, Since: new(frames.Seq)}}}); err != nil {
		t.Fatal(err)
	}
	var views client.Folder
	restored := false
	var kept frames.Session
	for f, err := range c.Frames(ctx) {
		if err == nil {
			_, err = views.Apply(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		v := views.View(sid)
		switch {
		case v == nil:
		case !restored && v.Seq == lost.Head && v.Status == frames.StateIdle:
			restored = true
			_ = d.c.Close()
			s.end(t)
			d.fails(exitFailed, "as before-restore-TIME in it", "restore", file)
			if out, want := d.ok("restore", "--force", file), "muxhost serve --state-dir "+filepath.Join(d.dir, "before-restore-"); !strings.Contains(out, want) {
				t.Errorf("restore printed %q, want %q", out, want)
			}
			s = serveIn(t, d.dir, "--listen", strings.TrimPrefix(h.URL, "http://"))
			if d.c, err = s.a.dial(t.Context(), d.dir); err != nil {
				t.Fatal(err)
			}
			if kept = prompt(); kept.Head >= lost.Head || kept.Epoch == lost.Epoch {
				t.Fatalf("after the restore: head %d of %q, before %d of %q", kept.Head, kept.Epoch, lost.Head, lost.Epoch)
			}
		case restored && v.Epoch == kept.Epoch && v.Seq == kept.Head && v.Status == frames.StateIdle:
			want, err := d.c.Get(ctx, rpc.GetParams{SessionID: sid, View: true})
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(v.Durable())
			if err != nil || !bytes.Equal(got, want.View) {
				t.Errorf("the client's view is\n     %s\nwant %s (%v)", got, want.View, err)
			}
			return
		}
	}
	t.Error("the client never saw what was restored")
}

// Without a host the state itself is backed up, byte for byte the same logs; "-"
// is the standard output and input.
func TestBackupWithoutAHost(t *testing.T) {
	d := stoppedWorld(t)
	all, _ := logs(t, d.dir)
	tarball := d.ok("backup", "-")
	there := &desktop{t: t, dir: stateIn(t)}
	var out bytes.Buffer
	a := &app{stdin: strings.NewReader(tarball), stdout: &out, stderr: io.Discard, getenv: func(string) string { return "" }}
	root := newRoot(a)
	root.SetArgs([]string{"--state-dir", there.dir, "restore", "-"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, _ := logs(t, there.dir)
	wantPrefixes(t, now, all)
	wantPrefixes(t, all, now)
	d.fails(exitUsage, "do not go together", "backup", "--json", "-")
	(&desktop{t: t, dir: stateIn(t)}).fails(exitNotFound, "holds no state", "backup", "x.tar")
}

// A backup that is taken while sessions write opens, repairs and folds: every log
// is the beginning of the original's, and agents were not held up.
func TestBackupUnderLoad(t *testing.T) {
	d, s := startedWorld(t)
	const writers = 3
	for range writers {
		d.stream(`{"role":"stream","chunks":1000000,"size":100,"durableEvery":3,"everyMs":1}`)
	}
	files := []string{}
	for n := range 4 {
		file := filepath.Join(t.TempDir(), fmt.Sprint(n))
		d.ok("backup", file)
		files = append(files, file)
	}
	_ = d.c.Close()
	s.end(t)
	all, _ := logs(t, d.dir)
	held := 0 // events in the backup before
	for _, file := range files {
		d.ok("check", file)
		there := &desktop{t: t, dir: stateIn(t), cwd: d.cwd}
		there.ok("restore", file)
		now, _ := logs(t, there.dir)
		if wantPrefixes(t, now, all); len(now) != 3+writers {
			t.Errorf("%d logs were restored, want %d", len(now), 3+writers)
		}
		n := 0
		for _, evs := range now {
			n += len(evs)
		}
		if n <= held {
			t.Errorf("%s: %d events, the backup before has %d; sessions did not go on", file, n, held)
		}
		held = n
		again := serveIn(t, there.dir)
		for sid := range now {
			there.ok("tail", string(sid)) // folds it
			there.ok("wait", string(sid), "--timeout", "20s")
		}
		again.end(t)
		there.ok("check")
	}
}

// A backup that was cut or changed anywhere is refused, and nothing changes.
func TestRestoreRefusesBadBackups(t *testing.T) {
	d := stoppedWorld(t)
	file := filepath.Join(t.TempDir(), "b.tar")
	d.ok("backup", file)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	there := &desktop{t: t, dir: stateIn(t)}
	bad := filepath.Join(t.TempDir(), "bad.tar")
	try := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(bad, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := there.run("restore", bad); r.code != exitFailed || hasState(there.dir) {
			t.Errorf("%s: exit %d, %q; state there: %v", name, r.code, r.err, hasState(there.dir))
		}
		if r := d.run("check", bad); r.code != exitFailed || r.out == "" {
			t.Errorf("%s: check says %d, %q", name, r.code, r.out)
		}
	}
	for _, n := range []int{0, 1, 600, 5000, len(whole) / 2, len(whole) - 3000} {
		try(fmt.Sprintf("cut to %d bytes", n), whole[:n])
	}
	for _, at := range []int{3, 2048, 5000, len(whole) / 2, len(whole) - 6000} {
		b := bytes.Clone(whole)
		b[at] ^= 0x20
		if err := os.WriteFile(bad, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := there.run("restore", bad); r.code == 0 {
			// A bit of what means nothing: padding, or a header's own leisure.
			if r := there.run("check"); r.code != 0 {
				t.Errorf("a bit at %d changed what was restored: %s", at, r.out)
			}
			there.dir = stateIn(t)
		}
	}
	newer := bytes.Replace(whole, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	try("a newer format", newer)
	try("no tar", bytes.Repeat([]byte("text "), 1000))
	if left, _ := filepath.Glob(filepath.Join(there.dir, stagePrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A store that cannot copy itself, a token that may not see everything and a host
// that is stopped get clear answers.
func TestOfflineVerbsWantTheHostStopped(t *testing.T) {
	d, _ := startedWorld(t)
	file := filepath.Join(t.TempDir(), "b.tar")
	d.ok("backup", file)
	for _, args := range [][]string{{"check"}, {"compact"}, {"restore", file}, {"restore", "--force", file}} {
		d.fails(exitFailed, "stop the host first", args...)
	}
	none := &desktop{t: t, dir: stateIn(t)}
	none.fails(exitNotFound, "holds no state", "check")
	none.fails(exitNotFound, "holds no state", "compact")
	none.fails(exitNotFound, "the backup", "restore", "no-such-file")
	none.fails(exitUsage, "--blob-grace", "compact", "--blob-grace", "-1s")
	if _, err := os.Stat(none.dir); err == nil {
		t.Error("a verb that failed made the state directory")
	}
}

// A file that appears while a backup is written stays, unless it may be replaced.
func TestBackupReplacesNoFileThatAppeared(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for _, name := range []string{from, to} {
		if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := placeFile(from, to, false); ExitCode(err) != exitFailed {
		t.Errorf("placeFile: %v, want a refusal", err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != to {
		t.Errorf("the file that appeared holds %q, %v", b, err)
	}
	if err := placeFile(from, to, true); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != from {
		t.Errorf("with force it holds %q, %v", b, err)
	}
}
