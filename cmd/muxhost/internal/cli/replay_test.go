package cli

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// A replay takes the time it took, divided by its speed; a pause of hours is cut to
// five seconds, and a clock that went back is none.
func TestReplayTakesItsTime(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out}
	var waits []time.Duration
	r := &replayer{
		a: a, sid: "s", view: frames.NewView(), speed: 2, n: newNarrator(a.outPrinter(), a.outPrinter(), a.style),
		wait: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, d := range []time.Duration{0, 3 * time.Second, 0, 8 * time.Hour, -time.Second, 500 * time.Millisecond} {
		at = at.Add(d)
		e, err := frames.NewEvent(frames.ErrorReported{Code: "c", Message: "m"})
		if err != nil {
			t.Fatal(err)
		}
		e.Seq, e.Time = frames.Seq(i+1), frames.At(at)
		if err := r.event(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if want := []time.Duration{1500 * time.Millisecond, maxPause, 250 * time.Millisecond}; !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
	if n := bytes.Count(out.Bytes(), []byte("✗ m\n")); n != 6 {
		t.Errorf("%d events were told, want 6: %s", n, out.String())
	}
}

// Events are counted from 1: a replay to another number is refused, not told whole.
func TestReplayRefusesOddNumbers(t *testing.T) {
	d := &desktop{t: t, dir: stateIn(t)}
	d.fails(exitUsage, "--at is 0", "replay", "--at", "0", "x")
	d.fails(exitUsage, "--at is -1", "replay", "--at", "-1", "x")
	d.fails(exitUsage, "--speed is -1", "replay", "--speed", "-1", "x")
}

// Who caused an event is told, whatever words it holds.
func TestPlainNamesWhoCausedAnEvent(t *testing.T) {
	const head = `"seq":1,"ts":"2026-01-01T00:00:00.000Z","by":{"clientId":"c","label":"Ann"},"data":`
	for raw, want := range map[string]string{
		`{"type":"user/message",` + head + `{"content":[{"type":"text","text":"done by noon"}]}}`:                             "done by noon by Ann (c)",
		`{"type":"session/renamed",` + head + `{"title":"by hand"}}`:                                                          "by hand by Ann (c)",
		`{"type":"approval/decided",` + head + `{"id":"a","outcome":"rejected","origin":"policy","feedback":"said by rule"}}`: "a rejected (policy): said by rule by Ann (c)",
		`{"type":"approval/decided",` + head + `{"id":"a","outcome":"rejected","origin":"reply","by":{"clientId":"d"}}}`:      "a rejected (reply) by d",
	} {
		var out bytes.Buffer
		if err := newPlain(&out).frame(&frames.SessionEvent{SessionID: "s", Event: []byte(raw)}); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(out.String(), "\n"); !strings.HasSuffix(got, " "+want) {
			t.Errorf("%s\nis told as\n%s\nwant the end %q", raw, got, want)
		}
	}
}

// Facts that no event tells have lines too, and events of vendors stand as they
// are, on one line.
func TestPlainTellsEveryFact(t *testing.T) {
	var out bytes.Buffer
	p := newPlain(&out)
	p.now = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	event := func(raw string) frames.Frame { return &frames.SessionEvent{SessionID: "s", Event: []byte(raw)} }
	for _, f := range []frames.Frame{
		&frames.SessionSubscribed{SessionID: "s", First: 5, Since: 0},
		event(`{"type":"acme.com/odd","seq":5,"ts":"2026-01-01T00:00:00.000Z","by":{"clientId":"c","label":"An\u001bn"},"data":{"x":"\u202e"}}`),
		event(`{"type":"assistant/delta","after":5,"ts":"2026-01-01T00:00:00.000Z","data":{"block":0,"from":0,"to":1,"text":"x"}}`),
		event(`{"type":"question/decided","seq":6,"ts":"2026-01-01T00:00:00.000Z","data":{"id":"q","outcome":"answered","origin":"reply","by":{"clientId":"c"},"answers":[{"id":"a","text":"two\nlines"}]}}`),
		&frames.AgentError{SessionID: "s", Message: "disk\nfull"},
		&frames.SessionUnsubscribed{SessionID: "s", Reason: "deleted"},
	} {
		if err := p.frame(f); err != nil {
			t.Fatal(err)
		}
	}
	const ts = "2026-01-01T00:00:00.000Z "
	want := ts + "s - trimmed events up to 4 are no longer kept\n" +
		ts + "s 5 acme.com/odd {\"x\":\"\\u202e\"} by An⟨U+001B⟩n (c)\n" +
		ts + "s 6 question/decided q answered (reply) by c: two⟨U+000A⟩lines\n" +
		ts + "s - agent-error disk⟨U+000A⟩full\n" +
		ts + "s - unsubscribed deleted\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
