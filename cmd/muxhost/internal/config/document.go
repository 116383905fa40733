package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/muxhost/muxhost/frames"
)

// Error is a fault of a file.
type Error struct {
	File string
	Line int // from 1; 0 where no line is at fault
	Text string
}

// Error returns file:line: text.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// document is a file that was parsed: its values, and the line of each.
type document struct {
	file  string
	root  map[string]any
	lines map[string]int // by path
	faults
}

// faults collects what is wrong with a file.
type faults struct{ all []*Error }

// maxFaults bounds how many faults of a file are told at once, maxFault one of them in
// bytes: clients are told of project files too.
const (
	maxFaults = 20
	maxFault  = 1 << 10
)

func (f *faults) err() error {
	slices.SortStableFunc(f.all, func(a, b *Error) int { return a.Line - b.Line })
	var errs []error
	for i, e := range f.all {
		if i == maxFaults {
			e = &Error{File: e.File, Line: e.Line, Text: fmt.Sprintf("this and %d more are wrong; mend those above first", len(f.all)-i-1)}
		}
		e.Text, _ = frames.Preview(e.Text, maxFault)
		if errs = append(errs, e); i == maxFaults {
			break
		}
	}
	return errors.Join(errs...)
}

// readFile reads a regular file of at most most bytes. It waits for nothing, not for
// the writer of a pipe that is put there meanwhile either. Its error wraps
// [fs.ErrNotExist] only if nothing is there, not even a link that leads nowhere.
func readFile(path string, most int64) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(path); lerr == nil {
			return nil, nil, &Error{File: path, Text: "it is a link to a file that does not exist; make that file, or remove the link"}
		}
	}
	odd := &Error{File: path, Text: "it is no regular file; put a TOML file there"}
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular(): // opening a device may do something
		return nil, nil, odd
	}
	f, err := openAtOnce(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, odd
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, nil, err
	}
	if int64(len(b)) > most {
		return nil, nil, &Error{File: path, Text: fmt.Sprintf("it is larger than %d KiB; make it smaller", most>>10)}
	}
	return b, info, nil
}

// parse parses the bytes of a file.
func parse(file string, b []byte) (*document, error) {
	d := &document{file: file, lines: map[string]int{}}
	if at := tooDeep(b); at >= 0 {
		return nil, &Error{file, 1 + bytes.Count(b[:at], []byte("\n")), fmt.Sprintf("it is nested more than %d levels deep; no key is", maxDepth)}
	}
	if err := toml.Unmarshal(b, &d.root); err != nil {
		e := &Error{File: file, Text: "it is no TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			e.Line, _ = at.Position()
		}
		return nil, e
	}
	x := indexer{lines: d.lines, tables: map[string]int{}}
	for i, c := range b {
		if c == '\n' {
			x.ends = append(x.ends, i)
		}
	}
	x.index(b)
	return d, nil
}

// maxDepth bounds how many tables and lists lie in each other. What is kept of a path
// grows with its square.
const maxDepth = 32

// tooDeep returns where a document is nested too deep, -1 if it is so nowhere, as far
// as it can be parsed.
func tooDeep(b []byte) int {
	var p unstable.Parser
	p.Reset(b)
	room := maxDepth
	for p.NextExpression() {
		e := p.Expression()
		left := maxDepth
		if e.Kind == unstable.KeyValue {
			left = room
		}
		left = deepen(e, left)
		if left < 0 {
			it := e.Key()
			it.Next()
			return int(it.Node().Raw.Offset)
		}
		if e.Kind != unstable.KeyValue && e.Kind != unstable.Comment {
			room = left
		}
	}
	return -1
}

// deepen returns how many levels are left below e, of those that were left above it;
// it looks no further once that is less than none.
func deepen(e *unstable.Node, left int) int {
	switch e.Kind {
	case unstable.Table, unstable.ArrayTable, unstable.KeyValue:
		for it := e.Key(); it.Next(); {
			left--
		}
		if e.Kind == unstable.KeyValue && left >= 0 {
			return deepen(e.Value(), left)
		}
	case unstable.InlineTable, unstable.Array:
		if left--; left < 0 {
			return left
		}
		least := left
		for it := e.Children(); it.Next() && least >= 0; {
			least = min(least, deepen(it.Node(), left))
		}
		return least
	}
	return left
}

// indexer finds the line of every key and value of a document that parses.
type indexer struct {
	ends   []int          // offsets of line ends
	lines  map[string]int // by path
	tables map[string]int // elements of arrays of tables, by path
}

func (x *indexer) index(b []byte) {
	var p unstable.Parser
	p.Reset(b)
	var in []string
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table:
			in = x.key(nil, e)
		case unstable.ArrayTable:
			in = x.key(nil, e)
			id := pathID(in)
			in = append(in, strconv.Itoa(x.tables[id]))
			x.tables[id]++
		case unstable.KeyValue:
			x.pair(in, e)
		}
	}
}

// key notes the line of a key, and returns its path below in.
func (x *indexer) key(in []string, e *unstable.Node) []string {
	path := slices.Clone(in)
	for it := e.Key(); it.Next(); {
		k := it.Node()
		path = append(path, string(k.Data))
		x.note(path, k)
	}
	return path
}

func (x *indexer) pair(in []string, e *unstable.Node) {
	x.value(x.key(in, e), e.Value())
}

func (x *indexer) value(path []string, v *unstable.Node) {
	it := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for it.Next() {
			x.pair(path, it.Node())
		}
	case unstable.Array:
		for i := 0; it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			at := append(slices.Clone(path), strconv.Itoa(i))
			x.note(at, it.Node())
			x.value(at, it.Node())
			i++
		}
	}
}

// note keeps the line of the first mention of path.
func (x *indexer) note(path []string, n *unstable.Node) {
	id := pathID(path)
	if _, known := x.lines[id]; known || n.Raw.Length == 0 {
		return
	}
	x.lines[id] = 1 + sort.SearchInts(x.ends, int(n.Raw.Offset))
}

func pathID(path []string) string { return strings.Join(path, "\x00") }

// line returns the line of path, or of the nearest thing around it.
func (d *document) line(path []string) int {
	for n := len(path); n > 0; n-- {
		if l, ok := d.lines[pathID(path[:n])]; ok {
			return l
		}
	}
	return 0
}

// table is a table of a document.
type table struct {
	doc  *document
	path []string
	m    map[string]any
}

func (d *document) top() table { return table{d, nil, d.root} }

// keys returns the keys in the order of their lines.
func (t table) keys() []string {
	return slices.SortedFunc(maps.Keys(t.m), func(a, b string) int {
		if d := t.line(a) - t.line(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}

func (t table) at(key string) []string { return append(slices.Clone(t.path), key) }
func (t table) line(key string) int    { return t.doc.line(t.at(key)) }

// fault notes what is wrong at key.
func (t table) fault(key, format string, args ...any) {
	t.doc.all = append(t.doc.all, &Error{t.doc.file, t.line(key), fmt.Sprintf(format, args...)})
}

// where says where key stands, for messages of others.
func (t table) where(key string) string { return fmt.Sprintf("%s:%d", t.doc.file, t.line(key)) }

// name is how a person writes the table.
func (t table) name() string {
	if len(t.path) == 0 {
		return "the file"
	}
	return "[" + strings.Join(t.path, ".") + "]"
}
