package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/host"
)

// keepFlags bound what is kept of sessions' logs.
type keepFlags struct {
	age          time.Duration
	events       int64
	bytes, total byteSize
}

func (f *keepFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.DurationVar(&f.age, "keep-age", 0, "drop turns that ended longer ago, such as 720h; what they add up to stays (default: keep all)")
	fl.Int64Var(&f.events, "keep-events", 0, "drop the oldest turns of a session that has more events (default: keep all)")
	fl.Var(&f.bytes, "keep-bytes", "drop the oldest turns of a session whose events take more, such as 64MiB (default: keep all)")
	fl.Var(&f.total, "keep-total", "drop the oldest turns, of the sessions first that were used least recently, when all events take more, such as 10GiB (default: keep all)")
}

// retention checks the flags.
func (f *keepFlags) retention() (host.Retention, error) {
	if f.age != 0 && f.age < time.Minute {
		return host.Retention{}, fail(exitUsage, "--keep-age is %v: it takes 1m and more, such as 720h for 30 days", f.age)
	}
	if f.events < 0 {
		return host.Retention{}, fail(exitUsage, "--keep-events is %d: it takes a number from 1, or 0 to keep all", f.events)
	}
	return host.Retention{MaxAge: f.age, MaxEvents: f.events, MaxBytes: int64(f.bytes), MaxTotalBytes: int64(f.total)}, nil
}

// byteSize is a number of bytes that is typed with a unit: 64MiB.
type byteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// Set implements pflag.Value.
func (s *byteSize) Set(text string) error {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		*s = byteSize(n * u.bytes)
		return nil
	}
	return fmt.Errorf("want a number of bytes with KiB, MiB, GiB or TiB, such as 64MiB, or 0 to keep all")
}

// String implements pflag.Value.
func (s *byteSize) String() string {
	for _, u := range byteUnits {
		if *s > 0 && int64(*s)%u.bytes == 0 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// Type implements pflag.Value.
func (*byteSize) Type() string { return "bytes" }
