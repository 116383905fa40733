package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/host"
)

func newBackup(a *app) *cobra.Command {
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write everything the host keeps into one file, while it runs",
		Long: `Writes all sessions, grants, tokens and blobs as of one moment into one tar, of mode
0600; FILE "-" is the standard output. Agents and clients go on meanwhile. If no host
runs, the state directory is read without one. FILE appears only when it is whole and
was read back once. The host's own token is not in it; keep the file token too if the
tokens that were made with it shall hold after a restore elsewhere.

Look into it with muxhost check FILE, bring it back with muxhost restore FILE.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.untilSignal(cmd.Context())
			defer stop()
			return a.backup(ctx, args[0], force, asJSON)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it is there")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what was written as JSON")
	return cmd
}

// backupResult is what --json prints.
type backupResult struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	host.BackupSummary
}

func (a *app) backup(ctx context.Context, file string, force, asJSON bool) error {
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	if file == "-" {
		if asJSON {
			return fail(exitUsage, "--json and FILE - do not go together: both print to the standard output")
		}
		_, err := a.writeBackup(ctx, a.stdout, dir)
		return err
	}
	if _, err := os.Lstat(file); err == nil && !force {
		return fail(exitFailed, "%s is there already: choose another name, or replace it with --force", file)
	}
	res, err := a.backupFile(ctx, file, dir, force)
	if err != nil {
		return err
	}
	if asJSON {
		return a.jsonLine("backup", res)
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s, %s, %s\n", a.line(res.File), size(res.Bytes), count(res.Sessions, "session"), count(res.Blobs, "blob"))
	return err
}

// backupFile writes a backup under another name, syncs it and gives it its own.
func (a *app) backupFile(ctx context.Context, file, dir string, force bool) (res backupResult, err error) {
	if res.File, err = filepath.Abs(file); err != nil {
		return res, err
	}
	f, err := os.CreateTemp(filepath.Dir(res.File), ".muxhost-backup-*")
	if err != nil {
		return res, fmt.Errorf("make the backup's file: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone once renamed
	res.BackupSummary, err = a.writeBackup(ctx, f, dir)
	if err != nil {
		return res, errors.Join(err, f.Close())
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return res, fmt.Errorf("write the backup: %w", err)
	}
	res.Bytes = info.Size()
	if err := placeFile(f.Name(), res.File, force); err != nil {
		return res, err
	}
	return res, syncDir(filepath.Dir(res.File))
}

// placeFile gives a file its name, and replaces another one only if it may.
func placeFile(from, to string, force bool) error {
	if force {
		return os.Rename(from, to)
	}
	err := os.Link(from, to)
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		return fail(exitFailed, "%s appeared meanwhile: choose another name, or replace it with --force", to)
	}
	return os.Rename(from, to) // a file system without links
}

// writeBackup writes a backup to w and reads along whether it is whole.
func (a *app) writeBackup(ctx context.Context, w io.Writer, dir string) (host.BackupSummary, error) {
	pr, pw := io.Pipe()
	var sum host.BackupSummary
	var readErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		sum, readErr = host.ReadBackup(ctx, pr, host.BackupSink{})
		if readErr == nil {
			_, readErr = io.Copy(io.Discard, pr) // what follows the tar
		}
		_ = pr.CloseWithError(readErr) // always nil
	})
	err := a.fetchBackup(ctx, io.MultiWriter(w, pw), dir)
	_ = pw.CloseWithError(err) // always nil
	wg.Wait()
	if err != nil {
		return sum, err
	}
	return sum, readErr
}

// fetchBackup writes a backup of the host on dir to w, or of dir itself if none
// runs there.
func (a *app) fetchBackup(ctx context.Context, w io.Writer, dir string) error {
	h, err := readHostFile(dir)
	switch {
	case errors.Is(err, errNoHost):
		return a.backupState(ctx, w, dir)
	case err != nil:
		return err
	}
	token, err := host.LoadToken(dir)
	if err != nil {
		return &exitError{code: exitUnauthorized, err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/v1/backup", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() == nil && a.backupState(ctx, w, dir) == nil {
			return nil // it was killed, and its process id is another program's by now
		}
		return fail(exitUnreachable, "the host on %s does not answer: %w", dir, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return backupRefused(resp)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("fetch the backup: %w; the host's log may say more", err)
	}
	return nil
}

// backupRefused says why the host gives no backup.
func backupRefused(resp *http.Response) error {
	var body struct{ Error struct{ Message string } }
	b, err := readAllLimited(resp.Body, 64<<10)
	if err == nil {
		err = json.Unmarshal(b, &body)
	}
	code, why := exitFailed, body.Error.Message
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		code = exitUnauthorized
	case http.StatusNotFound:
		why = "it is of a version that makes none; end it with muxhost stop, and try again"
	}
	if err != nil || why == "" {
		why = resp.Status
	}
	return fail(code, "the host gives no backup: %s", why)
}

// backupState writes a backup of a state directory that no host runs on.
func (a *app) backupState(ctx context.Context, w io.Writer, dir string) (err error) {
	if err := a.needState(dir); err != nil {
		return err
	}
	db, err := openStore(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = host.Backup(ctx, w, db, filepath.Join(dir, blobDirName), version())
	return err
}
