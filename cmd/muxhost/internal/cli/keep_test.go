package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
)

// The flags that bound what is kept take units, and refuse what cannot be meant.
func TestKeepFlagsTakeUnits(t *testing.T) {
	for _, c := range []struct {
		args string
		want host.Retention
		fail string
	}{
		{"", host.Retention{}, ""},
		{"--keep-age 720h --keep-events 1000", host.Retention{MaxAge: 720 * time.Hour, MaxEvents: 1000}, ""},
		{"--keep-bytes 64MiB --keep-total 10GiB", host.Retention{MaxBytes: 64 << 20, MaxTotalBytes: 10 << 30}, ""},
		{"--keep-bytes 1024 --keep-total 3KiB", host.Retention{MaxBytes: 1024, MaxTotalBytes: 3072}, ""},
		{"--keep-bytes 7B --keep-total 2TiB", host.Retention{MaxBytes: 7, MaxTotalBytes: 2 << 40}, ""},
		{"--keep-bytes 64MB", host.Retention{}, "such as 64MiB"},
		{"--keep-bytes -1", host.Retention{}, "such as 64MiB"},
		{"--keep-bytes MiB", host.Retention{}, "such as 64MiB"},
		{"--keep-total 9999999999GiB", host.Retention{}, "such as 64MiB"},
		{"--keep-age 30s", host.Retention{}, "720h for 30 days"},
		{"--keep-age -1h", host.Retention{}, "720h for 30 days"},
		{"--keep-events -5", host.Retention{}, "a number from 1"},
	} {
		var f keepFlags
		cmd := new(cobra.Command)
		f.add(cmd)
		err := cmd.ParseFlags(strings.Fields(c.args))
		var got host.Retention
		if err == nil {
			got, err = f.retention()
		}
		if got != c.want || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%q: %+v, %v; want %+v, %q", c.args, got, err, c.want, c.fail)
		}
	}
	for _, s := range []string{"0", "64MiB", "10GiB", "1025B", "3TiB"} {
		var b byteSize
		if err := b.Set(s); err != nil || b.String() != s {
			t.Errorf("%s reads %d and prints %s, %v", s, b, b.String(), err)
		}
	}
}

// Where the oldest turns are no longer kept, history and tail say so and go on from
// what is.
func TestVerbsSayWhatIsNoLongerKept(t *testing.T) {
	d := &desktop{t: t, dir: stateIn(t), cwd: t.TempDir()}
	s := serveIn(t, d.dir, "--keep-events", "12")
	c, err := s.a.dial(t.Context(), d.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	made, err := c.Create(t.Context(), rpc.CreateParams{Cwd: d.cwd, Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "sh", Decision: "allow"}}}})
	if err != nil {
		t.Fatal(err)
	}
	sid := made.SessionID
	for range 8 {
		if _, err := c.Prompt(t.Context(), rpc.PromptParams{SessionID: sid, Content: []frames.ContentBlock{frames.Text("true")}}); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var page rpc.HistoryResult
	for page.First <= 1 {
		if page, err = c.History(t.Context(), rpc.HistoryParams{SessionID: sid, Limit: 1}); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	for _, verb := range []string{"history", "tail"} {
		r := d.run(verb, string(sid))
		if r.code != 0 || !strings.Contains(r.out+r.err, "are no longer kept") {
			t.Errorf("%s: exit %d\n%s\n%s", verb, r.code, r.out, r.err)
		}
	}
	d.fails(exitFailed, "the log holds events", "tail", string(sid), "--since", "1")
	d.fails(exitFailed, "are no longer kept: read on after", "history", string(sid), "--after", "1")
}
