package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/bolt"
)

// stateOf is what a state directory holds: every event of every log, by session.
func stateOf(t *testing.T, dir string) string {
	t.Helper()
	all, _ := logs(t, dir)
	var b strings.Builder
	for _, sid := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s\n", sid)
		for _, e := range all[sid] {
			fmt.Fprintf(&b, "%d %s\n", e.Seq, e.Data)
		}
	}
	return b.String()
}

// twoStates are the state that a host left, and a later one with more in it; each
// is in a backup, and each has blobs that the other has not.
func twoStates(t *testing.T) (d *desktop, files [2]string, states [2]string) {
	t.Helper()
	d, s := startedWorld(t)
	for i := range files {
		if i == 1 {
			end := d.start("run", "--cwd", d.cwd, "seq 1 300000")
			d.ok("approve", d.id())
			<-end
		}
		files[i] = filepath.Join(t.TempDir(), "b.tar")
		d.ok("backup", files[i])
	}
	_ = d.c.Close()
	s.end(t)
	for i := range files {
		at := &desktop{t: t, dir: stateIn(t)}
		at.ok("restore", files[i])
		states[i] = stateOf(t, at.dir)
	}
	if states[0] == states[1] {
		t.Fatal("the two states are the same")
	}
	return d, files, states
}

// shots are copies of a state directory, each as a kill at that step leaves it.
type shots struct {
	t     *testing.T
	dir   string
	names []string
	dirs  []string
}

