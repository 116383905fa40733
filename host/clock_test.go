package host_test

import (
	"syscall"
	"time"
)

// wall returns the time of the real clock, in a bubble too.
func wall() time.Time {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		return time.Time{}
	}
	return time.Unix(tv.Unix())
}
