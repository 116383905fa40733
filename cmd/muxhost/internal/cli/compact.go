package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/bolt"
)

func newCompact(a *app) *cobra.Command {
	var grace time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Give back the space that deleted and trimmed sessions left",
		Long: `Writes the database anew without its free space, checks that nothing is missing, and
puts it in place; then removes the blobs that nothing stored names any more. It needs
room for a second database meanwhile. Killed at any moment it has lost nothing. The
host has to be stopped.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := a.untilSignal(cmd.Context())
			defer stop()
			if grace < 0 {
				return fail(exitUsage, "--blob-grace is %v: it takes 0s or more", grace)
			}
			return a.compact(ctx, grace, asJSON)
		},
	}
	cmd.Flags().DurationVar(&grace, "blob-grace", time.Hour, "keep blobs written this recently, though nothing names them yet")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print sizes as JSON")
	return cmd
}

// compactResult is what --json prints; sizes are in bytes.
type compactResult struct {
	StateDir     string `json:"stateDir"`
	StoreBefore  int64  `json:"storeBefore"`
	StoreAfter   int64  `json:"storeAfter"`
	BlobsBefore  int64  `json:"blobBytesBefore"`
	BlobsAfter   int64  `json:"blobBytesAfter"`
	BlobsRemoved int    `json:"blobsRemoved"`
	BlobsKept    int    `json:"blobsKept"`
	BlobsYoung   int    `json:"blobsYoung"` // of those kept: not named, but recent
}

func (a *app) compact(ctx context.Context, grace time.Duration, asJSON bool) (err error) {
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	if err := a.needState(dir); err != nil {
		return err
	}
	lock, err := a.lockState(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	res, err := (&compactor{dir: dir, grace: grace}).run(ctx)
	if e, ok := errors.AsType[*bolt.DamagedError](err); ok {
		return fail(exitFailed, "the database is damaged and stays as it is: %s; see muxhost check%s", e.Reason, a.stateHint())
	}
	if err != nil {
		return err
	}
	if asJSON {
		return a.jsonLine("compact", res)
	}
	_, err = fmt.Fprintf(a.stdout, "database: %s, was %s\nblobs: %s, was %s; removed %s, kept %d\n",
		size(res.StoreAfter), size(res.StoreBefore), size(res.BlobsAfter), size(res.BlobsBefore), count(res.BlobsRemoved, "blob"), res.BlobsKept)
	if err == nil && res.BlobsYoung > 0 {
		_, err = fmt.Fprintf(a.stdout, "%s that nothing names yet stay for %v after they were written (--blob-grace)\n", count(res.BlobsYoung, "blob"), grace)
	}
	return err
}

// compactor compacts a state directory that nobody uses.
type compactor struct {
	dir   string
	grace time.Duration
	step  func(name string) // between the steps; for tests
}

func (c *compactor) at(name string) {
	if c.step != nil {
		c.step(name)
	}
}

func (c *compactor) run(ctx context.Context) (compactResult, error) {
	res := compactResult{StateDir: c.dir}
	db := filepath.Join(c.dir, dbFileName)
	info, err := os.Stat(db)
	if err != nil {
		return res, err
	}
	res.StoreBefore = info.Size()
	named := map[frames.BlobID]struct{}{}
	var ids []frames.BlobID
	mark := func(text []byte) {
		ids = host.BlobIDs(ids[:0], text)
		for _, id := range ids {
			named[id] = struct{}{}
		}
	}
	err = bolt.Compact(ctx, db, db+compactSuffix, bolt.Visit{
		Event: func(_ frames.SessionID, e store.Event) { mark(e.Data) },
		Row:   func(r store.Row) { mark(r.Value) },
	})
	if err != nil {
		return res, err
	}
	c.at("copied")
	if err := bolt.Forget(db); err != nil {
		return res, err
	}
	c.at("marker removed")
	if err := bolt.Replace(db+compactSuffix, db); err != nil {
		return res, err
	}
	c.at("placed")
	if info, err = os.Stat(db); err != nil {
		return res, err
	}
	res.StoreAfter = info.Size()
	swept, err := host.SweepBlobs(ctx, filepath.Join(c.dir, blobDirName), func(id frames.BlobID) bool {
		_, ok := named[id]
		if !ok {
			c.at("sweeping")
		}
		return ok
	}, c.grace)
	res.BlobsBefore, res.BlobsAfter = swept.KeptBytes+swept.RemovedBytes, swept.KeptBytes
	res.BlobsRemoved, res.BlobsKept, res.BlobsYoung = swept.Removed, swept.Kept, swept.Young
	return res, err
}