func (s *shots) take(name string) {
	s.t.Helper()
	if slices.Contains(s.names, name) {
		return
	}
	to := filepath.Join(s.t.TempDir(), "state")
	if err := os.CopyFS(to, os.DirFS(s.dir)); err != nil {
		s.t.Fatal(err)
	}
	err := filepath.WalkDir(to, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.names, s.dirs = append(s.names, name), append(s.dirs, to)
}

// restoreWith runs a restore with a function between its steps.
func restoreWith(t *testing.T, dir, file string, step func(string)) restoreResult {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lock, err := bolt.Acquire(filepath.Join(dir, dbFileName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	r := &restorer{dir: dir, now: time.Now(), warn: func(s string) { t.Errorf("warned: %s", s) }, step: step}
	res, err := r.run(t.Context(), f)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return res
}

// Whenever a restore is killed, what was there or what was restored is there, whole,
// and a later restore does the rest.
func TestRestoreKilledAtAnyStep(t *testing.T) {
	_, files, states := twoStates(t)
	d := &desktop{t: t, dir: stateIn(t)}
	d.ok("restore", files[1])
	s := &shots{t: t, dir: d.dir}
	res := restoreWith(t, d.dir, files[0], s.take)
	s.take("done")
	isNew := false
	for i, dir := range s.dirs {
		at := &desktop{t: t, dir: dir}
		got := stateOf(t, dir)
		switch {
		case got == states[0]:
			isNew = true
		case got != states[1] || isNew:
			t.Errorf("killed when %s: the state is neither the old nor the new one, or old again", s.names[i])
		}
		if r := at.run("check"); r.code != 0 {
			t.Errorf("killed when %s: check: %s %s", s.names[i], r.out, r.err)
		}
		at.ok("restore", "--force", files[0])
		if stateOf(t, dir) != states[0] {
			t.Errorf("killed when %s: the next restore did not restore", s.names[i])
		}
		if left, _ := filepath.Glob(filepath.Join(dir, stagePrefix+"*")); len(left) > 0 {
			t.Errorf("killed when %s: left behind %v", s.names[i], left)
		}
	}
	for _, name := range []string{"begun", "unpacked", "verified", "linked", "set aside", "first blob placed", "blobs placed", "marker removed", "placed"} {
		if !slices.Contains(s.names, name) {
			t.Errorf("the step %q was not seen", name)
		}
	}
	if !isNew || res.Aside == "" || stateOf(t, res.Aside) != states[1] {
		t.Errorf("the old state is not whole in %q", res.Aside)
	}
	if r := (&desktop{t: t, dir: res.Aside}).run("check"); r.code != 0 {
		t.Errorf("what was set aside: check: %s %s", r.out, r.err)
	}
}

// Whenever a compaction is killed, every event and every blob that one names is
// there, under the same epochs.
func TestCompactKilledAtAnyStep(t *testing.T) {
	d := stoppedWorld(t)
	want := stateOf(t, d.dir)
	_, epochs := logs(t, d.dir)
	for n := range 5 { // blobs that nothing names
		writeBlob(t, d.dir, fmt.Sprint("dead", n))
	}
	s := &shots{t: t, dir: d.dir}
	sweeps := 0
	_, err := (&compactor{dir: d.dir, step: func(name string) {
		if name == "sweeping" {
			sweeps++
			name = fmt.Sprint(name, sweeps)
		}
		s.take(name)
	}}).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.take("done")
	if len(s.dirs) < 4+sweeps || sweeps != 5 {
		t.Errorf("the steps were %q", s.names)
	}
	for i, dir := range s.dirs {
		if stateOf(t, dir) != want {
			t.Errorf("killed when %s: the state changed", s.names[i])
		}
		if _, now := logs(t, dir); !maps.Equal(now, epochs) {
			t.Errorf("killed when %s: epochs %v, want %v", s.names[i], now, epochs)
		}
		at := &desktop{t: t, dir: dir}
		at.ok("check")
		at.ok("compact", "--blob-grace", "0s")
		if stateOf(t, dir) != want {
			t.Errorf("killed when %s: the next compaction changed the state", s.names[i])
		}
	}
}

// verbEnv makes TestVerbOfAChild a program: its value is the arguments as JSON.
const verbEnv = "MUXHOST_TEST_VERB"

// A child of the tests below runs its verb here; in the tests' own process there is
// none, and nothing to do.
func TestVerbOfAChild(t *testing.T) {
	text, ok := os.LookupEnv(verbEnv)
	if !ok {
		return
	}
	var args []string
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		t.Fatal(err)
	}
	os.Exit(Main(context.Background(), args))
}

// killed runs a verb in a process of its own and kills it after some time, if it has
// not ended by then.
func killed(t *testing.T, after time.Duration, args ...string) (ended bool) {
	t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestVerbOfAChild$")
	cmd.Env = append(os.Environ(), verbEnv+"="+string(b))
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() == nil {
		t.Fatalf("muxhost %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return err == nil
}

// Restores and compactions that are killed by SIGKILL at random moments leave one
// of the states, whole.
func TestOfflineVerbsSurviveSIGKILL(t *testing.T) {
	_, files, states := twoStates(t)
	d := &desktop{t: t, dir: stateIn(t)}
	d.ok("restore", files[0])
	start := time.Now()
	killed(t, time.Minute, "--state-dir", d.dir, "restore", "--force", files[0])
	whole := time.Since(start)
	rnd := rand.New(rand.NewPCG(1, 2))
	cut, now := 0, 0
	for n := range 15 {
		args := []string{"--state-dir", d.dir, "compact", "--blob-grace", "0s"}
		if n%3 > 0 {
			args = []string{"--state-dir", d.dir, "restore", "--force", files[n%2]}
		}
		if killed(t, time.Duration(rnd.Int64N(int64(whole*5/4))), args...) {
			whole = whole * 9 / 10
		} else { // the machine is slower than it was: let the next ones go further
			whole = whole * 11 / 10
			cut++
		}
		got := stateOf(t, d.dir)
		switch {
		case got == states[now]:
		case got == states[1-now] && n%3 > 0 && n%2 == 1-now:
			now = 1 - now
		default:
			t.Fatalf("round %d: after muxhost %s was killed the state is none of the two", n, strings.Join(args, " "))
		}
		if r := d.run("check"); r.code != 0 {
			t.Fatalf("round %d: check after muxhost %s was killed: %s %s", n, strings.Join(args, " "), r.out, r.err)
		}
	}
	if cut == 0 {
		t.Error("no call was killed")
	}
	if !killed(t, 5*time.Minute, "--state-dir", d.dir, "restore", "--force", files[1-now]) || stateOf(t, d.dir) != states[1-now] {
		t.Error("a restore that is not killed did not restore")
	}
}

// writeBlob puts a blob that nothing names into a state directory, long ago.
func writeBlob(t *testing.T, dir, text string) frames.BlobID {
	t.Helper()
	id, path := blobFile(dir, text)
	long := time.Now().Add(-48 * time.Hour)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	return id
}

// change edits the database of a state directory that no host runs on.
func change(t *testing.T, dir string, fn func(*bolt.Store)) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, dbFileName), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fn(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// appendRaw appends an event whose bytes are given.
func appendRaw(t *testing.T, db *bolt.Store, sid frames.SessionID, typ, data string, rows ...store.Row) {
	t.Helper()
	h, err := db.Head(t.Context(), sid)
	if err != nil {
		t.Fatal(err)
	}
	e := store.Event{ID: newID(), Type: typ, Data: []byte(data)}
	if _, err := db.Append(t.Context(), sid, h, []store.Event{e}, rows...); err != nil {
		t.Fatal(err)
	}
}
