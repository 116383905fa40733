package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// backupStall is how long a piece of a backup may wait for whoever fetches it.
const backupStall = 30 * time.Second

// serveBackup answers GET /v1/backup with one tar; see [Backup]. One is made at a
// time. A response that ends early is broken off, so that it is not taken for whole.
func (h *Host) serveBackup(w http.ResponseWriter, r *http.Request) {
	who, _ := auth.From(r.Context())
	if !slices.Contains(who.Scopes, string(rpc.ScopeAdmin)) || who.Trees != nil {
		auth.Refuse(w, &auth.Refusal{Status: http.StatusForbidden, Kind: "forbidden", Message: "a backup holds everything: it needs the scope admin and no tree limit; use the host's own token"})
		return
	}
	if !h.backingUp.CompareAndSwap(false, true) {
		auth.Refuse(w, &auth.Refusal{Status: http.StatusTooManyRequests, Kind: "rate-limited", Message: "another backup is being made; wait for it, or use it"})
		return
	}
	defer h.backingUp.Store(false)
	leaveLobby(r)
	done := make(chan error, 1)
	if !h.seats.serve(func() { done <- h.sendBackup(w, r) }) {
		auth.Refuse(w, refuseSeat(hostClosed))
		return
	}
	if err := <-done; err != nil {
		h.cfg.Logger.Warn("a backup was not finished", slog.Any("err", err))
		panic(http.ErrAbortHandler)
	}
}

// sendBackup takes a backup and sends it. The error says that a response that was
// begun did not come to its end.
func (h *Host) sendBackup(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out := &backupWriter{w: w, ctl: http.NewResponseController(w)}
	defer context.AfterFunc(h.ctx, func() {
		cancel(store.ErrClosed)
		_ = out.ctl.SetWriteDeadline(time.Now())
	})()
	b, err := takeBackup(ctx, h.cfg.Store, h.blobs, h.cfg.Version)
	if err != nil {
		h.cfg.Logger.Warn("a backup could not be made", slog.Any("err", err))
		auth.Refuse(w, backupRefusal(err))
		return nil
	}
	name := "muxhost-" + b.sum.Time.UTC().Format("20060102-150405") + ".tar"
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	return errors.Join(b.send(ctx, out), b.close())
}

// backupRefusal says why there is no backup; what the disk said is for the log.
func backupRefusal(err error) *auth.Refusal {
	switch {
	case errors.Is(err, ErrNoSnapshot):
		return &auth.Refusal{Status: http.StatusNotImplemented, Kind: "unsupported", Message: "this host's store cannot copy itself while it is used; back it up with its own means"}
	case errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled):
		return refuseSeat(hostClosed)
	}
	return &auth.Refusal{Status: http.StatusInternalServerError, Kind: string(rpc.KindStorageFailed), Message: "the store could not be copied; there has to be room for a copy of the database beside the blobs, and the host's log says what was wrong"}
}

// backupWriter gives each write its time, however long the whole takes.
type backupWriter struct {
	w   io.Writer
	ctl *http.ResponseController
}

func (b *backupWriter) Write(p []byte) (int, error) {
	_ = b.ctl.SetWriteDeadline(time.Now().Add(backupStall)) // not every server can
	return b.w.Write(p)
}
