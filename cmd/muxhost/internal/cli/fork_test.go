package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// session makes a session with one allowed command for each of lines, and returns its
// id.
func (d *desktop) session(lines ...string) string {
	d.t.Helper()
	sid := strings.TrimSpace(d.ok("run", "--detach", "--cwd", d.cwd, "--title", "my title", lines[0]))
	for i, line := range lines {
		if i > 0 {
			d.ok("send", sid, line)
		}
		d.ok("wait", sid, "--until", "needs-input")
		d.ok("approve", d.id())
		d.ok("wait", sid)
	}
	return sid
}

// ends returns the numbers of a session's turn ends.
func (d *desktop) ends(sid string) []frames.Seq {
	d.t.Helper()
	h, err := d.c.History(d.t.Context(), rpc.HistoryParams{SessionID: frames.SessionID(sid), After: new(frames.Seq(0)), Limit: 1000})
	if err != nil {
		d.t.Fatal(err)
	}
	var out []frames.Seq
	for _, raw := range h.Events {
		e, err := frames.DecodeEvent(raw)
		if err != nil {
			d.t.Fatal(err)
		}
		if e.Type == frames.TurnEndEvent {
			out = append(out, e.Seq)
		}
	}
	return out
}

// A fork has the past of its source up to a turn's end, and goes on by itself.
func TestForkASession(t *testing.T) {
	d := newDesktop(t)
	sid := d.session("echo one", "echo two")
	ends := d.ends(sid)
	last := strings.TrimSpace(d.ok("fork", sid))
	if out := d.ok("tail", last); !strings.Contains(out, "one\n") || !strings.Contains(out, "two\n") {
		t.Errorf("the fork tells %q", out)
	}
	fork := strings.TrimSpace(d.ok("fork", sid[20:], "--at", num(ends[0]), "--title", "other"))
	out := d.ok("show", fork)
	if !strings.Contains(out, "other") || !strings.Contains(out, sid) {
		t.Errorf("show printed %q, want the title and the parent", out)
	}
	if out := d.ok("tail", fork); !strings.Contains(out, "one\n") || strings.Contains(out, "two\n") {
		t.Errorf("the fork at the first turn's end tells %q", out)
	}
	d.fails(exitFailed, "ends no turn", "fork", sid, "--at", "2")
	d.fails(exitUsage, "--at", "fork", sid, "--at", "0")
	d.fails(exitNotFound, "there is no session", "fork", "nobody")
}

