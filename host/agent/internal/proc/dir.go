package proc

import (
	"fmt"
	"os"
	"path/filepath"
)

// CheckDir makes sure that dir is still the directory that was shown.
func CheckDir(dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("not run: the directory is gone: %w", err)
	}
	if resolved != filepath.Clean(dir) {
		return fmt.Errorf("not run: %s now leads to %s; create a session there instead", dir, resolved)
	}
	fi, err := os.Stat(resolved)
	if err != nil {
		return fmt.Errorf("not run: the directory is gone: %w", err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("not run: %s is not a directory any more", dir)
	}
	return nil
}
