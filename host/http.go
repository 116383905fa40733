package host

import (
	"net/http"

	"github.com/muxhost/muxhost/host/internal/auth"
)

// Handler returns the HTTP handler, to be mounted at the root of a server of the
// embedder's own: GET /v1/ws, POST /v1/rpc, GET /v1/events, GET /v1/backup,
// POST /v1/login, GET /healthz; everything else is 404. Sockets and streams need
// HTTP/1.1. A proxy in front changes Host and Origin as browsers see them: name them in
// Config.AllowHosts and Config.AllowOrigins.
func (h *Host) Handler() http.Handler { return h.handler }

// routes builds the one handler: the perimeter is in front of every path, and the
// token is demanded on every path but the one that takes it in its body.
func (h *Host) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/ws", h.serveSocket)
	m.HandleFunc("POST /v1/rpc", h.serveCall)
	m.HandleFunc("GET /v1/events", h.serveEvents)
	m.HandleFunc("GET /v1/backup", h.serveBackup)
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		auth.Refuse(w, &auth.Refusal{Status: http.StatusNotFound, Kind: "not-found", Message: "there is nothing here; clients connect to /v1/ws, or use /v1/rpc and /v1/events"})
	})
	for path, allow := range map[string]string{"/v1/ws": "GET", "/v1/rpc": "POST", "/v1/events": "GET", "HEAD /v1/events": "GET", "/v1/backup": "GET", "HEAD /v1/backup": "GET", "/v1/login": "POST", "/healthz": "GET"} {
		m.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", allow)
			auth.Refuse(w, &auth.Refusal{Status: http.StatusMethodNotAllowed, Kind: "bad-request", Message: "this path wants " + allow})
		})
	}
	front := http.NewServeMux()
	front.HandleFunc("POST /v1/login", h.gate.Login)
	front.Handle("/", h.gate.Require(m))
	return h.gate.Perimeter(front)
}
