package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// lists are the exact hosts and origins that requests may name, beside those of
// the listener that a request came in on.
type lists struct {
	hosts   map[string]bool
	origins map[string]bool
}

// newLists checks the configured names. A host is "name", "name:port" or
// "[v6]:port"; an origin is "scheme://host" or "scheme://host:port", both exactly
// as browsers send them.
func newLists(hosts, origins []string) (lists, error) {
	l := lists{hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range hosts {
		if !canonicalHost(h) {
			return lists{}, fmt.Errorf("auth: allowed host %q: want name or name:port as a browser sends it: lower case, no scheme, no path, no trailing dot, no user", h)
		}
		l.hosts[h] = true
	}
	for _, o := range origins {
		if !canonicalOrigin(o) {
			return lists{}, fmt.Errorf("auth: allowed origin %q: want scheme://name or scheme://name:port as a browser sends it: lower case, no path, no default port, never null", o)
		}
		l.origins[o] = true
	}
	return l, nil
}

// canonicalHost reports whether s is a host as browsers write it.
func canonicalHost(s string) bool {
	if s == "" || len(s) > 260 {
		return false
	}
	name := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		port, err := strconv.ParseUint(s[i+1:], 10, 16)
		if err != nil || port == 0 || strconv.FormatUint(port, 10) != s[i+1:] {
			return false
		}
		name = s[:i]
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return ok && err == nil && a.Is6() && a.Zone() == "" && a.String() == inner
	}
	return canonicalName(name)
}

// canonicalName reports whether s is a DNS name or an IPv4 address in lower case.
func canonicalName(s string) bool {
	if s == "" || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_') {
			return false
		}
	}
	return true
}

// canonicalOrigin reports whether s is an origin as browsers serialise it.
func canonicalOrigin(s string) bool {
	scheme, host, ok := strings.Cut(s, "://")
	if !ok || scheme == "" || !canonicalName(scheme) || strings.ContainsAny(scheme, "._") || !canonicalHost(host) {
		return false
	}
	return !(scheme == "http" && strings.HasSuffix(host, ":80")) && !(scheme == "https" && strings.HasSuffix(host, ":443"))
}

// allowsHost reports whether a request may name host.
func (l lists) allowsHost(r *http.Request, host string) bool {
	return canonicalHost(host) && (l.hosts[host] || ownHost(r, host))
}

// allowsOrigin reports whether a page of origin may talk to this host: a page that
// an allowed host of this listener served, or a configured origin.
func (l lists) allowsOrigin(r *http.Request, origin string) bool {
	if !canonicalOrigin(origin) {
		return false
	}
	if l.origins[origin] {
		return true
	}
	host, ok := strings.CutPrefix(origin, scheme(r)+"://")
	return ok && l.allowsHost(r, host)
}

// ownHost reports whether host names the address that the request came in on.
func ownHost(r *http.Request, host string) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := addr.AddrPort().Addr().Unmap().WithZone("")
	names := []string{ip.String()}
	if ip.Is6() {
		names[0] = "[" + names[0] + "]"
	}
	if ip.IsLoopback() {
		names = append(names, "127.0.0.1", "[::1]", "localhost")
	}
	for _, n := range names {
		if host == withPort(n, addr.Port, scheme(r)) {
			return true
		}
	}
	return false
}

// withPort appends the port as a browser does: not if it is the scheme's default.
func withPort(name string, port int, scheme string) string {
	if scheme == "http" && port == 80 || scheme == "https" && port == 443 {
		return name
	}
	return name + ":" + strconv.Itoa(port)
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// tokenInQuery reports whether the query names or contains a token.
func tokenInQuery(q url.Values, t *Table) bool {
	for k, vs := range q {
		switch strings.ToLower(k) {
		case "token", "access_token", "auth", "authorization", "bearer", "api_key", "apikey", "key", "secret":
			return true
		}
		for _, v := range vs {
			if _, ok := t.Lookup(v); ok {
				return true
			}
		}
	}
	return false
}
