package cli

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// attachments are files that go with a prompt.
type attachments struct{ images, files []string }

// blocks uploads the files and returns what names them in a prompt.
func (at attachments) blocks(ctx context.Context, c *client.Client) ([]frames.ContentBlock, error) {
	var out []frames.ContentBlock
	for _, name := range at.images {
		b, err := attach(ctx, c, "image", name)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(b.MimeType, "image/") {
			return nil, fail(exitUsage, "--image %s: it is %s, not an image: use --attach", name, b.MimeType)
		}
		out = append(out, b)
	}
	for _, name := range at.files {
		b, err := attach(ctx, c, "resource", name)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// attach uploads one file.
func attach(ctx context.Context, c *client.Client, kind, name string) (frames.ContentBlock, error) {
	f, err := os.Open(name)
	if err != nil {
		return frames.ContentBlock{}, fmt.Errorf("attach a file: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	typ, err := typeOf(f, name)
	if err != nil {
		return frames.ContentBlock{}, err
	}
	blob, _, err := c.WriteBlob(ctx, f)
	if err != nil {
		return frames.ContentBlock{}, err
	}
	return frames.ContentBlock{Type: kind, MimeType: typ, Blob: blob, Name: frames.ValidText(filepath.Base(name))}, nil
}

// typeOf tells the type of a file by its name, else by how it begins.
func typeOf(f *os.File, name string) (string, error) {
	if typ := mime.TypeByExtension(filepath.Ext(name)); typ != "" {
		return typ, nil
	}
	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if n == 0 && err != nil {
		if info, serr := f.Stat(); serr != nil || info.Size() > 0 {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
	}
	return http.DetectContentType(head[:n]), nil
}

// promptContent hands content to a session.
func promptContent(ctx context.Context, c *client.Client, sid frames.SessionID, content []frames.ContentBlock, mode frames.PromptMode) (rpc.PromptResult, error) {
	p := rpc.PromptParams{SessionID: sid, Content: content, Mode: mode, PromptID: frames.PromptID(newID())} // so that a lost answer can be asked for again
	for {
		res, err := c.Prompt(ctx, p)
		if _, lost := errors.AsType[*client.LostError](err); !lost || ctx.Err() != nil {
			return res, err
		}
	}
}
