package llm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/internal/proc"
)

const (
	maxFile      = 8 << 20 // bytes of a file that is edited
	defaultLines = 2000
)

// within turns a path of the model into one below cwd, with slashes. What lies
// outside is refused here for a clear word; [os.Root] keeps it out in any case.
func within(cwd, p string) (string, error) {
	if p == "" {
		return "", errors.New("the argument \"path\" is missing; want a path in the directory " + cwd)
	}
	if strings.ContainsRune(p, 0) {
		return "", errors.New("the path holds a NUL")
	}
	if filepath.IsAbs(p) {
		rel, err := filepath.Rel(cwd, filepath.Clean(p))
		if err != nil {
			return "", fmt.Errorf("%s is outside of %s; only files in there can be reached", p, cwd)
		}
		p = rel
	}
	p = path.Clean(filepath.ToSlash(p))
	if !filepath.IsLocal(filepath.FromSlash(p)) {
		return "", fmt.Errorf("%s is outside of %s; only files in there can be reached", p, cwd)
	}
	return p, nil
}

// root opens the session's directory, which must be the one that it was.
func (c *toolRun) root() (*os.Root, error) {
	if err := proc.CheckDir(c.session.Cwd); err != nil {
		return nil, err
	}
	return os.OpenRoot(c.session.Cwd)
}

// regular opens a regular file for reading; others could block, or do something. It
// looks before it opens, so as not to touch them, and again at what it has opened.
func regular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	fi, err := root.Stat(name)
	if err == nil {
		err = isRegular(fi, name)
	} else {
		err = tell(err, name)
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, nil, tell(err, name)
	}
	if fi, err = f.Stat(); err != nil {
		err = tell(err, name)
	} else {
		err = isRegular(fi, name)
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, nil, err
	}
	return f, fi, nil
}

func isRegular(fi fs.FileInfo, name string) error {
	switch {
	case fi.IsDir():
		return fmt.Errorf("%s is a directory; list it", name)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", name)
	}
	return nil
}

// tell says what went wrong with a file in words that a model can use.
func tell(err error, name string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %s", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied", name)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", name, e.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

type readInput struct {
	Path  string `json:"path"`
	From  int    `json:"from,omitempty"`
	Lines int    `json:"lines,omitempty"`
}

func (in *readInput) check(cwd string) (err error) {
	if in.From < 0 || in.Lines < 0 {
		return errors.New("\"from\" and \"lines\" count from 1")
	}
	in.Path, err = within(cwd, in.Path)
	return err
}

func (in *readInput) file() string { return in.Path }

func (in *readInput) title() string { return in.Path }

func (in *readInput) do(ctx context.Context, c *toolRun) (frames.ToolResult, error) {
	root, err := c.root()
	if err != nil {
		return frames.ToolResult{}, err
	}
	defer root.Close()
	f, _, err := regular(root, in.Path)
	if err != nil {
		return frames.ToolResult{}, err
	}
	defer f.Close()
	s, err := lines(ctx, f, max(in.From, 1), max(in.Lines, 0), c.opt.MaxToolText-200)
	if err != nil {
		return frames.ToolResult{}, tell(err, in.Path)
	}
	return c.result(frames.Text(s)), nil
}

var errBinary = errors.New("it is no text file")

// lines reads lines from the given one on, at most limit bytes of them, and says
// where to go on.
func lines(ctx context.Context, f io.Reader, from, count, limit int) (string, error) {
	if count == 0 {
		count = defaultLines
	}
	r := bufio.NewReaderSize(f, 64<<10)
	if head, _ := r.Peek(8 << 10); bytes.IndexByte(head, 0) >= 0 {
		return "", errBinary
	}
	var out strings.Builder
	for n := 1; ; n++ {
		line, cut, err := readLine(r, limit)
		if err == io.EOF && line == "" {
			if n <= from && n > 1 {
				return fmt.Sprintf("[The file has %d lines.]", n-1), nil
			}
			return out.String(), nil
		}
		if err != nil && err != io.EOF {
			return "", err
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if n < from {
			continue
		}
		if n >= from+count || out.Len() > 0 && out.Len()+len(line) > limit {
			fmt.Fprintf(&out, "[There is more: go on with from=%d.]", n)
			return out.String(), nil
		}
		out.WriteString(frames.ValidText(line))
		if cut {
			out.WriteString(" [the line is longer]\n")
		}
	}
}

// readLine reads a line with its end; what is over limit bytes is passed over.
func readLine(r *bufio.Reader, limit int) (string, bool, error) {
	var line []byte
	cut := false
	for {
		piece, err := r.ReadSlice('\n')
		if room := limit - len(line); room < len(piece) {
			piece, cut = piece[:max(room, 0)], true
		}
		line = append(line, piece...)
		if err != bufio.ErrBufferFull {
			return string(line), cut, err
		}
	}
}

type writeInput struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
}

