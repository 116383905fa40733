package auth

import (
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// TokenProtocol prefixes the WebSocket subprotocol that carries a token, for
// browsers, which cannot set headers. The rest is the token in base64url.
const TokenProtocol = "muxhost.token."

// identify says whom the request speaks for.
func (g *Gate) identify(r *http.Request) (Principal, *Refusal) {
	secrets := explicit(r)
	if len(secrets) > 1 {
		return Principal{}, &Refusal{Status: http.StatusBadRequest, Kind: "bad-request", Message: "the request carries different credentials; send one"}
	}
	cookie, hasCookie := g.fromCookie(r)
	if len(secrets) == 0 {
		if !hasCookie || !sameOrigin(r) {
			return Principal{}, g.failed()
		}
		return cookie, nil
	}
	p, ok := g.table.Lookup(secrets[0])
	switch {
	case !ok:
		return Principal{}, g.failed()
	case hasCookie && cookie.TokenID != p.TokenID:
		return Principal{}, &Refusal{Status: http.StatusBadRequest, Kind: "bad-request", Message: "the request carries a cookie of one token and another token; send one"}
	}
	return p, nil
}

// explicit returns the different tokens that the request states. One that is
// malformed is there as something that no token equals.
func explicit(r *http.Request) []string {
	var out []string
	for _, h := range r.Header.Values("Authorization") {
		scheme, secret, ok := strings.Cut(h, " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			secret = ""
		}
		out = append(out, secret)
	}
	for _, p := range Protocols(r) {
		if enc, ok := strings.CutPrefix(p, TokenProtocol); ok {
			b, err := base64.RawURLEncoding.Strict().DecodeString(enc)
			if err != nil {
				b = nil
			}
			out = append(out, string(b))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Protocols returns the WebSocket subprotocols that the request offers.
func Protocols(r *http.Request) []string {
	var out []string
	for _, h := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(h, ",") {
			if p = strings.TrimSpace(p); p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// fromCookie returns whom the login cookie stands for. A cookie that means nothing,
// such as one from before a restart or of a revoked token, counts as none: a page cannot remove it.
func (g *Gate) fromCookie(r *http.Request) (Principal, bool) {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if p, ok := g.logins.find(c.Value, time.Now()); ok && g.table.Holds(p.TokenID) {
			return p, true
		}
	}
	return Principal{}, false
}

// sameOrigin reports whether the browser says that a page of this very origin sent
// the request. A cookie counts only then: cookies know no ports, so every other
// server on this machine is "same site".
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	return r.Header.Get("Origin") == scheme(r)+"://"+r.Host
}

// cookieName contains the port, so that hosts on one machine do not overwrite each
// other's cookies; under TLS the prefix binds it to this name.
func cookieName(r *http.Request) string {
	name := "muxhost"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if r.TLS != nil {
		return "__Host-" + name
	}
	return name
}
