package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
)

func newCheck(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Verify all that a stopped host keeps, or a backup",
		Long: `Reads everything and changes nothing: the pages of the database, every checksum, that
each session's events are all there and can be read, that rows belong to sessions, and
that blobs are what their names say and none is missing. Prints a line for each thing
that is wrong, and exits with 1 if there is one.

Without FILE it looks at the state directory, whose host has to be stopped.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.untilSignal(cmd.Context())
			defer stop()
			return a.check(ctx, args, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print findings and sums as JSON lines")
	return cmd
}

// finding is one line of a check.
type finding struct {
	SessionID frames.SessionID `json:"sessionId,omitempty"`
	What      string           `json:"what"`
}

func (a *app) check(ctx context.Context, args []string, asJSON bool) error {
	var werr error
	in := newInspection(func(f finding) {
		switch {
		case werr != nil:
		case asJSON:
			werr = a.jsonLine("finding", f)
		case f.SessionID != "":
			_, werr = fmt.Fprintf(a.stdout, "session %s: %s\n", a.line(string(f.SessionID)), a.line(f.What))
		default:
			_, werr = fmt.Fprintln(a.stdout, a.line(f.What))
		}
	})
	advice := "restore a backup with muxhost restore --force FILE, which keeps what there is"
	var err error
	if len(args) == 1 {
		advice = "take another backup"
		err = a.checkBackup(ctx, in, args[0])
	} else {
		err = a.checkState(ctx, in)
	}
	if err = errors.Join(err, werr); err != nil {
		return err
	}
	if asJSON {
		err = a.jsonLine("check", in.sums)
	} else if in.sums.Findings == 0 {
		_, err = fmt.Fprintf(a.stdout, "all is well: %s, %s, %s\n", count(in.sums.Sessions, "session"), count(in.sums.Events, "event"), count(in.sums.Blobs, "blob"))
	}
	if err == nil && in.sums.Findings > 0 {
		err = fail(exitFailed, "%s; %s", count(in.sums.Findings, "finding"), advice)
	}
	return err
}

// checkState inspects the state directory.
func (a *app) checkState(ctx context.Context, in *inspection) (err error) {
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
	if err := in.database(ctx, filepath.Join(dir, dbFileName)); err != nil {
		return err
	}
	for id, err := range host.VerifyBlobs(ctx, filepath.Join(dir, blobDirName)) {
		if id == "" || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		in.blob(id, err)
	}
	in.end()
	return nil
}

// checkBackup inspects a backup. Its database is unpacked among the temporary
// files.
func (a *app) checkBackup(ctx context.Context, in *inspection, file string) (err error) {
	f, err := a.openBackup(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	dir, err := os.MkdirTemp("", "muxhost-check-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db := filepath.Join(dir, dbFileName)
	_, err = host.ReadBackup(ctx, f, host.BackupSink{
		Store: func(r io.Reader) error {
			if err := writeFile(db, r); err != nil {
				return err
			}
			return in.database(ctx, db)
		},
		Blob: func(id frames.BlobID, _ io.Reader) error { in.blob(id, nil); return nil },
	})
	if errors.Is(err, host.ErrBackup) {
		in.found(finding{What: err.Error()})
		return nil
	}
	if err == nil {
		in.end()
	}
	return err
}

// openBackup opens a backup's file; "-" is the standard input.
func (a *app) openBackup(file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(a.stdin), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fail(exitNotFound, "the backup: %w", err)
	}
	return f, nil
}

func writeFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
