// Command muxhost runs the coding agents of this machine and lets any number of
// clients watch and steer them. See muxhost --help.
package main

import (
	"context"
	"os"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/cli"
)

func main() { os.Exit(cli.Main(context.Background(), os.Args[1:])) }
