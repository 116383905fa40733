package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// A JSON line holds nothing that a terminal would obey.
func TestJSONLinesAreInert(t *testing.T) {
	var out strings.Builder
	a := &app{stdout: &out}
	if err := a.jsonFrame(&frames.AgentError{Message: "a\u009b2Jb\u202e"}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `{"v":1,"type":"host/agent-error","data":{"message":"a\u009b2Jb\u202e"}}`+"\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// A frame of a later version is printed with the params that it came with.
func TestUnknownFramesKeepTheirParams(t *testing.T) {
	var out strings.Builder
	a := &app{stdout: &out}
	for _, f := range []frames.Frame{
		&frames.Unknown{Type: "later/thing", Params: json.RawMessage(`{"x":1}`)},
		&frames.Unknown{Type: "later/bare"},
	} {
		if err := a.jsonFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"v":1,"type":"later/thing","data":{"x":1}}` + "\n" + `{"v":1,"type":"later/bare","data":null}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// A run whose session is deleted ends, with a failure.
func TestRunEndsWithItsSession(t *testing.T) {
	a := &app{stdout: new(strings.Builder), stderr: new(strings.Builder)}
	w := newWatcher(a, nil, sid, "t1", false)
	end, err := w.frame(t.Context(), &frames.SessionUnsubscribed{SessionID: sid, Reason: "deleted"})
	if end != nil || ExitCode(err) != exitFailed || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("end %v, %v; want a failure that says deleted", end, err)
	}
}
