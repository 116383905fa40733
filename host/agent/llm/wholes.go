package llm

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// maxTexts bounds what one request holds of texts that are kept as blobs, in bytes.
const maxTexts = 1 << 20

// wholes reads the blobs that a conversation names, and keeps them while a turn runs.
type wholes struct {
	open func(ctx context.Context, id frames.BlobID) (io.ReadCloser, error)
	kept map[frames.BlobID][]byte
}

var (
	errTooLarge = errors.New("it is too large")
	errNoBlobs  = errors.New("nothing is kept here")
)

// read returns a blob of at most limit bytes.
func (w *wholes) read(ctx context.Context, id frames.BlobID, limit int) ([]byte, error) {
	if b, ok := w.kept[id]; ok {
		if len(b) > limit {
			return nil, errTooLarge
		}
		return b, nil
	}
	if w.open == nil {
		return nil, errNoBlobs
	}
	r, err := w.open(ctx, id)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > limit:
		return nil, errTooLarge
	}
	return b, nil
}

// forget lets go what is kept.
func (w *wholes) forget() { w.kept = nil }

// blobOf returns the blob that holds the whole of a block, and whether that is the
// base64 text of the block's data; "" where there is none.
func blobOf(b frames.ContentBlock) (id frames.BlobID, encoded bool) {
	if b.Truncated != nil && b.Truncated.Blob != "" {
		return b.Truncated.Blob, true
	}
	return b.Blob, false
}

// fill puts in what the messages name, newest first, with images of so many bytes.
// What cannot be had is named.
func (w *wholes) fill(ctx context.Context, ms []entry, images int) {
	texts := maxTexts
	now := map[frames.BlobID][]byte{}
	for i := len(ms) - 1; i >= 0; i-- {
		for j := len(ms[i].Content) - 1; j >= 0; j-- {
			p := &ms[i].Content[j]
			switch {
			case p.from == nil:
			case p.ImageURL != nil:
				w.image(ctx, p, &images, now)
			default:
				w.text(ctx, p, &texts, now)
			}
			p.from = nil
		}
	}
	w.kept = now
}

// image makes the part a picture, or says why there is none.
func (w *wholes) image(ctx context.Context, p *part, room *int, now map[frames.BlobID][]byte) {
	block := *p.from
	data := block.Data
	id, encoded := blobOf(block)
	var err error
	switch {
	case data != "" && len(data) > *room:
		err = errTooLarge
	case data == "":
		var b []byte
		if b, err = w.read(ctx, id, *room); err == nil {
			now[id], data = b, string(b)
			if !encoded {
				data = base64.StdEncoding.EncodeToString(b)
			}
		}
	}
	if err != nil {
		*p = part{Type: "text", Text: fmt.Sprintf("[An image (%s) that cannot be shown: %v.]", block.MimeType, err)}
		return
	}
	*room -= len(data)
	p.ImageURL.URL = "data:" + mimeType(block) + ";base64," + data
}

func mimeType(b frames.ContentBlock) string {
	if b.MimeType == "" {
		return "image/png"
	}
	return b.MimeType
}

// text puts the whole of a text in place of its preview.
func (w *wholes) text(ctx context.Context, p *part, room *int, now map[frames.BlobID][]byte) {
	id, _ := blobOf(*p.from)
	b, err := w.read(ctx, id, *room)
	if err == nil && strings.ContainsRune(string(b), 0) {
		err = errBinary
	}
	if err != nil {
		p.Text += fmt.Sprintf("\n[The whole cannot be shown: %v.]", err)
		return
	}
	*room -= len(b)
	now[id] = b
	p.Text = heading(*p.from) + frames.ValidText(string(b))
}
