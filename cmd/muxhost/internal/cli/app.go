package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc/client"
)

// line is text of the host's as one safe line.
func (a *app) line(s string) string { return term.Line(s) }

func (a *app) outPrinter() *printer { return &printer{w: a.stdout, tty: isTerminal(a.stdout)} }
func (a *app) errPrinter() *printer { return &printer{w: a.stderr, tty: isTerminal(a.stderr)} }

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(f)
}

// interactive reports whether a person can type answers here.
func (a *app) interactive() bool { return isTerminal(a.stdin) && isTerminal(a.stderr) }

// lines reads what is typed, a line at a time; the channel closes at the end of
// the input. The reader lives as long as the program: a read of a terminal cannot
// be interrupted.
func (a *app) lines() <-chan string {
	c := make(chan string)
	go func() {
		defer close(c)
		r := bufio.NewReader(a.stdin)
		for {
			s, err := r.ReadString('\n')
			if s != "" {
				c <- strings.TrimRight(s, "\r\n")
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

// jsonFrame prints a frame as one JSON line.
func (a *app) jsonFrame(f frames.Frame) error {
	switch f := f.(type) {
	case *client.Reset:
		return nil
	case *frames.Unknown:
		return a.jsonLine(string(f.Type), f.Params)
	}
	return a.jsonLine(string(f.FrameType()), f)
}

// jsonLine prints {"v":1,"type":…,"data":…}.
func (a *app) jsonLine(kind string, v any) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		V    int    `json:"v"`
		Type string `json:"type"`
		Data any    `json:"data"`
	}{1, kind, v})
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(term.JSON(line.Bytes()))
	return err
}

// followEnd is the end of following: Ctrl-C is the ordinary one.
func (a *app) followEnd(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fail(exitTimeout, "it took too long")
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted}
	case err == nil:
		return fail(exitUnreachable, "the connection ended")
	}
	return err
}

// cwd returns the absolute directory that flag names, or this one.
func (a *app) cwd(flag string) (string, error) {
	if flag == "" {
		return os.Getwd()
	}
	return filepath.Abs(flag)
}

// newID returns a fresh random id.
func newID() string { return rand.Text() }

// label is how this client appears to others: the user at this terminal.
func (a *app) label() string {
	who := first(a.getenv("USER"), a.getenv("LOGNAME"), "someone")
	host, err := os.Hostname()
	if err != nil {
		host = "terminal"
	}
	return fmt.Sprintf("%s@%s", who, host)
}

func readAllLimited(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("larger than %d bytes", most)
	}
	return b, err
}
