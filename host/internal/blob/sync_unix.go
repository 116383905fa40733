//go:build unix

package blob

import "os"

func syncDir(d *os.File) error { return d.Sync() }