// An export goes to standard output or to a file, as it was asked for.
func TestExportASession(t *testing.T) {
	d := newDesktop(t)
	sid := d.session("echo one")
	if out := d.ok("export", sid); !strings.HasPrefix(out, "# my title\n") || !strings.Contains(out, "```\none\n```\n") || !strings.Contains(out, "**allowed-once** by ") {
		t.Errorf("the transcript is\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "log.jsonl")
	d.ok("export", sid, "--format", "jsonl", "-o", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		if e, err := frames.DecodeEvent(bytes.TrimSuffix(line, []byte("\n"))); err != nil || int(e.Seq) != n {
			t.Errorf("line %d: %s, %v", n, line, err)
		}
	}
	if ends := d.ends(sid); n != int(ends[0]) {
		t.Errorf("%d lines, want %d", n, ends[0])
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".muxhost-*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	t.Chdir(t.TempDir())
	if out := d.ok("export", sid, "--format", "jsonl", "-o", "-"); out != string(b) {
		t.Errorf("-o - printed %q, want what the file holds", out)
	}
	if _, err := os.Lstat("-"); err == nil {
		t.Error("-o - made a file of that name")
	}
	d.fails(exitUsage, "--format", "export", sid, "--format", "pdf")
	d.fails(exitFailed, "no-such-dir", "export", sid, "-o", filepath.Join(t.TempDir(), "no-such-dir", "x"))
}

// A replay tells a session as it was at any event; with a speed it takes its time,
// and no pause is longer than five seconds.
func TestReplayASession(t *testing.T) {
	d := newDesktop(t)
	sid := d.session("echo one", "echo two")
	ends := d.ends(sid)
	if out := d.ok("replay", sid); out != d.ok("tail", sid) {
		t.Errorf("replay of all printed %q, tail another thing", out)
	}
	if out := d.ok("replay", sid, "--at", num(ends[0])); !strings.Contains(out, "one\n") || strings.Contains(out, "two") {
		t.Errorf("replay up to the first turn printed %q", out)
	}
	var line struct{ Data frames.View }
	if err := json.Unmarshal([]byte(d.ok("replay", sid, "--json", "--at", num(ends[0]))), &line); err != nil || line.Data.Seq != ends[0] || len(line.Data.Turns) != 1 {
		t.Errorf("the view is at %d with %d turns, %v", line.Data.Seq, len(line.Data.Turns), err)
	}
	d.ok("replay", sid, "--speed", "100000")
	d.fails(exitUsage, "the last event is", "replay", sid, "--at", "9999")
	d.fails(exitUsage, "0 or more", "replay", sid, "--speed", "-1")
}

// Facts are told one a line, with their time and who answered; what was printed
// cannot move the cursor.
func TestTailPlain(t *testing.T) {
	d := newDesktop(t)
	sid := d.session(`printf 'a\033[31mred\nb'`)
	out := d.ok("tail", "--plain", sid)
	for _, want := range []string{" session/created ", " user/message ", " tool/call ", " tool/result ", " turn/end completed\n", " approval/decided ", "allowed-once (reply) by ", "a⟨U+001B⟩[31mred⟨U+000A⟩b"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	next := frames.Seq(1)
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil || len(f) < 4 || f[1] != sid || f[2] != num(next) {
			t.Errorf("line %q: %v, want time, session, %d and type", line, err, next)
		}
		next++
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("line %q holds a control character", line)
		}
	}
	d.fails(exitUsage, "exclude", "tail", "--plain", "--json", sid)
}

// Streams are left out where that is asked for.
func TestTailDelivery(t *testing.T) {
	d := newDesktop(t)
	sid := strings.TrimSpace(d.ok("run", "--detach", "--agent", "demo", "--cwd", d.cwd, "how are you"))

	d.ok("wait", sid)
	whole := d.ok("tail", "--text", "final", "--reasoning", "off", "--tools", "off", sid)
	if !strings.Contains(whole, "You said: how are you") || strings.Contains(whole, "∙") || strings.Contains(whole, "no model, so I repeat") {
		t.Errorf("tail without reasoning printed %q", whole)
	}
	if out := d.ok("tail", sid); !strings.Contains(out, "∙ A prompt.") {
		t.Errorf("tail with reasoning printed %q", out)
	}
	if out := d.ok("tail", "--plain", "--reasoning", "off", sid); !strings.Contains(out, `reasoning/message {"withheld":true}`) {
		t.Errorf("plain without reasoning printed\n%s", out)
	}
	for _, bad := range [][]string{{"--text", "off"}, {"--reasoning", "no"}, {"--tools", "final"}} {
		d.fails(exitUsage, bad[0], append([]string{"tail", sid}, bad...)...)
	}
}

// Files go with a prompt as blobs, byte for byte.
func TestSendFiles(t *testing.T) {
	d := newDesktop(t)
	sid := strings.TrimSpace(d.ok("run", "--detach", "--agent", "demo", "--cwd", d.cwd, "hello"))
	d.ok("wait", sid)
	png := append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{0, 1, 2}, 300_000)...)
	image, notes := filepath.Join(d.cwd, "shot"), filepath.Join(d.cwd, "notes.json")
	for name, b := range map[string][]byte{image: png, notes: []byte("{}")} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.ok("send", sid, "look", "--image", image, "--attach", notes)
	d.ok("wait", sid)
	got, err := d.c.Get(t.Context(), rpc.GetParams{SessionID: frames.SessionID(sid), View: true})
	if err != nil {
		t.Fatal(err)
	}
	v := frames.NewView()
	if err := json.Unmarshal(got.View, v); err != nil {
		t.Fatal(err)
	}
	var last *frames.Item
	for _, it := range v.Items {
		if it.Kind == frames.ItemUser {
			last = it
		}
	}
	if c := last.Content; len(c) != 3 || c[1].Type != "image" || c[1].MimeType != "image/png" || c[1].Name != "shot" || c[2].Type != "resource" || c[2].MimeType != "application/json" {
		t.Fatalf("the prompt became %+v", c)
	}
	var back bytes.Buffer
	if _, err := d.c.ReadBlob(t.Context(), last.Content[1].Blob, &back); err != nil || !bytes.Equal(back.Bytes(), png) {
		t.Errorf("the image came back as %d bytes, %v", back.Len(), err)
	}
	d.fails(exitUsage, "not an image", "send", sid, "x", "--image", notes)
	d.fails(exitFailed, "no-such-file", "send", sid, "x", "--attach", filepath.Join(d.cwd, "no-such-file"))
}

func num(s frames.Seq) string { return strconv.FormatUint(uint64(s), 10) }
