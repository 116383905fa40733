package shell_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/agenttest"
	"github.com/muxhost/muxhost/host/agent/shell"
)

// Output within 64 KiB is in the result whole; one byte more makes a preview of
// head and tail with the whole in a blob, and no file is left.
func TestLargeOutputBecomesPreviewAndBlob(t *testing.T) {
	const limit = 64 << 10
	for _, size := range []int{limit, limit + 1, 5 << 20} {
		tmp := dir(t)
		cwd := dir(t)
		want := bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size]
		if err := os.WriteFile(filepath.Join(cwd, "data"), want, 0o600); err != nil {
			t.Fatal(err)
		}
		h, s := open(t, shell.Options{TempDir: tmp}, agenttest.Script{Cwd: cwd})
		res := run(t, s, "cat data")
		got, tr := res.Content[0].Text, res.Content[0].Truncated
		if size <= limit {
			if got != string(want) || tr != nil {
				t.Errorf("%d bytes: %d inline, truncated %v; want all inline", size, len(got), tr)
			}
			continue
		}
		if tr == nil || tr.Bytes != int64(size) || !bytes.Equal(h.Blob(tr.Blob), want) {
			t.Fatalf("%d bytes: truncated = %+v with %d bytes in the blob; want the whole", size, tr, len(h.Blob(tr.Blob)))
		}
		if !strings.HasPrefix(got, string(want[:20<<10])) || !strings.HasSuffix(got, string(want[size-20<<10:])) {
			t.Errorf("%d bytes: the preview is not the head and the tail", size)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%d bytes: files left = %v, %v", size, left, err)
		}
	}
}

// Beyond the limit output is dropped, the result says how much, and the tail
// still shows how it ended.
func TestOutputBeyondTheLimitIsDroppedAndSaidSo(t *testing.T) {
	const limit = 1 << 20
	h, s := open(t, shell.Options{MaxOutput: limit}, agenttest.Script{})
	res := run(t, s, "head -c 3000000 /dev/zero | tr '\\0' a; echo the end")
	tr := res.Content[0].Truncated
	if tr == nil || tr.Bytes != 3000008 || len(h.Blob(tr.Blob)) != limit {
		t.Fatalf("truncated = %+v, blob of %d; want 3000008 bytes of which 1 MiB is kept", tr, len(h.Blob(tr.Blob)))
	}
	var d struct{ DroppedBytes int64 }
	if err := json.Unmarshal(res.Details, &d); err != nil || d.DroppedBytes != 3000008-limit {
		t.Errorf("details = %s, %v; want what was dropped", res.Details, err)
	}
	if got := text(res); !strings.Contains(got, "only the first 1048576 bytes are kept") || !strings.HasSuffix(got, "the end\n") {
		t.Errorf("the preview says neither; it ends with %q", got[len(got)-200:])
	}
}

// Where no file can be made the command still runs, and the result says that
// the whole is lost.
func TestFullDiskLosesOutputNotTheCommand(t *testing.T) {
	_, s := open(t, shell.Options{TempDir: "/nonexistent"}, agenttest.Script{})
	res := run(t, s, "head -c 200000 /dev/zero | tr '\\0' a; echo the end")
	if got := text(res); res.IsError || !strings.Contains(got, "could not be kept") || !strings.HasSuffix(got, "the end\n") {
		t.Errorf("result = %v, %d bytes; want success, and a word on what is lost", res.IsError, len(got))
	}
}

// Control bytes are data, and even a screenful of them makes no event too large.
func TestControlBytesPassThrough(t *testing.T) {
	_, s := open(t, shell.Options{}, agenttest.Script{})
	res := run(t, s, `printf 'a\000b\033[31m\377\302\251'`)
	if got, want := text(res), "a\x00b\x1b[31m\uFFFD©"; got != want {
		t.Errorf("result = %q; want %q", got, want)
	}
	res = run(t, s, "head -c 65536 /dev/zero")
	b, err := json.Marshal(res)
	if err != nil || len(b) > frames.MaxEvent {
		t.Errorf("64 KiB of NUL make an event of %d bytes, %v; want at most %d", len(b), err, frames.MaxEvent)
	}
}

// A command that cannot be asked for is not run, and the turn fails.
func TestFailedAskRunsNothing(t *testing.T) {
	disk := errors.New("disk full")
	_, s := open(t, shell.Options{}, agenttest.Script{Event: func(_ *agenttest.Session, e frames.Payload) error {
		if e.EventType() == "approval/asked" {
			return disk
		}
		return nil
	}})
	_, err := s.Prompt(t.Context(), "touch ran")
	if !errors.Is(err, disk) || exists(filepath.Join(s.Info.Cwd, "ran")) {
		t.Errorf("Prompt = %v; want the store's error and nothing run", err)
	}
	if res := agenttest.Last[frames.ToolResult](s); res.ErrorCode != "unavailable" {
		t.Errorf("result = %+v; want error code unavailable", res)
	}
}
