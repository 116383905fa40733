package frames

import (
	"fmt"
	"time"
)

const timeLayout = "2006-01-02T15:04:05.000Z"

// Time is a wall-clock instant; on the wire RFC 3339, UTC, milliseconds. The
// zero Time is omitted by `omitzero`.
type Time struct{ time.Time }

// At returns t in UTC, cut to milliseconds, so that it survives the wire.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// String returns the wire form.
func (t Time) String() string { return t.UTC().Format(timeLayout) }

// MarshalJSON writes the wire form.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(append(make([]byte, 0, len(timeLayout)+2), '"'), timeLayout+`"`), nil
}

// UnmarshalJSON reads any RFC 3339 time; null is the zero time.
func (t *Time) UnmarshalJSON(b []byte) error {
	if isNull(b) {
		*t = Time{}
		return nil
	}
	if len(b) < 2 || b[0] != '"' {
		return fmt.Errorf("time: want an RFC 3339 string, got %s", b)
	}
	v, err := time.Parse(time.RFC3339, string(b[1:len(b)-1]))
	if err != nil {
		return fmt.Errorf("time: want an RFC 3339 string: %w", err)
	}
	if !writable(v) {
		return fmt.Errorf("time: want a year from 0 to 9999 in UTC, got %s", b)
	}
	*t = At(v)
	return nil
}

// writable reports whether the wire form can hold t.
func writable(t time.Time) bool {
	y := t.UTC().Year()
	return y >= 0 && y <= 9999
}
