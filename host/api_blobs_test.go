package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// client connects the Go client; by, when not nil, meddles with its connections.
func (r *rig) client(token string, by func(net.Conn) net.Conn) *client.Client {
	r.t.Helper()
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil && by != nil {
			c = by(c)
		}
		return c, err
	}}}
	c, err := client.Dial(r.t.Context(), client.Options{
		URL: r.srv.URL, Token: token, Label: "go", HTTPClient: web, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// cutting is a connection that breaks after some bytes, in either direction;
// negative is never.
type cutting struct {
	net.Conn
	up, down atomic.Int64
}

func (c *cutting) Write(p []byte) (int, error) {
	if left := c.up.Add(int64(-len(p))) + int64(len(p)); left < int64(len(p)) {
		n, _ := c.Conn.Write(p[:max(left, 0)])
		_ = c.Close()
		return n, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *cutting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.down.Add(int64(-n)) < 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// cuts makes one connection after the other break: in the middle of the second
// chunk sent, or with an answer on its way back. It stops once calm is set.
func cuts(calm *atomic.Bool, n *atomic.Int64) func(net.Conn) net.Conn {
	return func(raw net.Conn) net.Conn {
		c := &cutting{Conn: raw}
		c.up.Store(1 << 40)
		c.down.Store(1 << 40)
		if calm.Load() {
			return c
		}
		if n.Add(1)%2 == 1 {
			c.up.Store(1_000_000)
		} else {
			c.down.Store(600)
		}
		return c
	}
}

// noise returns n bytes that compress to nothing shorter.
func noise(n int) []byte {
	b := make([]byte, n)
	for i, rng := 0, rand.New(rand.NewPCG(1, 2)); i < n; i++ {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// An image of 5 MB that is sent over connections which break all the time becomes
// an image of a prompt, and reads back byte for byte, by others too.
func TestImageInChunksOverBrokenConnections(t *testing.T) {
	r := start(t, func(c *host.Config) { c.BlobDir = t.TempDir() })
	var calm atomic.Bool
	var broken atomic.Int64
	c := r.client(canary, cuts(&calm, &broken))
	image := noise(5_000_000)
	id, n, err := c.WriteBlob(t.Context(), bytes.NewReader(image))
	if err != nil || n != int64(len(image)) || id != blobID(image) {
		t.Fatalf("WriteBlob = %s, %d, %v", id, n, err)
	}
	calm.Store(true)
	if broken.Load() < 4 {
		t.Errorf("%d connections broke, want some", broken.Load())
	}
	s, err := c.Create(t.Context(), rpc.CreateParams{Cwd: r.cwd})
	if err != nil {
		t.Fatal(err)
	}
	content := []frames.ContentBlock{frames.Text("say seen"), {Type: "image", MimeType: "image/png", Blob: id}}
	if _, err := c.Prompt(t.Context(), rpc.PromptParams{SessionID: s.SessionID, Content: content, PromptID: "p"}); err != nil {
		t.Fatal(err)
	}
	p := r.dial(canary)
	subscribe(p, s.SessionID)
	msg, err := p.event(frames.UserMessageEvent).Payload()
	if err != nil {
		t.Fatal(err)
	}
	got := msg.(*frames.UserMessage).Content
	if len(got) != 2 || got[1].Type != "image" || got[1].Blob != id {
		t.Fatalf("the prompt became %+v", got)
	}
	var back bytes.Buffer
	if n, err := r.client(canary, nil).ReadBlob(t.Context(), got[1].Blob, &back); err != nil || n != int64(len(image)) || !bytes.Equal(back.Bytes(), image) {
		t.Errorf("ReadBlob gave %d bytes, %v", n, err)
	}
}

func blobID(b []byte) frames.BlobID {
	sum := sha256.Sum256(b)
	return frames.BlobID("sha256-" + hex.EncodeToString(sum[:]))
}

// A prompt that names a blob which is not there is refused and leaves nothing.
func TestPromptWithoutItsBlob(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	s := r.create(p, nil)
	missing := "sha256-" + strings.Repeat("0", 64)
	for _, b := range []map[string]any{
		{"type": "image", "mimeType": "image/png", "blob": missing},
		{"type": "image", "mimeType": "image/png", "blob": "../token"},
		{"type": "text", "text": "x", "truncated": map[string]any{"bytes": 9, "blob": missing}},
	} {
		m := p.call("session.prompt", map[string]any{"sessionId": s.SessionID, "promptId": "p", "content": []any{b}})
		if kindOf(m) != "blob-not-found" || !strings.Contains(m.Error.Message, "blob.write") {
			t.Errorf("%v: %s %+v, want blob-not-found and what to do", b, kindOf(m), m.Error)
		}
	}
	if got := must[rpc.GetResult](p, "session.get", map[string]any{"sessionId": s.SessionID}); got.Session.Head != 1 {
		t.Errorf("the log has %d events, want 1", got.Session.Head)
	}
}

// What does not fit an upload is told in words that say what is there; uploads
// are their token's, over any of its connections; the limits are told.
func TestBlobWriteRefusals(t *testing.T) {
	guest, eye := host.NewToken(), host.NewToken()
	r := start(t, func(c *host.Config) {
		c.Tokens = []host.Token{{ID: "guest", Secret: guest, Scopes: []rpc.Scope{rpc.ScopeOperate}}, {ID: "eye", Secret: eye, Scopes: []rpc.Scope{rpc.ScopeAnswer}}}
	})
	a, b, g := r.dial(canary), r.dial(canary), r.dial(guest)
	chunk := func(up string, at int, data, sum string) map[string]any {
		m := map[string]any{"data": base64.StdEncoding.EncodeToString([]byte(data)), "offset": at}
		if up != "" {
			m["upload"] = up
		}
		if sum != "" {
			m["sha256"] = sum
		}
		return m
	}
	up := must[rpc.BlobWriteResult](a, "blob.write", chunk("", 0, "abc", "")).Upload
	whole := sha256.Sum256([]byte("abcdef"))
	for _, c := range []struct {
		what   string
		p      *peer
		params any
		want   string
		say    string
	}{
		{"a hole", b, chunk(up, 4, "x", ""), "-32602", "next byte, 3"},
		{"other bytes", b, chunk(up, 1, "xx", ""), "-32602", "has 3 bytes"},
		{"another token", g, chunk(up, 3, "x", ""), "blob-not-found", "no such upload"},
		{"no such upload", a, chunk("none", 0, "x", ""), "blob-not-found", "begin anew"},
		{"not base64", a, map[string]any{"data": "a"}, "-32602", "base64"},
		{"a digest too short", a, chunk(up, 3, "def", "00"), "-32602", "64 hex"},
		{"a chunk too large", a, map[string]any{"data": base64.StdEncoding.EncodeToString(make([]byte, 512<<10+3))}, "-32602", "more chunks"},
		{"an upload too large", a, chunk(up, 64<<20, "x", ""), "too-large", "67108864"},
		{"on another connection", b, chunk(up, 3, "def", ""), "ok", ""},
		{"again", a, chunk(up, 3, "def", ""), "ok", ""},
		{"the end in capitals", a, chunk(up, 6, "", strings.ToUpper(hex.EncodeToString(whole[:]))), "ok", ""},
		{"the end again", b, chunk(up, 6, "", hex.EncodeToString(whole[:])), "ok", ""},
		{"a wrong digest", g, chunk("", 0, "x", strings.Repeat("0", 64)), "-32602", "dropped"},
		{"a weak scope", r.dial(eye), chunk("", 0, "x", ""), "forbidden", "operate"},
	} {
		m := c.p.call("blob.write", c.params)
		if kindOf(m) != c.want || c.say != "" && !strings.Contains(m.Error.Message, c.say) {
			t.Errorf("%s: %s %+v, want %s saying %q", c.what, kindOf(m), m.Error, c.want, c.say)
		}
	}
	for i := range 5 {
		want := "ok"
		if i == 4 {
			want = "rate-limited"
		}
		if m := g.call("blob.write", chunk("", 0, "x", "")); kindOf(m) != want {
			t.Errorf("upload %d at a time: %s, want %s", i+1, kindOf(m), want)
		}
	}
	l := must[rpc.DescribeResult](a, "host.describe", map[string]any{}).Limits
	if l["blobChunkBytes"] != 512<<10 || l["blobUploadBytes"] != 64<<20 {
		t.Errorf("limits = %v", l)
	}
}

// An upload whose source fails is given up, and says so.
func TestWriteBlobOfABrokenSource(t *testing.T) {
	r := start(t, nil)
	broken := errors.New("no more")
	_, _, err := r.client(canary, nil).WriteBlob(t.Context(), io.MultiReader(bytes.NewReader(noise(600_000)), failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("WriteBlob: %v, want the reader's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.client(canary, nil).WriteBlob(ctx, bytes.NewReader(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteBlob after the end: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
