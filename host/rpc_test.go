package host_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/mux/muxtest"
	"github.com/muxhost/muxhost/rpc"
)

// request is one to the scene's host; edit may change it.
func (s *scene) request(method, target, body string, edit func(*http.Request)) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://muxhost.test"+target, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.RemoteAddr = "192.0.2.1:999"
	r.Header.Set("Authorization", "Bearer "+canary)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if edit != nil {
		edit(r)
	}
	return r
}

// posted is what POST /v1/rpc answered.
type posted struct {
	status int
	header http.Header
	message
}

func (s *scene) post(body string, edit func(*http.Request)) posted {
	s.t.Helper()
	resp := muxtest.Do(s.t, s.host.Handler(), s.request(http.MethodPost, "/v1/rpc?label=script", body, edit))
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	p := posted{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusRequestEntityTooLarge {
		if err := json.Unmarshal(b, &p.message); err != nil {
			s.t.Fatalf("%d %s: %v", resp.StatusCode, b, err)
		}
	}
	return p
}

func callOf(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","method":%q,"params":%s}`, method, params)
}

func as(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// One POST makes one call, as strictly as a WebSocket and with the same scopes; the
// methods of subscriptions do not exist there, and who called is named by its label.
func TestPostMakesOneCall(t *testing.T) {
	guest := host.NewToken()
	edit := func(c *host.Config) { c.Tokens = []host.Token{{Secret: guest, Scopes: []rpc.Scope{rpc.ScopeObserve}}} }
	play(t, edit, func(t *testing.T, s *scene) {
		w := s.dial()
		sid := s.create(w)
		s.watch(w, sid, 0)
		for name, c := range map[string]struct {
			body string
			edit func(*http.Request)
			want string
		}{
			"a query":       {callOf("host.describe", "{}"), nil, "ok"},
			"a change":      {callOf("session.configure", `{"sessionId":"`+string(sid)+`","title":"by post"}`), nil, "ok"},
			"subscribing":   {callOf("mux.subscribe", `{"host":true}`), nil, "-32601"},
			"unsubscribing": {callOf("mux.unsubscribe", `{"host":true}`), nil, "-32601"},
			"unknown":       {callOf("x.y", `{}`), nil, "-32601"},
			"bad params":    {callOf("session.get", `{"sessionId":"`+string(sid)+`","x":1}`), nil, "-32602"},
			"a twin":        {callOf("session.get", `{"sessionId":"a","sessionId":"b"}`), nil, "-32600"},
			"a batch":       {"[" + callOf("host.describe", "{}") + "]", nil, "-32600"},
			"nothing":       {"", nil, "-32700"},
			"not JSON":      {"{", nil, "-32700"},
			"not UTF-8":     {callOf("x\xff", "{}"), nil, "-32700"},
			"a scope":       {callOf("session.create", `{"cwd":"/"}`), as(guest), "forbidden"},
			"unknown id":    {callOf("session.get", `{"sessionId":"none"}`), nil, "session-not-found"},
		} {
			got := s.post(c.body, c.edit)
			if got.status != http.StatusOK || kindOf(got.message) != c.want || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s %v, want 200 and %s", name, got.status, kindOf(got.message), got.header, c.want)
			}
		}
		synctest.Wait()
		renamed, at := payloads[frames.SessionRenamed](t, s.log(w, sid), frames.SessionRenamedEvent)
		if len(renamed) != 1 || at[0].By == nil || at[0].By.Label != "script" || at[0].By.ClientID == "" {
			t.Errorf("renamed %+v by %+v, want once, by the label of the call", renamed, at)
		}
	})
}

// What is no call for reasons of HTTP gets its status: a body that is too large,
// a content type that pages of others may send, a method, no token.
func TestPostRefusesWhatIsNoCall(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		body := callOf("host.describe", "{}")
		for name, c := range map[string]struct {
			body string
			edit func(*http.Request)
			want int
		}{
			"too large":   {body + strings.Repeat(" ", frames.MaxMessage), nil, 413},
			"as large":    {body + strings.Repeat(" ", frames.MaxMessage-len(body)), nil, 200},
			"charset":     {body, func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") }, 200},
			"plain text":  {body, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
			"no type":     {body, func(r *http.Request) { r.Header.Del("Content-Type") }, 415},
			"GET":         {"", func(r *http.Request) { r.Method = http.MethodGet }, 405},
			"no token":    {body, func(r *http.Request) { r.Header.Del("Authorization") }, 401},
			"null origin": {body, func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
			"a cookie of another site": {body, func(r *http.Request) {
				r.Header.Del("Authorization")
				r.Header.Set("Cookie", "muxhost="+canary)
				r.Header.Set("Sec-Fetch-Site", "cross-site")
			}, 401},
		} {
			got := s.post(c.body, c.edit)
			if got.status != c.want {
				t.Errorf("%s: %d, want %d", name, got.status, c.want)
			}
			if got.status == 413 && (kindOf(got.message) != "-32600" || string(got.ID) != "null") {
				t.Errorf("%s: %+v, want an answer of JSON-RPC", name, got.message)
			}
		}
	})
}

// A hundred faulty calls within ten seconds shut a token's address out until the
// oldest is ten seconds old; outcomes do not count, and other addresses go on.
func TestFaultyPostsSpendABudget(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		for range 300 { // outcomes
			s.post(callOf("session.get", `{"sessionId":"none"}`), nil)
		}
		start := time.Now()
		for i := range 100 {
			if got := s.post("{", nil); got.status != http.StatusOK {
				t.Fatalf("faulty call %d: %d", i, got.status)
			}
			if err := rest(t.Context(), 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		good := callOf("host.describe", "{}")
		if got := s.post(good, nil); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "9" {
			t.Errorf("after %v and 100 faults: %d, Retry-After %q; want 429 and 9", time.Since(start), got.status, got.header.Get("Retry-After"))
		}
		if got := s.post(good, func(r *http.Request) { r.RemoteAddr = "192.0.2.2:1" }); got.status != http.StatusOK {
			t.Errorf("from another address: %d, want 200", got.status)
		}
		if err := rest(t.Context(), 9*time.Second); err != nil {
			t.Fatal(err)
		}
		if got := s.post(good, nil); got.status != http.StatusOK {
			t.Errorf("ten seconds after the first: %d, want 200", got.status)
		}
	})
}
