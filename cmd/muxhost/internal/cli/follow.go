package cli

import (
	"context"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// received is one frame, or the error that ended them.
type received struct {
	frame frames.Frame
	err   error
}

// pumped carries a client's frames in a channel, so that they can be awaited
// beside signals and typed lines.
type pumped struct {
	c      chan received
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// pump starts one; stop ends it and waits.
func pump(ctx context.Context, c *client.Client) *pumped {
	ctx, cancel := context.WithCancel(ctx)
	p := &pumped{c: make(chan received), cancel: cancel}
	p.wg.Go(func() {
		for f, err := range c.Frames(ctx) {
			select {
			case p.c <- received{f, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
		select {
		case p.c <- received{err: context.Cause(ctx)}:
		case <-ctx.Done():
		}
	})
	return p
}

func (p *pumped) stop() {
	p.cancel()
	p.wg.Wait()
}

// copyBlob writes a stored whole from an offset on.
func copyBlob(ctx context.Context, c *client.Client, blob frames.BlobID, from int64, out *printer) error {
	for {
		var res rpc.BlobReadResult
		if err := c.Call(ctx, "blob.read", rpc.BlobReadParams{Blob: blob, Offset: from}, &res); err != nil {
			return err
		}
		out.stream(out.from, string(res.Data))
		from += int64(len(res.Data))
		if !res.More || len(res.Data) == 0 {
			return out.err
		}
	}
}
