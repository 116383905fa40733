package host

import (
	"context"
	"errors"

	"github.com/muxhost/muxhost/rpc"
)

// BlobWrite is to be built.
func (c *caller) BlobWrite(context.Context, rpc.BlobWriteParams, rpc.Reply[rpc.BlobWriteResult]) error {
	return errors.New("host: blob.write is not built")
}
