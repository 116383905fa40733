package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

func newExport(a *app) *cobra.Command {
	var format, out string
	cmd := &cobra.Command{
		Use:   "export ID",
		Short: "Write a session's log as a transcript or as JSON lines",
		Long: `Writes what happened in a session to standard output or to a file: as markdown, a
transcript for people, or as jsonl, every stored event as it is, one a line. Where
older events are no longer kept, the first line is {"base":…}, what they came to.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "markdown" && format != "jsonl" {
				return fail(exitUsage, "--format is %q: it takes markdown or jsonl", format)
			}
			return a.export(cmd.Context(), args[0], format, out)
		},
	}
	cmd.Flags().StringVar(&format, "format", "markdown", "markdown or jsonl")
	cmd.Flags().StringVarP(&out, "output", "o", "", "the file to write (default: -, standard output)")
	return cmd
}

func (a *app) export(ctx context.Context, id, format, out string) error {
	c, sid, err := a.session(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	x, err := c.Export(ctx, rpc.ExportParams{SessionID: sid, Format: format})
	if err != nil {
		return err
	}
	if out == "" || out == "-" {
		w := bufio.NewWriter(a.stdout)
		_, err := c.ReadBlob(ctx, x.Blob, w)
		return errors.Join(err, w.Flush())
	}
	if err := saveBlob(ctx, c, x.Blob, out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stderr, "%s: %d bytes, events up to %d\n", a.line(out), x.Bytes, x.Head)
	return err
}

// saveBlob writes a blob to a file, which is there whole or as it was before.
func saveBlob(ctx context.Context, c *client.Client, blob frames.BlobID, name string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".muxhost-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // twice is harmless; err says what went wrong
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := c.ReadBlob(ctx, blob, f); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("put %s in place: %w", name, err)
	}
	return nil
}
