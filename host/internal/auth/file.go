package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// TokenFile is the name of the token in a state directory.
const TokenFile = "token"

const maxSecretFile = 4096 // bytes

// FileError reports a file or directory that is not private enough to use. Fix is
// the command that mends it.
type FileError struct {
	Path, Problem, Fix string
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%s: %s; to mend it: %s", e.Path, e.Problem, e.Fix)
}

// PrepareDir makes dir (0700) unless it exists, and refuses one that is a
// symbolic link, open to others, or somebody else's.
func PrepareDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%s: the directory must be an absolute path", dir)
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the directory: %w", err)
		}
		if err := os.Chmod(dir, 0o700); err != nil { // under any umask
			return fmt.Errorf("make the directory private: %w", err)
		}
	}
	return CheckDir(dir)
}

// CheckDir refuses a directory that is not private to this user.
func CheckDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the directory: %w", err)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return &FileError{dir, "it is a symbolic link, want a directory", "name the directory that it points to"}
	case !info.IsDir():
		return &FileError{dir, "it is not a directory", "name another, or remove it"}
	}
	return checkPrivate(dir, info, "0700")
}

// CreateToken mints a token and writes it to dir, whose owner the caller is. An
// existing token file is [fs.ErrExist]. The file is complete or absent, whatever
// happens.
func CreateToken(dir string) (string, error) {
	path := filepath.Join(dir, TokenFile)
	if _, err := os.Lstat(path); err == nil {
		return "", &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	secret := NewSecret()
	if err := WriteFile(dir, TokenFile, []byte(secret+"\n")); err != nil {
		return "", err
	}
	return secret, nil
}

// LoadToken reads the token of dir. A missing one is [fs.ErrNotExist]; one that
// others can read, that is a link or that is too short is refused.
func LoadToken(dir string) (string, error) {
	b, err := ReadFile(dir, TokenFile)
	if err != nil {
		return "", err
	}
	secret := string(bytes.TrimRight(b, "\r\n"))
	if err := CheckSecret(secret); err != nil {
		path := filepath.Join(dir, TokenFile)
		return "", fmt.Errorf("%s: %w; or remove the file, and the host makes a new one", path, err)
	}
	return secret, nil
}

// ReadFile reads a private file of at most 4 KiB in dir, following no link.
func ReadFile(dir, name string) ([]byte, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, &FileError{path, "it is a symbolic link, want a file", "rm " + quote(path)}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, fmt.Errorf("open a private file: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at a private file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, &FileError{path, "it is not a file", "rm -r " + quote(path)}
	}
	if err := checkPrivate(path, info, "0600"); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return nil, fmt.Errorf("read a private file: %w", err)
	}
	if len(b) > maxSecretFile {
		return nil, &FileError{path, "it is larger than 4096 bytes", "rm " + quote(path)}
	}
	return b, nil
}

// WriteFile puts data under name in dir with mode 0600 under any umask, whole or
// not at all, and durably. A link that stands there is replaced, not followed.
func WriteFile(dir, name string, data []byte) error {
	if err := CheckDir(dir); err != nil {
		return err
	}
	temp := filepath.Join(dir, "."+name+"-"+NewSecret()[:12])
	if err := writeNew(temp, data); err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("put %s in place: %w", filepath.Join(dir, name), err)
	}
	return syncDir(dir)
}

// writeNew makes a file that did not exist, and syncs it.
func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(0o600); err != nil { // a umask may have taken bits away
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the directory to sync it: %w", err)
	}
	defer d.Close() //nolint:errcheck // only synced
	return syncOpenDir(d)
}

// quote writes a path so that it can be pasted into a shell.
func quote(path string) string {
	return "'" + string(bytes.ReplaceAll([]byte(path), []byte("'"), []byte(`'\''`))) + "'"
}
