//go:build !unix

package blob

import "os"

// syncDir does nothing: directories cannot be synced here.
func syncDir(*os.File) error { return nil }
