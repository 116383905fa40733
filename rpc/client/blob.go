package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// BlobPage returns one page of a blob.
func (c *Client) BlobPage(ctx context.Context, p rpc.BlobReadParams) (rpc.BlobReadResult, error) {
	return do[rpc.BlobReadResult](ctx, c, "blob.read", p)
}

// ReadBlob writes a whole blob to w, page by page, over as many connections as it
// takes, and returns how many bytes that were.
func (c *Client) ReadBlob(ctx context.Context, blob frames.BlobID, w io.Writer) (int64, error) {
	var n int64
	for {
		page, err := c.BlobPage(ctx, rpc.BlobReadParams{Blob: blob, Offset: n, Limit: rpc.MaxBlobLimit})
		if err != nil {
			return n, err
		}
		m, err := w.Write(page.Data)
		n += int64(m)
		switch {
		case err != nil:
			return n, fmt.Errorf("client: write a blob's page: %w", err)
		case !page.More:
			return n, nil
		case len(page.Data) == 0:
			return n, fmt.Errorf("client: blob %s: the host sent no bytes at %d of %d", blob, n, page.Bytes)
		}
	}
}

// WriteBlob uploads everything that r yields, chunk by chunk, over as many
// connections as it takes, and returns the blob and its size. It needs the scope
// operate; host.describe tells the limit as blobUploadBytes. On an error the host
// drops what it has got after a while.
func (c *Client) WriteBlob(ctx context.Context, r io.Reader) (frames.BlobID, int64, error) {
	sum := sha256.New()
	src := io.TeeReader(r, sum)
	var p rpc.BlobWriteParams
	chunk := make([]byte, rpc.MaxBlobChunk)
	for {
		n, err := io.ReadFull(src, chunk)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return "", 0, fmt.Errorf("client: read what is to be uploaded: %w", err)
		}
		p.Data = base64.StdEncoding.EncodeToString(chunk[:n])
		if last {
			p.SHA256 = hex.EncodeToString(sum.Sum(nil))
		}
		res, err := c.writeChunk(ctx, p)
		if err != nil {
			return "", 0, err
		}
		if last {
			return res.Blob, res.Bytes, nil
		}
		p.Upload, p.Offset = res.Upload, p.Offset+int64(n)
	}
}

// writeChunk sends a chunk, again where the answer was lost: the host knows one
// that it has already.
func (c *Client) writeChunk(ctx context.Context, p rpc.BlobWriteParams) (rpc.BlobWriteResult, error) {
	for {
		res, err := do[rpc.BlobWriteResult](ctx, c, "blob.write", p)
		if _, lost := errors.AsType[*LostError](err); !lost || ctx.Err() != nil || c.ended() != nil {
			return res, err
		}
	}
}
