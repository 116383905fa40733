package main_test

import (
	"context"
	"os"
	"testing"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/cli"
)

// hostEnv makes the test binary a host: its value is one of the modes.
const hostEnv = "MUXHOST_TEST_HOST"

// What a child of these tests is.
const (
	modeServe  = "serve"   // muxhost, with the arguments given
	modePower  = "power"   // a host whose unsynced writes can be undone
	modeNoSync = "no-sync" // the same, whose database never syncs
)

func TestMain(m *testing.M) {
	switch mode := os.Getenv(hostEnv); mode {
	case "":
		os.Exit(m.Run())
	case modeServe:
		os.Exit(cli.Main(context.Background(), os.Args[1:]))
	default:
		os.Exit(servePower(mode))
	}
}
