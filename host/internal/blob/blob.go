// Package blob keeps bytes under their SHA-256: the wholes of which events show
// previews, and what clients send ahead of a prompt.
//
// A blob is immutable: its id is its content, so writing the same twice keeps one.
// What Put acknowledged is on disk. The sum of all blobs stays within a quota, and
// writing beyond it fails rather than evicting what some log still names.
//
// There are two makers: [Dir] in a private directory, [Memory] for embedders that
// keep nothing. blob knows no sessions and no clients; who may read is decided
// elsewhere.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
)

// DefaultQuota is used where a quota is 0, in bytes.
const DefaultQuota = 4 << 30

// MaxPage bounds one page of a read, in bytes.
const MaxPage = 128 << 10

// What callers branch on.
var (
	ErrNotFound = errors.New("blob: there is no such blob")
	ErrQuota    = errors.New("blob: the quota is used up")
)

// Page is a piece of a blob. The bytes are the caller's.
type Page struct {
	Data []byte
	// Bytes is the size of the whole.
	Bytes int64
}

const prefix = "sha256-"

// ValidID reports whether id is one that this package could have made.
func ValidID(id frames.BlobID) bool {
	digits, ok := strings.CutPrefix(string(id), prefix)
	if !ok || len(digits) != 2*sha256.Size {
		return false
	}
	for i := range len(digits) {
		if c := digits[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

func idOf(h hash.Hash) frames.BlobID {
	return frames.BlobID(prefix + hex.EncodeToString(h.Sum(nil)))
}

// quota counts bytes that are kept or being written.
type quota struct {
	mu    sync.Mutex // guards used
	used  int64
	limit int64
}

// take reserves n bytes, or says what is wrong.
func (q *quota) take(n int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used+n > q.limit {
		return fmt.Errorf("%w: %d of %d bytes are in use; delete sessions or raise the quota", ErrQuota, q.used, q.limit)
	}
	q.used += n
	return nil
}

func (q *quota) give(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used -= n
}

// Used returns how many bytes are kept or being written.
func (q *quota) Used() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

// meter passes a reader on while it reserves quota for what it reads, and stops
// when its context does.
type meter struct {
	ctx   context.Context //nolint:containedctx // lives as long as one Put
	r     io.Reader
	q     *quota
	taken int64
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, fmt.Errorf("write a blob: %w", context.Cause(m.ctx))
	}
	n, err := m.r.Read(p)
	if n > 0 {
		if qerr := m.q.take(int64(n)); qerr != nil {
			return 0, qerr
		}
		m.taken += int64(n)
	}
	return n, err
}

// pageBounds clamps an offset and a limit to a blob of size bytes.
func pageBounds(size, offset int64, limit int) (int64, int) {
	if limit <= 0 || limit > MaxPage {
		limit = MaxPage
	}
	offset = min(max(offset, 0), size)
	return offset, int(min(int64(limit), size-offset))
}
