package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
)

const (
	inlineMax  = 64 << 10  // output that a result holds whole
	encodedMax = 192 << 10 // its size as JSON, well below an event's limit
	previewEnd = 24 << 10  // head and tail of a preview
	smallEnd   = 12 << 10  // the same where escapes make it too large
)

// Recorder keeps what a command writes: the whole up to a limit, in memory at
// first and then in a private file, and the last bytes of all. One goroutine
// adds; the rest is called after that is done.
type Recorder struct {
	dir      string
	max      int64
	repair   Repairer
	head     []byte // the first inlineMax bytes
	tail     []byte // the last previewEnd bytes, or somewhat more
	file     *os.File
	kept     int64 // bytes of the whole that are kept
	dropped  int64 // bytes beyond max, or that the disk refused
	spoolErr error
}

// NewRecorder returns a recorder that keeps at most limit bytes, and those that are
// too many for memory in a private file in dir ("": the system's).
func NewRecorder(dir string, limit int64) *Recorder { return &Recorder{dir: dir, max: limit} }

// Add records chunk and returns it as valid text.
func (r *Recorder) Add(chunk []byte) string {
	keep := chunk[:min(int64(len(chunk)), r.max-r.kept)]
	if r.spoolErr != nil {
		keep = nil
	}
	n := r.spool(keep)
	r.kept += int64(n)
	r.dropped += int64(len(chunk) - n)
	if room := inlineMax - len(r.head); room > 0 {
		r.head = append(r.head, chunk[:min(room, len(chunk))]...)
	}
	r.tail = append(r.tail, chunk...)
	if over := len(r.tail) - previewEnd; over > previewEnd {
		r.tail = append(r.tail[:0], r.tail[over:]...)
	}
	return r.repair.Text(chunk)
}

// spool keeps b as part of the whole and returns how many bytes are kept.
func (r *Recorder) spool(b []byte) int {
	if r.file == nil {
		if r.kept+int64(len(b)) <= inlineMax {
			return len(b) // head holds it
		}
		if !r.openFile() {
			return 0
		}
	}
	n, err := r.file.Write(b)
	r.spoolErr = err
	return n
}

// openFile moves from memory to a file. The file has no name any more where the
// system allows that, so a crash leaves nothing behind.
func (r *Recorder) openFile() bool {
	f, err := os.CreateTemp(r.dir, "muxhost-output-*")
	if err != nil {
		r.spoolErr = err
		return false
	}
	r.file = f
	_ = os.Remove(f.Name())
	_, r.spoolErr = f.Write(r.head[:r.kept])
	return r.spoolErr == nil
}

// Flush returns the text of what is left when no more chunks come.
func (r *Recorder) Flush() string { return r.repair.Flush() }

// Dropped returns how many bytes are not kept.
func (r *Recorder) Dropped() int64 { return r.dropped }

// Whole reads everything that was kept, from its beginning, as raw bytes.
func (r *Recorder) Whole() (io.Reader, error) {
	if r.file == nil {
		return bytes.NewReader(r.head[:r.kept]), nil
	}
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the kept output: %w", err)
	}
	return io.LimitReader(r.file, r.kept), nil
}

// Content is what a result shows: all output, or its head and tail and a
// reference to the whole, which blob stores.
func (r *Recorder) Content(blob func() (frames.BlobID, error)) frames.ContentBlock {
	total := r.kept + r.dropped
	if total <= inlineMax && r.dropped == 0 {
		if text := Repair(r.head); encodedLen(text) <= encodedMax {
			return frames.Text(text)
		}
	}
	id, err := blob()
	b := frames.Text(r.preview(total, err))
	b.Truncated = &frames.Truncated{Bytes: total, Blob: id}
	return b
}

func (r *Recorder) preview(total int64, err error) string {
	var text string
	for _, end := range []int{previewEnd, smallEnd} {
		head := Repair(r.head[:min(end, len(r.head))])
		tail := Repair(r.tail[max(0, len(r.tail)-end):])
		text = fmt.Sprintf("%s\n[… %d bytes in all; the middle is not shown%s …]\n%s",
			head, total, r.lost(err), tail)
		if encodedLen(text) <= encodedMax {
			break
		}
	}
	return text
}

// lost says what of the output is not kept, if anything.
func (r *Recorder) lost(err error) string {
	switch err = errors.Join(r.spoolErr, err); {
	case err != nil:
		return fmt.Sprintf("; the whole could not be kept: %v", err)
	case r.dropped > 0:
		return fmt.Sprintf("; only the first %d bytes are kept", r.kept)
	}
	return ""
}

// Close deletes the file.
func (r *Recorder) Close() {
	if r.file != nil {
		r.file.Close()
		_ = os.Remove(r.file.Name())
	}
}

// encodedLen is the length of s in JSON.
func encodedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20:
			n += 5
		case c == '"' || c == '\\':
			n++
		case c == '<' || c == '>' || c == '&':
			n += 5
		}
	}
	return n
}

// Repairer turns bytes that come in chunks into valid text: a character that is
// split between chunks is kept whole, a byte that belongs to none becomes U+FFFD.
type Repairer struct{ rest []byte }

// Text returns what can be said of all bytes so far and was not returned yet.
func (r *Repairer) Text(chunk []byte) string {
	b := append(r.rest, chunk...)
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 && utf8.FullRune(b) {
		c, n := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, c)
		b = b[n:]
	}
	r.rest = append(r.rest[:0:0], b...)
	return string(out)
}

// Flush returns what is left when no more bytes come.
func (r *Repairer) Flush() string {
	b := r.rest
	r.rest = nil
	return Repair(b)
}

// Repair returns b as valid text, each byte that belongs to no character
// replaced by U+FFFD. Control characters stay.
func Repair(b []byte) string {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, c)
		b = b[n:]
	}
	return string(out)
}
