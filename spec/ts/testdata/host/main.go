// Command host serves the vectors of spec/vectors/rpc to clients in other
// languages: for each line of its standard input it starts a fresh host, in memory,
// and prints {"url","token","cwd"} on a line; when the input ends it ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/host/agent/shell"
	"github.com/muxhost/muxhost/store/mem"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "muxhost-vectors-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fresh, err := start(ctx, &wg, dir)
		if err != nil {
			return err
		}
		if err := out.Encode(fresh); err != nil {
			return err
		}
	}
	return nil
}

// start serves one more host until ctx is done.
func start(ctx context.Context, wg *sync.WaitGroup, dir string) (map[string]string, error) {
	cwd, err := os.MkdirTemp(dir, "cwd-")
	if err != nil {
		return nil, err
	}
	token := host.NewToken()
	h, err := host.New(ctx, host.Config{
		Store: mem.New(), Drivers: []agent.Driver{demo.New(demo.Options{}), shell.New(shell.Options{})}, Token: token,
		DrainTimeout: time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	wg.Go(func() {
		if err := h.Serve(ctx, ln); err != nil {
			fmt.Fprintln(os.Stderr, "host: serve:", err)
		}
	})
	return map[string]string{"url": "http://" + ln.Addr().String(), "token": token, "cwd": cwd}, nil
}
