package conform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var notSlug = regexp.MustCompile(`[^a-z0-9.]+`)

// slug makes the name of a check of a value.
func slug(s string) string {
	out := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(strings.ReplaceAll(s, "-1", "minus-1")), "-"), "-")
	return cmp.Or(out, "nothing")
}

// sortChecks puts rows that came from a map into order.
func sortChecks(checks []Check) {
	slices.SortFunc(checks, func(a, b Check) int { return cmp.Compare(a.ID, b.ID) })
}

func decode(b []byte, into any) error { return json.Unmarshal(b, into) }

var timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// isTime reports whether s is RFC 3339 in UTC with milliseconds.
func isTime(s string) bool { return timePattern.MatchString(s) }

var uuid7Pattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// isUUID7 reports whether s is a UUIDv7.
func isUUID7(s string) bool { return uuid7Pattern.MatchString(s) }

// keysOf yields the keys of a map.
func keysOf[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// splitLines returns the lines of b that are not empty.
func splitLines(b []byte) [][]byte {
	return slices.DeleteFunc(bytes.Split(b, []byte("\n")), func(l []byte) bool { return len(l) == 0 })
}

// contains reports whether s holds word at least n times.
func contains(s, word string, n int) bool { return strings.Count(s, word) >= n }
