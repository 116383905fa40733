package auth

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"
)

const maxLoginBody = 8 << 10 // bytes

// loginBody is the body of POST /v1/login.
type loginBody struct{ Token, Label string }

// Login exchanges a token for a cookie: POST {"token":…,"label"?:…} answers
// {"label":…,"scopes":[…],"expiresAt":…}. It needs the perimeter in front.
func (g *Gate) Login(w http.ResponseWriter, r *http.Request) {
	body, ref := readLogin(r)
	if ref != nil {
		Refuse(w, ref)
		return
	}
	p, ok := g.table.Lookup(body.Token)
	if !ok {
		Refuse(w, g.failed())
		return
	}
	if l := CleanLabel(body.Label); l != "" {
		p.Label = l
	}
	now := time.Now()
	expires := now.Add(loginAge)
	if !p.Expires.IsZero() && p.Expires.Before(expires) {
		expires = p.Expires
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: g.logins.add(p, now, expires), Path: "/", MaxAge: max(1, int(expires.Sub(now)/time.Second)),
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"label": p.Label, "scopes": p.Scopes, "expiresAt": expires.UTC().Truncate(time.Millisecond),
	})
}

// readLogin reads the body. A JSON content type is required, which makes a
// browser ask before another origin's page may send it.
func readLogin(r *http.Request) (loginBody, *Refusal) {
	if r.Header.Get("Content-Type") != "application/json" {
		return loginBody{}, &Refusal{Status: http.StatusUnsupportedMediaType, Kind: "bad-request", Message: `want Content-Type: application/json and a body {"token":"…"}`}
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxLoginBody+1))
	if err != nil || len(b) > maxLoginBody {
		return loginBody{}, &Refusal{Status: http.StatusBadRequest, Kind: "bad-request", Message: `the body could not be read or is over 8 KiB; want {"token":"…","label":"…"}`}
	}
	fields := map[string]string{} // a map matches names exactly, a struct would not
	bad := json.Unmarshal(b, &fields) != nil
	out := loginBody{Token: fields["token"], Label: fields["label"]}
	delete(fields, "token")
	delete(fields, "label")
	if bad || len(fields) > 0 {
		return loginBody{}, &Refusal{Status: http.StatusBadRequest, Kind: "bad-request", Message: `the body is not what was expected; want {"token":"…","label":"…"} and nothing else`}
	}
	return out, nil
}

const maxLabel = 64 // characters

// CleanLabel makes a label fit to be shown to people: printable characters only,
// single spaces, at most 64 characters. What is invisible or reorders text goes.
func CleanLabel(s string) string {
	var out []rune
	for _, c := range s {
		switch {
		case len(out) >= maxLabel:
			return string(out)
		case c == utf8.RuneError:
		case unicode.IsSpace(c):
			if len(out) > 0 && out[len(out)-1] != ' ' {
				out = append(out, ' ')
			}
		case unicode.IsPrint(c) && !unicode.Is(unicode.Cf, c) && !unicode.Is(unicode.Mn, c):
			out = append(out, c)
		}
	}
	if n := len(out); n > 0 && out[n-1] == ' ' {
		out = out[:n-1]
	}
	return string(out)
}
