package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/store/bolt"
)

func newRestore(a *app) *cobra.Command {
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Bring back what muxhost backup wrote",
		Long: `Puts a backup into the state directory, which holds no state yet; FILE "-" is the
standard input. Everything is verified before anything is put in place, and a restore
that is killed leaves what was there or what was restored. With --force the state that
is there is set aside first, as a state directory of its own inside it, called
before-restore-TIME.

Every session's log gets a new epoch, so that clients notice that its history may be
another one. Tokens hold as at the time of the backup, so revoke again what was revoked
since; and only beside the host token that made them, the file token. The host has to be
stopped.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.untilSignal(cmd.Context())
			defer stop()
			return a.restore(ctx, args[0], force, asJSON)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "set aside the state that is there, inside the state directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what was restored as JSON")
	return cmd
}

// restoreResult is what --json prints.
type restoreResult struct {
	StateDir string `json:"stateDir"`
	Aside    string `json:"aside,omitempty"` // where the state lies that was there
	Missing  int    `json:"missing"`         // blobs that the backup lacks
	host.BackupSummary
}

func (a *app) restore(ctx context.Context, file string, force, asJSON bool) (err error) {
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	f, err := a.openBackup(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := host.PrepareStateDir(dir); err != nil {
		return fmt.Errorf("the state directory: %w", err)
	}
	lock, err := a.lockState(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if !force && hasState(dir) {
		return fail(exitFailed, "%s holds a state already: name another directory with --state-dir, or set it aside, as %s in it, with --force", dir, asidePrefix+"TIME")
	}
	r := &restorer{dir: dir, now: time.Now(), warn: func(s string) { fmt.Fprintln(a.stderr, a.errStyle.Yellow(a.line(s))) }}
	res, err := r.run(ctx, f)
	if err != nil {
		return err
	}
	if asJSON {
		return a.jsonLine("restore", res)
	}
	_, err = fmt.Fprintf(a.stdout, "restored %s and %s, backed up %s, into %s\n", count(res.Sessions, "session"), count(res.Blobs, "blob"), res.Time.Local().Format(time.RFC1123), a.line(dir))
	if err == nil && res.Aside != "" {
		_, err = fmt.Fprintf(a.stdout, "what was there lies in %[1]s; look at it with\n  muxhost serve --state-dir %[1]s\n", a.line(res.Aside))
	}
	return err
}

// asidePrefix begins the name of a state that was set aside, inside the state
// directory; the time follows.
const asidePrefix = "before-restore-"

// hasState reports whether dir holds a database, whole or not.
func hasState(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, dbFileName))
	return !errors.Is(err, fs.ErrNotExist)
}

// restorer puts a backup into a state directory that nobody uses.
type restorer struct {
	dir  string
	now  time.Time
	warn func(string)
	step func(name string) // between the steps; for tests
}

func (r *restorer) at(name string) {
	if r.step != nil {
		r.step(name)
	}
}

// run unpacks and verifies everything beside the state, sets aside what is there,
// and puts the new state in place: its blobs first, which harm nobody, then the
// database by one renaming.
func (r *restorer) run(ctx context.Context, backup io.Reader) (res restoreResult, err error) {
	res.StateDir = r.dir
	stage, err := os.MkdirTemp(r.dir, stagePrefix+"*")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	r.at("begun")
	if res.BackupSummary, err = host.UnpackBackup(ctx, backup, stage); err != nil {
		return res, err
	}
	r.at("unpacked")
	if res.Missing, err = r.verify(ctx, stage); err != nil {
		return res, err
	}
	r.at("verified")
	if hasState(r.dir) {
		if res.Aside, err = r.setAside(); err != nil {
			return res, fmt.Errorf("set aside the state that is there, nothing changed: %w", err)
		}
		r.at("set aside")
	}
	if err := r.placeBlobs(filepath.Join(stage, host.UnpackedBlobs)); err != nil {
		return res, fmt.Errorf("put the blobs in place; the state that was there is unchanged: %w", err)
	}
	r.at("blobs placed")
	if err := bolt.Forget(filepath.Join(r.dir, dbFileName)); err != nil {
		return res, err
	}
	r.at("marker removed")
	err = bolt.Replace(filepath.Join(stage, host.UnpackedStore), filepath.Join(r.dir, dbFileName))
	r.at("placed")
	return res, err
}

// verify inspects the unpacked database and gives its logs new epochs. What only
// the host could make little of, and blobs that are missing, were so when the backup
// was taken: that does not stop it.
func (r *restorer) verify(ctx context.Context, stage string) (missing int, err error) {
	db := filepath.Join(stage, host.UnpackedStore)
	in := newInspection(func(finding) {})
	if err := in.database(ctx, db); err != nil {
		return 0, fmt.Errorf("the backup's database: %w", err)
	}
	if in.damage != nil {
		return 0, fail(exitFailed, "the backup's database is damaged, nothing changed: %s (%s in all; see muxhost check FILE)", in.damage.What, count(in.sums.Findings, "finding"))
	}
	for id, err := range host.VerifyBlobs(ctx, filepath.Join(stage, host.UnpackedBlobs)) {
		if err != nil {
			return 0, fmt.Errorf("read back what was unpacked: %w", err)
		}
		in.blob(id, nil)
	}
	if missing = len(in.needed); missing+in.sums.Findings > 0 {
		r.warn(fmt.Sprintf("the backup has flaws that it was taken with (%s missing, %s else); muxhost check FILE tells them", count(missing, "blob"), count(in.sums.Findings, "finding")))
	}
	s, err := bolt.Open(db, bolt.Options{NewEpochs: true})
	if err != nil {
		return 0, err
	}
	return missing, s.Close()
}

// setAside makes a state directory inside the state's that holds all of it, without
// copying: until the new database is in place, both names are of the same files.
func (r *restorer) setAside() (string, error) {
	tmp, err := os.MkdirTemp(r.dir, stagePrefix+"aside-*")
	if err != nil {
		return "", err
	}
	for _, name := range []string{dbFileName, dbFileName + ".id", dbFileName + ".last", tokenFileName} {
		err := os.Link(filepath.Join(r.dir, name), filepath.Join(tmp, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	if err := linkAll(filepath.Join(r.dir, blobDirName), filepath.Join(tmp, blobDirName)); err != nil {
		return "", err
	}
	if err := syncDir(tmp); err != nil {
		return "", err
	}
	r.at("linked")
	base := filepath.Join(r.dir, asidePrefix+r.now.UTC().Format("20060102-150405"))
	name := base
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name, errors.Join(os.Rename(tmp, name), syncDir(r.dir))
}

// linkAll gives every file of a directory, if there is one, a second name in
// another, which it makes.
func linkAll(from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Mkdir(to, 0o700)
	}
	for _, e := range entries {
		if err == nil && e.Type().IsRegular() {
			err = os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
	if err != nil {
		return err
	}
	return syncDir(to)
}

// placeBlobs moves the unpacked blobs to those that are there. A blob of the same
// name is the same, so it can be replaced.
func (r *restorer) placeBlobs(from string) error {
	to := filepath.Join(r.dir, blobDirName)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	for i, e := range entries {
		if err == nil {
			err = os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
		if i == 0 {
			r.at("first blob placed")
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(syncDir(to), syncDir(r.dir))
}
