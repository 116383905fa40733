package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/store/bolt"
)

// What a state directory holds.
const (
	databaseFile = "muxhost.db"
	tokenFile    = "token"
	hostFile     = "host.json"
	blobDir      = "blobs"
)

// Bounds of the checks.
const (
	// mostRead is the size in bytes up to which a database is read whole: a host that
	// starts meanwhile waits for a second.
	mostRead = 64 << 20
	// littleDisk and noDisk are how many bytes left are few, and too few.
	littleDisk = 1 << 30
	noDisk     = 64 << 20
	// certificateNotice is how long before its end a certificate is told of.
	certificateNotice = 14 * 24 * time.Hour
	// clockSlack is how far a clock may be off.
	clockSlack = 2 * time.Minute
)

// state looks at the state directory and what is in it.
func (v *visit) state() {
	dir := v.StateDir
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		v.say("state", Info, dir+" is not there yet; the first start makes it", "")
		return
	}
	if err == nil {
		err = host.PrepareStateDir(dir)
	}
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		v.failed("state", fmt.Errorf("the state directory: %w", err), "make it yours and writable, or name another with --state-dir")
		return
	}
	v.say("state", OK, dir+" is there, private and writable", "")
	v.token()
	v.database()
	v.blobs()
}

// writable reports whether a file can be made in dir. It is gone afterwards.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return fmt.Errorf("it cannot be written to: %w", err)
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func (v *visit) token() {
	path := filepath.Join(v.StateDir, tokenFile)
	_, err := host.LoadToken(v.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.say("token", Info, path+" is not there yet; the first start makes it", "")
	case err != nil:
		v.failed("token", err, "remove it, and the next start makes a new one")
	default:
		v.say("token", OK, path+" is there and private", "")
	}
}

// database looks whether it opens, or who has it open.
func (v *visit) database() {
	path := filepath.Join(v.StateDir, databaseFile)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.say("database", Info, path+" is not there yet; the first start makes it", "")
		return
	case err != nil:
		v.failed("database", err, "make it readable for you")
		return
	case !info.Mode().IsRegular():
		v.say("database", Fail, fmt.Sprintf("%s is no regular file (%v)", path, info.Mode().Type()), "name another directory with --state-dir")
		return
	}
	lock, err := bolt.Acquire(path)
	if e, ok := errors.AsType[*bolt.LockedError](err); ok {
		v.held(e.PID)
		return
	}
	if err != nil {
		v.failed("database", err, "make its directory writable for you")
		return
	}
	defer func() { _ = lock.Release() }() // it was taken to look only
	v.examine(path, info.Size())
}

// held tells who has the database.
func (v *visit) held(pid int) {
	if v.host.Running && v.host.PID == pid {
		v.say("database", OK, fmt.Sprintf("the host has it open, process %d", pid), "")
		return
	}
	v.say("database", Warn, fmt.Sprintf("process %d has it open, and is no host that tells where it listens", pid),
		fmt.Sprintf("wait until it is done: it may be starting, or a muxhost check or compact; else end process %d", pid))
}

// examine reads a database that nobody has open.
func (v *visit) examine(path string, size int64) {
	if size > mostRead {
		v.say("database", Info, fmt.Sprintf("nobody has it open; it has %d MiB and was not read", size>>20), "muxhost check"+v.Hint+" reads all of it")
		return
	}
	first, found := "", 0
	err := bolt.Examine(v.ctx, path, bolt.Visit{Finding: func(f bolt.Finding) {
		if found++; found == 1 {
			first = f.String()
		}
	}})
	switch {
	case err != nil:
		v.failed("database", err, "muxhost check"+v.Hint+" tells more")
	case found > 0:
		v.say("database", Fail, fmt.Sprintf("it is damaged, with %s: %s", count(found, "finding"), first),
			"muxhost check"+v.Hint+" tells all; restore a backup with muxhost restore --force"+v.Hint+" FILE, which keeps what there is")
	default:
		v.say("database", OK, fmt.Sprintf("it opens and is whole, %d KiB", size>>10), "")
	}
}

func (v *visit) blobs() {
	dir := filepath.Join(v.StateDir, blobDir)
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.say("blobs", Info, dir+" is not there yet; the first start makes it", "")
		return
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s is no directory", dir)
	case err == nil:
		err = writable(dir)
	}
	if err != nil {
		v.failed("blobs", fmt.Errorf("the directory of blobs: %w", err), "make it a directory that is yours and writable")
		return
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		v.say("blobs", Warn, fmt.Sprintf("%s has mode %04o, want 0700", dir, info.Mode().Perm()), "chmod 700 "+dir)
		return
	}
	v.say("blobs", OK, dir+" is there, private and writable", "")
}

// disk looks how much room is left.
func (v *visit) disk() {
	dir := v.StateDir
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := v.Free(dir)
	shown := fmt.Sprintf("%d MiB are free for %s", free>>20, v.StateDir)
	fix := "make room, or name a directory on another disk with --state-dir; muxhost serve --keep-total BYTES" + v.Hint + " bounds what is kept"
	switch {
	case err != nil:
		v.say("disk", Info, "how much room is left is not known: "+err.Error(), "")
	case free < noDisk:
		v.say("disk", Fail, shown, fix)
	case free < littleDisk:
		v.say("disk", Warn, shown, fix)
	default:
		v.say("disk", OK, shown, "")
	}
}

// clock looks whether the time can be right.
func (v *visit) clock() {
	now := v.Now()
	const form = "2006-01-02 15:04:05 MST"
	if now.Add(clockSlack).Before(v.Built) {
		v.say("clock", Fail, fmt.Sprintf("it says %s, and this program was made at %s", now.UTC().Format(form), v.Built.UTC().Format(form)), "set the clock: approvals and tokens end by it")
		return
	}
	for _, name := range []string{databaseFile, hostFile, tokenFile} {
		info, err := os.Lstat(filepath.Join(v.StateDir, name))
		if err == nil && info.ModTime().After(now.Add(clockSlack)) {
			v.say("clock", Warn, fmt.Sprintf("it says %s, and %s was written at %s", now.UTC().Format(form), info.Name(), info.ModTime().UTC().Format(form)),
				"look whether the clock was set back: approvals and tokens end by it")
			return
		}
	}
	v.say("clock", OK, "it says "+now.UTC().Format(form)+", which can be", "")
}
