// Command cmd serves package stubllm on a loopback address until it is ended, for
// agents that are tried by hand. With -log it writes one JSON line for each request.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/muxhost/muxhost/host/agent/agenttest/stubllm"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8089", "listen address, loopback only")
	log := flag.String("log", "", "append a JSON line for each request to this file")
	flag.Parse()
	if err := serve(*addr, *log); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(addr, log string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return fmt.Errorf("stubllm: -addr %q: want a loopback address such as 127.0.0.1:8089", addr)
	}
	var o stubllm.Options
	if log != "" {
		f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("stubllm: -log: %w", err)
		}
		defer f.Close()
		o.OnRequest = lines(f)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("stubllm: %w", err)
	}
	fmt.Printf("stubllm on http://%s\n", ln.Addr())
	s := &http.Server{Handler: stubllm.New(o), ReadHeaderTimeout: 10 * time.Second}
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// lines writes requests to f.
func lines(f *os.File) func(stubllm.Request) {
	var mu sync.Mutex // guards e
	e := json.NewEncoder(f)
	return func(r stubllm.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = e.Encode(map[string]any{
			"at": time.Now().Format(time.RFC3339Nano), "method": r.Method, "path": r.Path, "wire": r.Wire,
			"model": r.Model, "tools": r.Tools, "results": r.Results, "steps": r.Steps, "bytes": len(r.Body),
		})
	}
}
