package conform_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/muxhost/muxhost/spec/conform"
)

// A choice that would leave out what was asked for is refused, so that a typing
// mistake cannot pass for a server that conforms.
func TestChoicesThatChooseNothingAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  conform.Options
		why  string
	}{
		{"a check that is not there", conform.Options{Checks: []string{"errors/known-kinds", "errors/knwon-kinds"}}, `"errors/knwon-kinds"`},
		{"a check of another family", conform.Options{Families: []string{"fork"}, Checks: []string{"errors/known-kinds"}}, `"errors/known-kinds"`},
		{"a family that is not there", conform.Options{Families: []string{"forks"}}, `"forks"`},
		{"a URL with a path", conform.Options{URL: "http://127.0.0.1:1/v1/ws"}, "/v1/ws"},
	} {
		if c.opt.Token = "t"; c.opt.URL == "" {
			c.opt.URL = "http://127.0.0.1:1"
		}
		if _, err := conform.Run(t.Context(), c.opt); !errors.Is(err, conform.ErrOptions) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v; want ErrOptions that names %s", c.name, err, c.why)
		}
	}
}

// Where nobody listens, the error says that, and names no HTTP status.
func TestNobodyListensIsSaidPlainly(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().(*net.TCPAddr).String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := conform.Run(t.Context(), conform.Options{URL: "http://" + addr, Token: "t", Wait: time.Second})
	if err == nil || errors.Is(err, conform.ErrOptions) || strings.Contains(err.Error(), "HTTP 0") || !strings.Contains(err.Error(), addr) {
		t.Errorf("Run: %v; want that %s does not answer", err, addr)
	}
}
