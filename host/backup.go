package host

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/blob"
	"github.com/muxhost/muxhost/store"
)

// BackupFormat is the version of the backups that this version writes; it reads no
// other.
const BackupFormat = 1

// A backup is one tar: manifest.json, the store's snapshot, every blob that existed
// after it was taken, and end.json, which sums up the rest, so that one that was cut
// short is told from a whole one.
const (
	backupManifest = "manifest.json"
	backupStore    = "store"
	backupBlobs    = "blobs/"
	backupEnd      = "end.json"
)

// BackupManifest says what a backup is of.
type BackupManifest struct {
	Format          int         `json:"format"`
	HostID          string      `json:"hostId,omitempty"`
	Version         string      `json:"version"`
	ProtocolVersion string      `json:"protocolVersion"`
	Time            frames.Time `json:"time"`
	Sessions        int         `json:"sessions"` // when it was begun
	StoreBytes      int64       `json:"storeBytes"`
}

// BackupSummary is a manifest and what followed it.
type BackupSummary struct {
	BackupManifest
	StoreSHA256 string `json:"storeSha256"`
	Blobs       int    `json:"blobs"`
	BlobBytes   int64  `json:"blobBytes"`
}

// ErrNoSnapshot says that a store cannot be backed up while it is used.
var ErrNoSnapshot = errors.New("host: this store cannot copy itself (it is no store.Snapshotter); back it up with its own means")

// Backup writes a backup of a state that no host runs on: s is its store, dir its
// blobs, "" for none, and version the program's. It is what GET /v1/backup of a
// running host sends. The store is copied into a file beside the blobs first.
func Backup(ctx context.Context, w io.Writer, s store.Store, dir, version string) (BackupSummary, error) {
	blobs, err := openBlobs(Config{BlobDir: dir})
	if err != nil {
		return BackupSummary{}, err
	}
	b, err := takeBackup(ctx, s, blobs, version)
	if err != nil {
		return BackupSummary{}, errors.Join(err, blobs.Close())
	}
	err = b.send(ctx, w)
	return b.sum, errors.Join(err, b.close(), blobs.Close())
}

// keeper is what a backup needs of the blobs.
type keeper interface {
	All(ctx context.Context) iter.Seq2[frames.BlobID, error]
	Read(ctx context.Context, id frames.BlobID, offset int64, limit int) (blob.Page, error)
	TempFile() (*os.File, error)
}

// backup is a snapshot that is taken and waits to be sent.
type backup struct {
	blobs keeper
	copy  *os.File
	sum   BackupSummary
}

// takeBackup copies the store into a temporary file: at the speed of this disk, not
// at that of whoever fetches the backup.
func takeBackup(ctx context.Context, s store.Store, blobs keeper, version string) (_ *backup, err error) {
	from, ok := s.(store.Snapshotter)
	if !ok {
		return nil, ErrNoSnapshot
	}
	b := &backup{blobs: blobs, sum: BackupSummary{BackupManifest: BackupManifest{
		Format: BackupFormat, Version: version, ProtocolVersion: frames.ProtocolVersion, Time: frames.At(time.Now()),
	}}}
	id, err := s.Get(ctx, store.TableHost, hostIDKey)
	if err != nil {
		return nil, fmt.Errorf("host: backup: %w", err)
	}
	b.sum.HostID = string(id)
	if b.sum.Sessions, err = countSessions(ctx, s); err != nil {
		return nil, fmt.Errorf("host: backup: %w", err)
	}
	if b.copy, err = blobs.TempFile(); err != nil {
		return nil, fmt.Errorf("host: backup: %w", err)
	}
	sum := sha256.New()
	b.sum.StoreBytes, err = from.Snapshot(ctx, io.MultiWriter(b.copy, sum))
	if err == nil {
		_, err = b.copy.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("host: backup: copy the store: %w", err), b.close())
	}
	b.sum.StoreSHA256 = hex.EncodeToString(sum.Sum(nil))
	return b, nil
}

func countSessions(ctx context.Context, s store.Store) (n int, err error) {
	for after := frames.SessionID(""); ; {
		page, err := s.List(ctx, "", after, 1000)
		if err != nil || len(page) == 0 {
			return n, err
		}
		n, after = n+len(page), page[len(page)-1].SessionID
	}
}

// close removes the copy.
func (b *backup) close() error {
	return errors.Join(b.copy.Close(), os.Remove(b.copy.Name()))
}

// send writes the tar.
func (b *backup) send(ctx context.Context, w io.Writer) error {
	t := tar.NewWriter(store.CtxWriter{Ctx: ctx, W: w})
	err := b.sendJSON(t, backupManifest, b.sum.BackupManifest)
	if err == nil {
		err = b.sendFile(t, backupStore, b.sum.StoreBytes, b.copy)
	}
	for id, berr := range b.blobs.All(ctx) {
		if err = errors.Join(err, berr); err != nil {
			break
		}
		err = b.sendBlob(ctx, t, id)
	}
	if err == nil {
		err = b.sendJSON(t, backupEnd, b.sum)
	}
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return fmt.Errorf("host: backup: %w", err)
	}
	return nil
}

func (b *backup) sendFile(t *tar.Writer, name string, size int64, r io.Reader) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: b.sum.Time.Time, Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.CopyN(t, r, size)
	return err
}

func (b *backup) sendJSON(t *tar.Writer, name string, v any) error {
	p, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	p = append(p, '\n')
	return b.sendFile(t, name, int64(len(p)), bytes.NewReader(p))
}

// sendBlob sends a blob, page by page. One that is gone by now is no longer needed.
func (b *backup) sendBlob(ctx context.Context, t *tar.Writer, id frames.BlobID) error {
	page, err := b.blobs.Read(ctx, id, 0, 0)
	if errors.Is(err, blob.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r := &pages{ctx: ctx, blobs: b.blobs, id: id, page: page.Data, at: int64(len(page.Data))}
	if err := b.sendFile(t, backupBlobs+string(id), page.Bytes, r); err != nil {
		return fmt.Errorf("blob %s: %w", id, err)
	}
	b.sum.Blobs++
	b.sum.BlobBytes += page.Bytes
	return nil
}

// pages reads a blob from page to page.
type pages struct {
	ctx   context.Context //nolint:containedctx // lives as long as one sendBlob
	blobs keeper
	id    frames.BlobID
	page  []byte
	at    int64 // of the next page
}

func (p *pages) Read(b []byte) (int, error) {
	if len(p.page) == 0 {
		page, err := p.blobs.Read(p.ctx, p.id, p.at, 0)
		if err != nil {
			return 0, err
		}
		if len(page.Data) == 0 {
			return 0, io.EOF
		}
		p.page, p.at = page.Data, p.at+int64(len(page.Data))
	}
	n := copy(b, p.page)
	p.page = p.page[n:]
	return n, nil
}