func (in *writeInput) check(cwd string) (err error) {
	if in.Content == nil {
		return errors.New("the argument \"content\" is missing; want the whole text of the file")
	}
	in.Path, err = within(cwd, in.Path)
	return err
}

func (in *writeInput) file() string { return in.Path }

func (in *writeInput) title() string { return "Write " + in.Path }

func (in *writeInput) do(_ context.Context, c *toolRun) (frames.ToolResult, error) {
	root, err := c.root()
	if err != nil {
		return frames.ToolResult{}, err
	}
	defer root.Close()
	if dir := path.Dir(in.Path); dir != "." {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return frames.ToolResult{}, tell(err, dir)
		}
	}
	if err := replace(root, in.Path, []byte(*in.Content)); err != nil {
		return frames.ToolResult{}, tell(err, in.Path)
	}
	return c.result(frames.Text(fmt.Sprintf("Wrote %d bytes to %s.", len(*in.Content), in.Path))), nil
}

// replace writes a file so that nobody sees half of it. A link is followed, within
// root, and what it leads to is written.
func replace(root *os.Root, name string, data []byte) error {
	mode := fs.FileMode(0o666)
	fi, err := root.Lstat(name)
	switch {
	case err == nil && fi.Mode().Type() == fs.ModeSymlink:
		return follow(root, name, data, mode)
	case err == nil && !fi.Mode().IsRegular():
		return errors.New("it is no regular file")
	case err == nil:
		mode = fi.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	tmp := path.Join(path.Dir(name), ".muxhost-"+rand.Text())
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if fi != nil { // the process's mask may have taken bits away
		err = errors.Join(err, f.Chmod(mode))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}

// follow writes the file that a link leads to.
func follow(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	to, err := root.Stat(name)
	if err == nil && !to.Mode().IsRegular() {
		return errors.New("it is no regular file")
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|noWait, mode)
	if err != nil {
		return err
	}
	if to, err = f.Stat(); err == nil && !to.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}

type editInput struct {
	Path string  `json:"path"`
	Old  string  `json:"old"`
	New  *string `json:"new"`
	All  bool    `json:"all,omitempty"`
}

func (in *editInput) check(cwd string) (err error) {
	switch {
	case in.Old == "":
		return errors.New("the argument \"old\" is missing or empty; want text that occurs in the file, or use write")
	case in.New == nil:
		return errors.New("the argument \"new\" is missing; want the text to put there, empty to take it out")
	case in.Old == *in.New:
		return errors.New("\"old\" and \"new\" are the same")
	}
	in.Path, err = within(cwd, in.Path)
	return err
}

func (in *editInput) file() string { return in.Path }

func (in *editInput) title() string { return "Edit " + in.Path }

func (in *editInput) do(_ context.Context, c *toolRun) (frames.ToolResult, error) {
	root, err := c.root()
	if err != nil {
		return frames.ToolResult{}, err
	}
	defer root.Close()
	f, fi, err := regular(root, in.Path)
	if err != nil {
		return frames.ToolResult{}, err
	}
	defer f.Close()
	if fi.Size() > maxFile {
		return frames.ToolResult{}, fmt.Errorf("%s has %d bytes; at most %d can be edited", in.Path, fi.Size(), maxFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return frames.ToolResult{}, tell(err, in.Path)
	}
	n := bytes.Count(b, []byte(in.Old))
	switch {
	case n == 0:
		return frames.ToolResult{}, fmt.Errorf("the old text does not occur in %s; read the file and give it exactly", in.Path)
	case n > 1 && !in.All:
		return frames.ToolResult{}, fmt.Errorf("the old text occurs %d times in %s; give more of it, or set all", n, in.Path)
	}
	if err := replace(root, in.Path, bytes.ReplaceAll(b, []byte(in.Old), []byte(*in.New))); err != nil {
		return frames.ToolResult{}, tell(err, in.Path)
	}
	return c.result(frames.Text(fmt.Sprintf("Replaced %d times in %s.", n, in.Path))), nil
}
