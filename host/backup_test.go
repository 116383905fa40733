package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/mem"
)

// get asks for a path with a token, "" for none.
func (r *rig) get(method, path, token string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.srv.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Errorf("%s %s: %v", method, path, err)
	}
	return resp, string(b)
}

// A backup holds the store as of one moment and every blob, and says so at its end.
func TestBackupHoldsStoreAndBlobs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "short", strings.Repeat("long ", 100_000)} { // of none, one and more pages
		name := filepath.Join(dir, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(text))))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, func(c *host.Config) { c.BlobDir, c.Version = dir, "v9" })
	p := r.dial(canary)
	for _, text := range []string{"one", "two"} {
		sid := r.create(p, nil).SessionID
		subscribe(p, sid)
		prompt(p, sid, "say "+text)
		p.event(frames.TurnEndEvent)
	}
	resp, body := r.get("GET", "/v1/backup", canary)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("GET /v1/backup: %s %v", resp.Status, resp.Header)
	}
	var copied store.Store
	blobs := map[frames.BlobID]int{}
	sum, err := host.ReadBackup(t.Context(), strings.NewReader(body), host.BackupSink{
		Store: func(r io.Reader) (err error) { copied, err = mem.Load(r); return err },
		Blob: func(id frames.BlobID, r io.Reader) error {
			b, err := io.ReadAll(r)
			blobs[id] = len(b)
			return err
		},
	})
	if err != nil || sum.Sessions != 2 || sum.HostID != r.host.ID() || sum.Version != "v9" || sum.Blobs != len(blobs) || len(blobs) != 3 {
		t.Errorf("the backup says %+v, %v; want 2 sessions of %s and 3 blobs (%d came)", sum, err, r.host.ID(), len(blobs))
	}
	list, err := copied.List(t.Context(), "", "", 0)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d sessions in the copy: %v", len(list), err)
	}
	for id, n := range blobs {
		if info, err := os.Stat(filepath.Join(dir, string(id))); err != nil || info.Size() != int64(n) {
			t.Errorf("blob %s has %d bytes in the backup, %v %v", id, n, info, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Only a token that may see everything gets a backup, and only by GET.
func TestBackupNeedsAdminWithoutTrees(t *testing.T) {
	operate, limited := host.NewToken(), host.NewToken()
	r := start(t, func(c *host.Config) {
		c.Tokens = []host.Token{
			{Secret: operate, Scopes: []rpc.Scope{rpc.ScopeOperate}},
			{Secret: limited, Scopes: []rpc.Scope{rpc.ScopeAdmin}, Trees: []frames.SessionID{"some"}},
		}
	})
	for _, c := range []struct {
		method, token string
		status        int
		kind          string
	}{
		{"GET", "", http.StatusUnauthorized, "unauthenticated"},
		{"GET", "wrong", http.StatusUnauthorized, "unauthenticated"},
		{"GET", operate, http.StatusForbidden, `"forbidden"`},
		{"GET", limited, http.StatusForbidden, `"forbidden"`},
		{"POST", canary, http.StatusMethodNotAllowed, "GET"},
		{"HEAD", canary, http.StatusMethodNotAllowed, ""},
		{"GET", canary, http.StatusOK, "manifest.json"},
	} {
		if resp, body := r.get(c.method, "/v1/backup", c.token); resp.StatusCode != c.status || !strings.Contains(body, c.kind) {
			t.Errorf("%s with %.9s: %s %.200s; want %d and %q", c.method, c.token, resp.Status, body, c.status, c.kind)
		}
	}
}

// A store that cannot copy itself, or fails to, is told without what the disk said.
func TestBackupThatCannotBeMade(t *testing.T) {
	plain := start(t, func(c *host.Config) { c.Store = struct{ store.Store }{mem.New()} })
	if resp, body := plain.get("GET", "/v1/backup", canary); resp.StatusCode != http.StatusNotImplemented || !strings.Contains(body, "cannot copy itself") {
		t.Errorf("no Snapshotter: %s %s", resp.Status, body)
	}
	_, err := host.Backup(t.Context(), io.Discard, struct{ store.Store }{mem.New()}, "", "v")
	if !errors.Is(err, host.ErrNoSnapshot) {
		t.Errorf("Backup = %v, want ErrNoSnapshot", err)
	}
	failing := start(t, func(c *host.Config) {
		c.Store = &snapper{Store: mem.New(), snap: func(context.Context, io.Writer) (int64, error) { return 0, errors.New("sector 7 of /secret") }}
	})
	if resp, body := failing.get("GET", "/v1/backup", canary); resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "storage-failed") || strings.Contains(body, "sector") {
		t.Errorf("failing: %s %s", resp.Status, body)
	}
}

// snapper is a store with a snapshot of the test's.
type snapper struct {
	store.Store
	snap func(context.Context, io.Writer) (int64, error)
}

func (s *snapper) Snapshot(ctx context.Context, w io.Writer) (int64, error) { return s.snap(ctx, w) }

// serveOverPipes runs a host with its own server in virtual time.
func serveOverPipes(t *testing.T, s store.Store, f func(get func(path string) *http.Response, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h, err := host.New(t.Context(), host.Config{Store: s, Drivers: []agent.Driver{&script{}}, Token: canary, AllowHosts: []string{"mux.test"}})
		if err != nil {
			t.Fatal(err)
		}
		ln := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := h.Serve(ctx, ln); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
		f(func(path string) *http.Response {
			tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return ln.dial(), nil }, DisableKeepAlives: true}
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://mux.test"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+canary)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatalf("GET %s: %v", path, err)
			}
			return resp
		}, func() { stop(); wg.Wait() })
		stop()
		wg.Wait()
	})
}

