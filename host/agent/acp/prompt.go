package acp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// maxBlobs bounds the bytes of all blobs that one prompt names. As base64 they still fit
// a line of the protocol.
const maxBlobs = 20 << 20

// params are those of session/prompt.
func (c *client) params(ctx context.Context, l *link, p agent.Prompt) (map[string]any, error) {
	var blocks []any
	if c.preface != "" {
		blocks = append(blocks, textBlock(c.preface))
	}
	r := blobReader{read: c.session.ReadBlob, left: maxBlobs}
	for _, b := range slices.Concat(p.Context, p.Content) {
		b, err := r.fill(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("acp: the prompt's %s: %w", b.Type, err)
		}
		block, err := l.promptBlock(b)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return map[string]any{"sessionId": l.sessionID(), "prompt": blocks}, nil
}

// blobReader reads the blobs of one prompt.
type blobReader struct {
	read func(context.Context, frames.BlobID) (io.ReadCloser, error)
	left int64 // how many bytes may still be read
}

// fill puts what b names as a blob into b. A linked blob becomes a resource, because the
// agent cannot follow the link.
func (r *blobReader) fill(ctx context.Context, b frames.ContentBlock) (frames.ContentBlock, error) {
	switch {
	case b.Blob != "" && b.Data == "" && b.Text == "":
		whole, err := r.bytes(ctx, b.Blob)
		if err != nil {
			return b, err
		}
		if b.Type == "resource_link" {
			b.Type = "resource"
		}
		if b.Type == "resource" && isText(b.MimeType, whole) {
			b.Text = string(whole)
		} else {
			b.Data = base64.StdEncoding.EncodeToString(whole)
		}
	case b.Truncated != nil && b.Truncated.Blob != "":
		whole, err := r.bytes(ctx, b.Truncated.Blob)
		if err != nil {
			return b, err
		}
		if b.Text != "" || b.Type == "text" {
			b.Text = frames.ValidText(string(whole))
		} else {
			b.Data = string(whole) // it was cut as base64
		}
	}
	return b, nil
}

// isText reports whether bytes of a type are handed on as text.
func isText(mimeType string, b []byte) bool {
	kind, _, err := mime.ParseMediaType(mimeType)
	if err != nil && mimeType != "" || !utf8.Valid(b) {
		return false
	}
	return kind == "" || strings.HasPrefix(kind, "text/") || kind == "application/json" || kind == "application/xml"
}

// bytes reads a blob whole.
func (r *blobReader) bytes(ctx context.Context, id frames.BlobID) (b []byte, err error) {
	if r.read == nil {
		return nil, fmt.Errorf("this host cannot read blob %s", id)
	}
	f, err := r.read(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", id, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err = io.ReadAll(io.LimitReader(f, r.left+1))
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", id, err)
	}
	if r.left -= int64(len(b)); r.left < 0 {
		return nil, fmt.Errorf("blob %s makes the prompt larger than %d MiB: name a file by its path instead", id, maxBlobs>>20)
	}
	return b, nil
}

func textBlock(text string) any { return map[string]string{"type": "text", "text": text} }

// promptBlock is a block of a prompt in the agent's form, as far as the agent takes
// such blocks.
func (l *link) promptBlock(b frames.ContentBlock) (any, error) {
	takes := l.caps.Capabilities.Prompt
	switch {
	case b.Type == "text":
		return textBlock(b.Text), nil
	case b.Type == "image" && takes.Image && b.Data != "":
		image := map[string]string{"type": "image", "mimeType": b.MimeType, "data": b.Data}
		if b.URI != "" {
			image["uri"] = b.URI
		}
		return image, nil
	case b.Type == "resource" && takes.Embedded && (b.Data != "" || b.Text != ""):
		res := map[string]string{"uri": b.URI}
		if b.MimeType != "" {
			res["mimeType"] = b.MimeType
		}
		if b.Data != "" {
			res["blob"] = b.Data
		} else {
			res["text"] = b.Text
		}
		return map[string]any{"type": "resource", "resource": res}, nil
	case b.Type == "resource" && b.Text != "":
		return textBlock(b.URI + "\n" + b.Text), nil
	case b.Type == "resource_link":
		name := b.Name
		if name == "" {
			name = b.URI
		}
		return map[string]string{"type": "resource_link", "uri": b.URI, "name": name}, nil
	}
	return nil, fmt.Errorf("acp: %s takes no %s like this: send text, or a file by its path", l.opt.Name, b.Type)
}
