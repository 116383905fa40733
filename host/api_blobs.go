package host

import (
	"context"
	"errors"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
	"github.com/muxhost/muxhost/rpc"
)

// BlobWrite takes a chunk of an upload. Uploads belong to the client's token and
// not to its connection, so that it goes on after a lost one.
func (c *caller) BlobWrite(ctx context.Context, p rpc.BlobWriteParams, r rpc.Reply[rpc.BlobWriteResult]) error {
	data, err := p.Bytes()
	if err != nil {
		return rpc.Paramsf("params.data: expected standard base64 with padding: %v", err)
	}
	up, err := c.host.uploads.Write(ctx, c.token, p.Upload, p.Offset, data, strings.ToLower(p.SHA256))
	if err != nil {
		return c.wireError(uploadError(err))
	}
	r(rpc.BlobWriteResult{Upload: up.Upload, Bytes: up.Bytes, Blob: up.Blob})
	return nil
}

// uploadError says an error of an upload in the words of the wire.
func uploadError(err error) error {
	switch {
	case errors.Is(err, blob.ErrNoUpload):
		return rpc.Errorf(rpc.KindBlobNotFound, "there is no such upload of this token; it is dropped after %v without a chunk, so begin anew without upload", blob.UploadIdle)
	case errors.Is(err, blob.ErrTooMany):
		return rpc.Errorf(rpc.KindRateLimited, "this token has %d unfinished uploads, which is the most; finish one, or wait until one was idle for %v", blob.MaxUploads, blob.UploadYield)
	case errors.Is(err, blob.ErrUploadSize):
		return rpc.Errorf(rpc.KindTooLarge, "an upload holds at most %d bytes, a chunk %d", blob.MaxUpload, blob.MaxChunk)
	}
	if e, ok := errors.AsType[*blob.OffsetError](err); ok {
		return rpc.Paramsf("params.offset: %v", e)
	}
	if e, ok := errors.AsType[*blob.RepeatError](err); ok {
		return rpc.Paramsf("params.data: %v", e)
	}
	if e, ok := errors.AsType[*blob.DigestError](err); ok {
		return rpc.Paramsf("params.sha256: %v", e)
	}
	return err
}

// haveBlobs refuses content that names a blob which does not exist.
func (c *caller) haveBlobs(ctx context.Context, content []frames.ContentBlock) error {
	for i, b := range content {
		ids := []frames.BlobID{b.Blob}
		if b.Truncated != nil {
			ids = append(ids, b.Truncated.Blob)
		}
		for _, id := range ids {
			if id == "" {
				continue
			}
			_, err := c.host.blobs.Read(ctx, id, 0, 1)
			if errors.Is(err, blob.ErrNotFound) {
				return rpc.Errorf(rpc.KindBlobNotFound, "params.content[%d]: there is no blob %.80q; write it with blob.write first", i, string(id))
			}
			if err != nil {
				return c.wireError(err)
			}
		}
	}
	return nil
}
