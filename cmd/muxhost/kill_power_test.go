package main_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/cli"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/agent/shell"
	"github.com/muxhost/muxhost/store/bolt"
	"github.com/muxhost/muxhost/store/bolt/bolttest"
)

// journalName is the file that says what the database has not synced.
const journalName = "unsynced"

// servePower is a host on a disk whose power can go: `muxhost serve`, but for its
// flags. It returns the exit code.
func servePower(mode string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runPower(ctx, os.Args[len(os.Args)-1], mode == modeNoSync); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cli.ExitCode(err)
	}
	return 0
}

func runPower(ctx context.Context, dir string, noSync bool) (err error) {
	if err := host.PrepareStateDir(dir); err != nil {
		return err
	}
	db, err := bolt.Open(filepath.Join(dir, dbName), bolt.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := bolttest.Attach(db, filepath.Join(dir, journalName), noSync); err != nil {
		return err
	}
	token, _, err := host.EnsureToken(dir)
	if err != nil {
		return err
	}
	h, err := host.New(ctx, host.Config{
		Store: db, Token: token, Env: host.AllowedEnv(os.Environ()), BlobDir: filepath.Join(dir, "blobs"),
		Drivers: []agent.Driver{shell.New(shell.Options{}), demo.New(demo.Options{Speed: 1})},
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	ln, err := h.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, h.Shutdown(context.WithoutCancel(ctx)))
	}
	fmt.Println("http://" + ln.Addr().String())
	return h.Serve(ctx, ln)
}
