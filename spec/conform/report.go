package conform

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// State is how a check ended.
type State string

// The states of a check. A skipped one could not be made on this server.
const (
	Passed  State = "passed"
	Failed  State = "failed"
	Skipped State = "skipped"
)

// Result is how one check ended. Sent is what was sent last, Came what came instead
// of Want; of a skipped check Came is the reason.
type Result struct {
	Check
	State            State
	Sent, Came, Want string
	Took             time.Duration
}

// Report is the outcome of a run, in the order of [Checks].
type Report struct {
	URL     string
	Results []Result
	Took    time.Duration
}

// OK reports whether every check passed; a skipped one did not.
func (r *Report) OK() bool { return len(r.Results) > 0 && len(r.Results) == r.count("", Passed) }

// Failed returns the families in which a check failed, in order.
func (r *Report) Failed() []string {
	var out []string
	for _, f := range Families() {
		if r.count(f, Failed) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// count counts the results of a family, "" for all, with a state.
func (r *Report) count(family string, s State) int {
	n := 0
	for _, res := range r.Results {
		if res.State == s && (family == "" || res.Family == family) {
			n++
		}
	}
	return n
}

// Print writes the table of families, and then each check that did not pass: what
// was sent, what came, what the contract says.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %7s %7s %8s\n", "family", "passed", "failed", "skipped")
	for _, f := range Families() {
		p, x, s := r.count(f, Passed), r.count(f, Failed), r.count(f, Skipped)
		if p+x+s > 0 {
			fmt.Fprintf(&b, "%-12s %7d %7d %8d\n", f, p, x, s)
		}
	}
	fmt.Fprintf(&b, "%-12s %7d %7d %8d\n", "all", r.count("", Passed), r.count("", Failed), r.count("", Skipped))
	for _, res := range r.Results {
		switch res.State {
		case Failed:
			fmt.Fprintf(&b, "\nFAILED %s\n  the contract (%s): %s\n  sent: %s\n  came: %s\n  want: %s\n",
				res.ID, res.Section, res.Says, line(res.Sent), line(res.Came), line(res.Want))
		case Skipped:
			fmt.Fprintf(&b, "\nskipped %s: %s\n", res.ID, line(res.Came))
		}
	}
	fmt.Fprintf(&b, "\n%d checks of %s in %v\n", len(r.Results), r.URL, r.Took.Round(10*time.Millisecond))
	_, err := io.WriteString(w, b.String())
	return err
}

// line makes one line of a text that a server may have written.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
