package llm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

const (
	maxEntries = 2000     // of a listing
	maxMatches = 200      // of a search
	maxScanned = 20_000   // files of a search
	maxSearch  = 4 << 20  // bytes of a file that is searched
	maxMatch   = 300      // bytes of a line that is shown
	maxDepth   = 5        // of a listing
	maxPattern = 4 << 10  // bytes
	searchLine = 64 << 10 // bytes of a line; files with longer ones are no text
)

// errEnough ends a walk that has found all that is shown.
var errEnough = errors.New("enough")

type listInput struct {
	Path  string `json:"path"`
	Depth int    `json:"depth,omitempty"`
}

func (in *listInput) check(cwd string) (err error) {
	if in.Path == "" {
		in.Path = "."
	}
	if in.Depth < 0 || in.Depth > maxDepth {
		return fmt.Errorf("depth is %d; want 1 to %d", in.Depth, maxDepth)
	}
	in.Path, err = within(cwd, in.Path)
	return err
}

func (in *listInput) title() string { return "List " + in.Path }

func (in *listInput) do(ctx context.Context, c *toolRun) (frames.ToolResult, error) {
	root, err := c.root()
	if err != nil {
		return frames.ToolResult{}, err
	}
	defer root.Close()
	var out strings.Builder
	n := 0
	err = walk(ctx, root, in.Path, func(p string, depth int, d fs.DirEntry) error {
		if n++; n > maxEntries {
			out.WriteString("[There is more.]\n")
			return errEnough
		}
		fmt.Fprintf(&out, "%s%s\n", frames.ValidText(p), mark(d))
		if d.IsDir() && depth >= max(in.Depth, 1) {
			return fs.SkipDir
		}
		return nil
	})
	switch {
	case err != nil:
		return frames.ToolResult{}, tell(err, in.Path)
	case n == 0:
		return c.result(frames.Text("[The directory is empty.]")), nil
	}
	return c.whole(ctx, out.String())
}

// mark says what kind an entry is.
func mark(d fs.DirEntry) string {
	switch {
	case d.IsDir():
		return "/"
	case d.Type()&fs.ModeSymlink != 0:
		return "@"
	}
	return ""
}

// walk visits what lies below dir in lexical order, with paths relative to root
// and depths from 1. Links are not followed; what cannot be read is passed over.
func walk(ctx context.Context, root *os.Root, dir string, visit func(p string, depth int, d fs.DirEntry) error) error {
	fi, err := root.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return errors.New("it is no directory")
	}
	base := strings.Count(dir, "/")
	if dir == "." {
		base = -1
	}
	err = fs.WalkDir(root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && p == dir:
			return err
		case err != nil:
			return nil
		case p == dir:
			return nil
		}
		return visit(p, strings.Count(p, "/")-base, d)
	})
	if err == errEnough {
		return nil
	}
	return err
}

type searchInput struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob,omitempty"`
	IgnoreCase bool   `json:"ignoreCase,omitempty"`
}

func (in *searchInput) check(cwd string) (err error) {
	if in.Path == "" {
		in.Path = "."
	}
	if in.Pattern == "" || len(in.Pattern) > maxPattern {
		return fmt.Errorf("the pattern has %d bytes; want 1 to %d", len(in.Pattern), maxPattern)
	}
	if _, err := in.regexp(); err != nil {
		return fmt.Errorf("the pattern is no regular expression (RE2): %w", err)
	}
	if _, err := path.Match(in.Glob, ""); err != nil {
		return fmt.Errorf("the glob %q is malformed; want one such as *.go", in.Glob)
	}
	in.Path, err = within(cwd, in.Path)
	return err
}

func (in *searchInput) regexp() (*regexp.Regexp, error) {
	if in.IgnoreCase {
		return regexp.Compile("(?i)" + in.Pattern)
	}
	return regexp.Compile(in.Pattern)
}

func (in *searchInput) title() string { return "Search " + in.Pattern }

// found collects what a search finds.
type found struct {
	re             *regexp.Regexp
	out            strings.Builder
	matches, files int
}

func (in *searchInput) do(ctx context.Context, c *toolRun) (frames.ToolResult, error) {
	root, err := c.root()
	if err != nil {
		return frames.ToolResult{}, err
	}
	defer root.Close()
	f := &found{}
	if f.re, err = in.regexp(); err != nil {
		return frames.ToolResult{}, err
	}
	fi, err := root.Stat(in.Path)
	if err != nil {
		return frames.ToolResult{}, tell(err, in.Path)
	}
	if fi.IsDir() {
		err = walk(ctx, root, in.Path, func(p string, _ int, d fs.DirEntry) error {
			if d.IsDir() && d.Name() == ".git" {
				return fs.SkipDir
			}
			if ok, _ := path.Match(in.Glob, d.Name()); !d.Type().IsRegular() || in.Glob != "" && !ok {
				return nil
			}
			return f.file(ctx, root, p)
		})
	} else if err = f.file(ctx, root, in.Path); err == errEnough {
		err = nil
	}
	switch {
	case err != nil:
		return frames.ToolResult{}, tell(err, in.Path)
	case f.out.Len() == 0:
		return c.result(frames.Text("[Nothing matches.]")), nil
	}
	return c.whole(ctx, f.out.String())
}

// file searches one file. What is no text, or cannot be read, is passed over.
func (f *found) file(ctx context.Context, root *os.Root, name string) error {
	if f.files++; f.files > maxScanned {
		fmt.Fprintf(&f.out, "[Only %d files were searched; name a path or a glob.]\n", maxScanned)
		return errEnough
	}
	file, fi, err := regular(root, name)
	if err != nil {
		return nil
	}
	defer file.Close()
	if fi.Size() > maxSearch {
		return nil
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, searchLine)
	for n := 1; lines.Scan() && ctx.Err() == nil; n++ {
		line := lines.Bytes()
		if bytes.IndexByte(line, 0) >= 0 {
			return nil
		}
		if !f.re.Match(line) {
			continue
		}
		if f.matches++; f.matches > maxMatches {
			f.out.WriteString("[There is more.]\n")
			return errEnough
		}
		shown, _ := frames.Preview(frames.ValidText(string(line)), maxMatch)
		fmt.Fprintf(&f.out, "%s:%d:%s\n", frames.ValidText(name), n, shown)
	}
	return nil
}
