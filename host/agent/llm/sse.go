package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// maxLine bounds a line of a stream, and the data of an event, in bytes.
const maxLine = 8 << 20

var errEndless = errors.New("an event is too large")

// events yields the data of each event of a text/event-stream. Lines end with LF,
// CRLF or CR; comments and other fields are passed over; an event at the end of
// the stream counts also without its empty line. A field "error", which some
// servers send in place of data, becomes data that says so. An error is the last
// pair.
func events(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 16<<10), maxLine)
		lines.Split(lineSplitter())
		var data []string
		size := 0 // of data
		first := true
		for lines.Scan() {
			line := lines.Text()
			if first {
				line, first = strings.TrimPrefix(line, "\uFEFF"), false
			}
			if line == "" {
				if data != nil && !yield(strings.Join(data, "\n"), nil) {
					return
				}
				data, size = nil, 0
				continue
			}
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case name == "data":
				data = append(data, value)
			case name == "error" && json.Valid([]byte(value)):
				data = append(data, `{"error":`+value+`}`)
			default:
				continue
			}
			if size += len(line); size > maxLine {
				yield("", fmt.Errorf("reading the stream: %w", errEndless))
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield("", fmt.Errorf("reading the stream: %w", err))
			return
		}
		if data != nil {
			yield(strings.Join(data, "\n"), nil)
		}
	}
}

// lineSplitter splits at LF, CRLF and CR without waiting for what follows a CR.
func lineSplitter() bufio.SplitFunc {
	skip := false // a LF that belongs to the CR before it
	return func(b []byte, end bool) (int, []byte, error) {
		from := 0
		if skip && len(b) > 0 {
			skip = false
			if b[0] == '\n' {
				from = 1
			}
		}
		if i := bytes.IndexAny(b[from:], "\r\n"); i >= 0 {
			i += from
			skip = b[i] == '\r'
			return i + 1, b[from:i:i], nil
		}
		if end && len(b) > from {
			return len(b), b[from:], nil
		}
		return from, nil, nil
	}
}
