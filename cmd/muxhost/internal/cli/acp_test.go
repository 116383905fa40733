package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// named runs the verb with --session id, and returns the session that session/new
// opens, or what it says instead.
func named(t *testing.T, d *desktop, id string) string {
	t.Helper()
	inR, in := io.Pipe()
	out, outW := io.Pipe()
	a := &app{stdin: inR, stdout: outW, stderr: io.Discard, getenv: func(string) string { return "" }}
	root := newRoot(a)
	root.SetArgs([]string{"--state-dir", d.dir, "acp", "--session", id})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer in.Close()
	wg.Go(func() { _ = outW.CloseWithError(root.ExecuteContext(t.Context())) })
	dec := json.NewDecoder(out)
	var answer struct {
		ID     int
		Result struct{ SessionID string }
		Error  struct{ Message string }
	}
	for n, line := range []string{
		`"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`,
		fmt.Sprintf(`"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`, d.cwd),
	} {
		if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,%s`+"\n", n+1, line); err != nil {
			t.Fatal(err)
		}
		for answer.ID != n+1 {
			if err := dec.Decode(&answer); err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Go(func() { _, _ = io.Copy(io.Discard, io.MultiReader(dec.Buffered(), out)) }) // until it ends
	return answer.Result.SessionID + answer.Error.Message
}

// An editor's session may be named by the end of its id, as with other verbs.
func TestACPTakesTheEndOfAnID(t *testing.T) {
	d := newDesktop(t)
	s, err := d.c.Create(t.Context(), rpc.CreateParams{Cwd: d.cwd})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.SessionID)
	for _, name := range []string{id, id[len(id)-8:]} {
		if got := named(t, d, name); got != id {
			t.Errorf("--session %s opened %q, want %s", name, got, id)
		}
	}
	for _, name := range []string{id[len(id)-3:], "nobody"} {
		if got := named(t, d, name); got == id || !strings.Contains(got, "there is no session") {
			t.Errorf("--session %s: %q, want that there is none", name, got)
		}
	}
}
