package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// path is the only one that exists.
	path = "/mcp"
	// maxBody bounds one message in bytes: the longest prompt, every character of
	// it escaped, and more.
	maxBody = 2 << 20
	// bodyTimeout is how long a message may take to arrive.
	bodyTimeout = 30 * time.Second
)

// ServeHTTP lets through who has a token of an open door. It is for the server's
// own listener: whoever mounts it elsewhere loses the check of the Host header.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, web := r.Header["Origin"]; web || !slices.Contains(s.hosts, r.Host) {
		s.refuse(w, "of a web page, or of another host name", http.StatusForbidden)
		return
	}
	d, refused := s.bearer(r), http.StatusUnauthorized
	if d != nil {
		refused = d.admit()
	}
	switch refused {
	case 0:
		defer d.done()
		d.serve(w, r)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.refuse(w, "without a token that is good", refused)
	default:
		http.Error(w, fmt.Sprintf("%d requests are under way; wait for one", maxPosts), refused)
	}
}

// serve answers who has the token.
func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != path:
		http.Error(w, "there is nothing here; want "+path, http.StatusNotFound)
	case r.Method == http.MethodPost:
		d.post(w, r)
	case r.Method == http.MethodDelete:
		d.end(w, r)
	default: // nothing is sent but answers, so there is no stream to GET
		w.Header().Set("Allow", "POST, DELETE")
		http.Error(w, "want POST or DELETE", http.StatusMethodNotAllowed)
	}
}

// refuse answers with nothing but the status.
func (s *Server) refuse(w http.ResponseWriter, why string, status int) {
	s.opt.Logger.Debug("a request for an agent's tools was refused", slog.String("why", why))
	http.Error(w, http.StatusText(status), status)
}

// bearer finds the door of a token, nil if there is none. Doors are found by the
// digest of the token, of which a caller cannot choose a single bit, and then
// compared in constant time.
func (s *Server) bearer(r *http.Request) *door {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	digest := sha256.Sum256([]byte(token))
	s.mu.Lock()
	d := s.doors[digest]
	s.mu.Unlock()
	if d == nil || subtle.ConstantTimeCompare(d.digest[:], digest[:]) != 1 {
		return nil
	}
	return d
}

// read takes the whole body, or answers why not. Closing the door ends it.
func (d *door) read(w http.ResponseWriter, r *http.Request) bool {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	stop := context.AfterFunc(d.ctx, func() { _ = rc.SetReadDeadline(time.Now()) })
	defer stop()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		w.Header().Set("Connection", "close")
		status, why := http.StatusBadRequest, "the message did not arrive"
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status, why = http.StatusRequestEntityTooLarge, fmt.Sprintf("the message has more than %d bytes", maxBody)
		}
		http.Error(w, why, status)
		return false
	}
	_ = rc.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}
