package conform_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/spec/conform"
)

// Whatever the kit allows for always is taken back: grants outlive the sessions
// that they were given in.
func TestNoGrantIsLeftBehind(t *testing.T) {
	r := start(t, nil)
	if rep := r.run(t, conform.Options{Families: []string{"grants", "scopes"}, Brief: true}); !rep.OK() {
		t.Error("the host does not pass")
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"grants.list","params":{}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/rpc", strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(got), `"grants":[]`) {
		t.Errorf("grants.list = %s, %v; want none", got, err)
	}
}
