package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/host"
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