// megabytes writes a snapshot of n MiB.
func megabytes(n int) *snapper {
	return &snapper{Store: mem.New(), snap: func(_ context.Context, w io.Writer) (int64, error) {
		m, err := w.Write(make([]byte, n<<20))
		return int64(m), err
	}}
}

// A backup may take as long as it takes: a reader that is slow, but reads, gets
// all of it.
func TestBackupOutlivesTheServersTimeouts(t *testing.T) {
	serveOverPipes(t, megabytes(4), func(get func(string) *http.Response, _ func()) {
		resp := get("/v1/backup")
		defer resp.Body.Close()
		began := time.Now()
		var all bytes.Buffer
		for {
			_, err := io.CopyN(&all, resp.Body, 128<<10)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("after %v and %d bytes: %v", time.Since(began), all.Len(), err)
			}
			time.Sleep(5 * time.Second)
		}
		if sum, err := host.ReadBackup(t.Context(), &all, host.BackupSink{}); err != nil || sum.StoreBytes != 4<<20 {
			t.Errorf("the backup after %v: %+v, %v", time.Since(began), sum, err)
		}
		if time.Since(began) < time.Minute {
			t.Errorf("the reader took %v; want it to be slow", time.Since(began))
		}
	})
}

// A reader that stops reading is cut off, and the next backup can be made; one more
// at the same time cannot.
func TestBackupIsOneAtATime(t *testing.T) {
	serveOverPipes(t, megabytes(4), func(get func(string) *http.Response, _ func()) {
		first := get("/v1/backup")
		second := get("/v1/backup")
		if second.StatusCode != http.StatusTooManyRequests {
			t.Errorf("a second backup: %s", second.Status)
		}
		_ = second.Body.Close()
		time.Sleep(31 * time.Second)
		if _, err := io.Copy(io.Discard, first.Body); err == nil {
			t.Error("a reader that stopped got a whole response")
		}
		_ = first.Body.Close()
		third := get("/v1/backup")
		if _, err := io.Copy(io.Discard, third.Body); err != nil || third.StatusCode != http.StatusOK {
			t.Errorf("the next backup: %s, %v", third.Status, err)
		}
		_ = third.Body.Close()
	})
}

// A host that goes down breaks its backup off, so that nobody takes it for whole,
// and is not held up by who fetches it.
func TestShutdownBreaksOffABackup(t *testing.T) {
	serveOverPipes(t, megabytes(4), func(get func(string) *http.Response, stop func()) {
		resp := get("/v1/backup")
		defer resp.Body.Close()
		began := time.Now()
		if stop(); time.Since(began) > 10*time.Second {
			t.Errorf("the host was down after %v; want at most 10 s", time.Since(began))
		}
		if _, err := host.ReadBackup(t.Context(), resp.Body, host.BackupSink{}); err == nil {
			t.Error("the backup was whole; want it cut")
		}
	})
}

// The same goes for a server of the embedder's own, which the host cannot close.
func TestShutdownBreaksOffABackupOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := host.New(t.Context(), host.Config{Store: megabytes(4), Drivers: []agent.Driver{&script{}}, Token: canary, AllowHosts: []string{"mux.test"}})
		if err != nil {
			t.Fatal(err)
		}
		ln, srv := newPipes(), &http.Server{Handler: h.Handler()}
		var wg sync.WaitGroup
		wg.Go(func() { _ = srv.Serve(ln) })
		c := ln.dial()
		if _, err := io.WriteString(c, "GET /v1/backup HTTP/1.1\r\nHost: mux.test\r\n"+bearer+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := h.Shutdown(t.Context()); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("Shutdown after %v: %v; want at most 10 s", time.Since(began), err)
		}
		_ = srv.Close()
		_ = c.Close()
		wg.Wait()
	})
}

// Whatever it is given, reading a backup ends with an error or with what was
// written.
func FuzzReadBackup(f *testing.F) {
	st := mem.New()
	if err := st.Put(f.Context(), store.Row{Table: "t", Key: "k", Value: []byte("v")}); err != nil {
		f.Fatal(err)
	}
	var whole bytes.Buffer
	sum, err := host.Backup(f.Context(), &whole, st, "", "v1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(whole.Bytes()[:2000])
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := int64(0)
		got, err := host.ReadBackup(t.Context(), bytes.NewReader(b), host.BackupSink{Store: func(r io.Reader) (err error) {
			n, err = io.Copy(io.Discard, r)
			return err
		}})
		if err == nil && (n != got.StoreBytes || got.Format != sum.Format || len(got.StoreSHA256) != 64) {
			t.Errorf("a backup of %d bytes is %+v", n, got)
		}
	})
}

// A backup that cannot go on is broken off: the response has no end.
func TestBackupThatFailsHalfwayIsBrokenOff(t *testing.T) {
	short := &snapper{Store: mem.New(), snap: func(_ context.Context, w io.Writer) (int64, error) {
		n, err := w.Write(make([]byte, 100<<10))
		return 2 * int64(n), err
	}}
	serveOverPipes(t, short, func(get func(string) *http.Response, _ func()) {
		resp := get("/v1/backup")
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s and %d bytes, with an end; want it broken off", resp.Status, n)
		}
	})
}
