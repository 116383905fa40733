package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// Config is what a [Gate] needs.
type Config struct {
	// Tokens that are accepted; at least one.
	Tokens []Token
	// AllowHosts are further values of Host, exactly as sent: "mux.example.com",
	// "10.0.0.5:7717". Loopback names with the listener's port, and the literal
	// address that a connection arrived on, are always in.
	AllowHosts []string
	// AllowOrigins are further values of Origin, exactly as sent:
	// "https://mux.example.com". The origins of allowed hosts are always in,
	// with the scheme that the listener speaks.
	AllowOrigins []string
	// Logger gets refusals at Debug; nil discards.
	Logger *slog.Logger
}

// Gate stands in front of every path. It is safe for concurrent use.
type Gate struct {
	table  *Table
	lists  lists
	logins logins
	limit  limit
	log    *slog.Logger
}

// New checks cfg and returns its gate.
func New(cfg Config) (*Gate, error) {
	t, err := NewTable(cfg.Tokens)
	if err != nil {
		return nil, err
	}
	l, err := newLists(cfg.AllowHosts, cfg.AllowOrigins)
	if err != nil {
		return nil, err
	}
	g := &Gate{table: t, lists: l, log: cfg.Logger}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	return g, nil
}

// Tokens returns the table of the tokens that are accepted.
func (g *Gate) Tokens() *Table { return g.table }

// Revoke ends a token and those it made, and their logins; see [Table.Revoke].
func (g *Gate) Revoke(id string) ([]string, error) {
	ids, err := g.table.Revoke(id)
	g.logins.drop(ids)
	return ids, err
}

// Refusal is an answer that ends a request: a status and why.
type Refusal struct {
	Status  int
	Kind    string // a kind of contract section 7, or "bad-request"
	Message string
	// Details, when not nil, is JSON for programs.
	Details any
	// RetryAfter is said with a 429: a second, unless it is longer.
	RetryAfter time.Duration
}

func (e *Refusal) Error() string { return e.Message }

// refusals whose words never differ.
var (
	errUnauthenticated = &Refusal{Status: http.StatusUnauthorized, Kind: "unauthenticated", Message: "no valid credentials; send Authorization: Bearer TOKEN, the subprotocol muxhost.token.BASE64URL, or log in at POST /v1/login"}
	errTooMany         = &Refusal{Status: http.StatusTooManyRequests, Kind: "rate-limited", Message: "too many failed attempts; wait a second and send a valid token"}
)

// Perimeter lets through requests whose Host and Origin are on the lists and whose
// URL carries no token. It wraps the whole handler, paths that need no
// credentials too.
func (g *Gate) Perimeter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		if ref := g.perimeter(r); ref != nil {
			g.log.Debug("request refused", slog.String("why", ref.Message), slog.Int("status", ref.Status))
			Refuse(w, ref)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gate) perimeter(r *http.Request) *Refusal {
	if !g.lists.allowsHost(r, r.Host) {
		return &Refusal{Status: http.StatusForbidden, Kind: "forbidden", Message: fmt.Sprintf("Host %s is not one of this host's names; use the address that it printed, or start it with --allow-host", shown(r.Host))}
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 {
		return &Refusal{Status: http.StatusForbidden, Kind: "forbidden", Message: "more than one Origin header; send one"}
	} else if len(origins) == 1 && !g.lists.allowsOrigin(r, origins[0]) {
		return &Refusal{Status: http.StatusForbidden, Kind: "forbidden", Message: fmt.Sprintf("Origin %s is not allowed; start the host with --allow-origin if pages from there are to be trusted", shown(origins[0]))}
	}
	if tokenInQuery(r.URL.Query(), g.table) {
		return &Refusal{Status: http.StatusBadRequest, Kind: "bad-request", Message: "a token in a URL ends up in logs and histories and is never accepted; send Authorization: Bearer TOKEN"}
	}
	return nil
}

// shown quotes what a peer sent, cut short.
func shown(s string) string { return fmt.Sprintf("%.80q", s) }

// harden sets the headers that every answer has.
func harden(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
}

// Unauthenticated is how a request without valid credentials is answered.
func Unauthenticated() *Refusal { return errUnauthenticated }

// Body returns the refusal as JSON: {"error":{"kind":…,"message":…,"details"?:…}}.
func (e *Refusal) Body() []byte {
	body := map[string]any{"kind": e.Kind, "message": e.Message}
	if e.Details != nil {
		body["details"] = e.Details
	}
	b, err := json.Marshal(map[string]any{"error": body})
	if err != nil {
		b = []byte(`{"error":{"kind":"internal","message":"the refusal could not be written"}}`)
	}
	return append(b, '\n')
}

// Refuse writes ref and its [Refusal.Body].
func Refuse(w http.ResponseWriter, ref *Refusal) {
	w.Header().Set("Content-Type", "application/json")
	switch ref.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int((ref.RetryAfter+time.Second-1)/time.Second))))
	}
	w.WriteHeader(ref.Status)
	_, _ = w.Write(ref.Body())
}

type principalKey struct{}

// From returns whom [Gate.Require] found.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

// Require lets through requests with valid credentials; [From] tells whose.
func (g *Gate) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ref := g.identify(r)
		if ref != nil {
			Refuse(w, ref)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, p)))
	})
}

// failed counts a failed attempt and says how it is answered.
func (g *Gate) failed() *Refusal {
	if g.limit.fail(time.Now()) {
		return errTooMany
	}
	return errUnauthenticated
}
