package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// A token is made, listed and revoked on the command line; its secret stands alone
// on stdout, connects until it is revoked, and is in no list.
func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	d := newDesktop(t)
	var s rpc.SessionResult
	if err := d.c.Call(t.Context(), "session.create", rpc.CreateParams{Cwd: d.cwd}, &s); err != nil {
		t.Fatal(err)
	}
	sid := s.Session.SessionID
	made := d.run("tokens", "create", "--label", "my phone", "--scope", "answer", "--tree", string(sid), "--for", "720h")
	secret := strings.TrimSpace(made.out)
	if made.code != 0 || len(secret) != 43 || strings.Contains(made.err, secret) || !strings.Contains(made.err, "this once") {
		t.Fatalf("create: %+v, want the secret alone on stdout", made)
	}
	h, err := readHostFile(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	phone, err := client.Dial(t.Context(), client.Options{URL: h.URL, Token: secret, Label: "pocket"})
	if err != nil {
		t.Fatal(err)
	}
	defer phone.Close()
	who := d.ok("clients", "--json")
	if !strings.Contains(who, `"label":"pocket"`) || !strings.Contains(who, `"transport":"websocket"`) {
		t.Errorf("clients: %s", who)
	}
	var token rpc.TokenInfo
	for line := range strings.Lines(d.ok("tokens", "ls", "--json")) {
		var row struct{ Data rpc.TokenInfo }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Data.Label == "my phone" {
			token = row.Data
		}
	}
	list := d.ok("tokens", "ls")
	if !strings.Contains(list, "answer in the tree "+short(string(sid))) || !strings.Contains(list, "1 connected") || strings.Contains(list, secret) || token.ID == "" {
		t.Errorf("tokens ls: %s (%+v)", list, token)
	}
	d.ok("tokens", "revoke", token.ID[len(token.ID)-8:])
	if _, err := client.Dial(t.Context(), client.Options{URL: h.URL, Token: secret}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("the revoked token: %v, want ErrUnauthorized", err)
	}
	d.fails(exitNotFound, "no token", "tokens", "revoke", token.ID)
	d.fails(exitUnauthorized, "configuration", "tokens", "revoke", "main")
	d.fails(exitUsage, "scope", "tokens", "create", "--label", "x", "--scope", "root")
	d.fails(exitUsage, "scope", "tokens", "create", "--label", "x")
	d.fails(exitUsage, "--for", "tokens", "create", "--label", "x", "--scope", "observe", "--for", "-1h")
	d.fails(exitUsage, "no verb", "tokens", "make")
}
