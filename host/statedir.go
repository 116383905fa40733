package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muxhost/muxhost/host/internal/auth"
)

// PrepareStateDir makes dir, an absolute path, with mode 0700 unless it exists. It
// refuses one that is a symbolic link, that others can reach or that others own;
// the error says how to mend that.
func PrepareStateDir(dir string) error { return auth.PrepareDir(dir) }

// EnsureToken returns the token of a state directory and mints one where there is
// none. It refuses a token file that is a link, that others can reach, that others
// own or that is too short. Only the process that holds the state directory's
// database may call it.
func EnsureToken(dir string) (token string, minted bool, err error) {
	token, err = auth.LoadToken(dir)
	if errors.Is(err, fs.ErrNotExist) {
		token, err = auth.CreateToken(dir)
		minted = err == nil
	}
	if err != nil {
		return "", false, fmt.Errorf("host: the token: %w", err)
	}
	return token, minted, nil
}

// LoadToken returns the token of a state directory, as clients on this machine do.
// A missing one is [fs.ErrNotExist].
func LoadToken(dir string) (string, error) {
	token, err := auth.LoadToken(dir)
	if err != nil {
		return "", fmt.Errorf("host: the token: %w", err)
	}
	return token, nil
}

// WriteStateFile puts data under name in a state directory: mode 0600, whole or not
// at all, durable, through no link.
func WriteStateFile(dir, name string, data []byte) error {
	if err := auth.WriteFile(dir, name, data); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

// RemoveStateFile removes a file of a state directory; a missing one is fine.
func RemoveStateFile(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}
