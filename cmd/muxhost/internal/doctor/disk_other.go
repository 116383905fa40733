//go:build !linux && !darwin

package doctor

import "errors"

// Free is not known here.
func Free(string) (int64, error) { return 0, errors.New("this system is not asked") }
