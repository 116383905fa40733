package auth_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/host/internal/auth"
)

// made is a token of maker's; its secret is made from its id.
func made(id, maker string) auth.Minted {
	return auth.Minted{ID: id, Digest: auth.Digest(secretOf(id)), Label: id, Scopes: []string{"observe"}, MadeBy: maker, CreatedAt: time.Now()}
}

func secretOf(id string) string { return "secret-of-" + id + "-abcdefghijklmnopqrstuvwxyz" }

// add makes a token that holds.
func add(t *testing.T, tab *auth.Table, m auth.Minted) {
	t.Helper()
	must(t, tab.Reserve(m))
	if !tab.Activate(m.ID) {
		t.Fatalf("token %s does not hold", m.ID)
	}
}

func known(tab *auth.Table, id string) bool {
	p, ok := tab.Lookup(secretOf(id))
	return ok && p.TokenID == id && tab.Holds(id)
}

// A token holds only from Activate on, and never if it or one above it was revoked
// while it was being stored.
func TestReservedTokensDoNotHold(t *testing.T) {
	g, _ := fixture(t)
	tab := g.Tokens()
	add(t, tab, made("a", "t1"))
	must(t, tab.Reserve(made("b", "a")))
	if known(tab, "b") {
		t.Error("a token that is only reserved is let in")
	}
	ids, err := g.Revoke("a")
	if err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("Revoke = %v, %v; want a and what it is making", ids, err)
	}
	if tab.Activate("b") || known(tab, "a") || known(tab, "b") {
		t.Error("a token holds though the one that made it was revoked")
	}
	if err := tab.Reserve(made("c", "a")); !errors.Is(err, auth.ErrUnknownToken) {
		t.Errorf("Reserve by a revoked token: %v, want ErrUnknownToken", err)
	}
}

// Revoking takes everything below a token and nothing beside it; what is configured
// stays; what could not be removed stays listed and can be revoked again.
func TestRevokeTakesWhatATokenMade(t *testing.T) {
	g, _ := fixture(t)
	tab := g.Tokens()
	for _, m := range [][2]string{{"a", "t1"}, {"a1", "a"}, {"a2", "a1"}, {"b", "t1"}, {"b1", "b"}} {
		add(t, tab, made(m[0], m[1]))
	}
	if !tab.Reaches("a", "a2") || !tab.Reaches("t1", "a2") || tab.Reaches("a2", "a") || tab.Reaches("b", "a1") || tab.Reaches("a", "none") || tab.Reaches("", "t1") {
		t.Error("Reaches does not follow who made whom")
	}
	for range 2 {
		if ids, err := g.Revoke("a"); err != nil || !slices.Equal(ids, []string{"a", "a1", "a2"}) {
			t.Errorf("Revoke = %v, %v", ids, err)
		}
		if n := len(tab.List()); n != 7 {
			t.Errorf("%d are listed before they are removed, want 7", n)
		}
	}
	tab.Forget("a", "a1", "a2", "b")
	for id, want := range map[string]bool{"a": false, "a1": false, "a2": false, "b": true, "b1": true} {
		if known(tab, id) != want {
			t.Errorf("token %s holds: %v, want %v", id, !want, want)
		}
	}
	if _, err := g.Revoke("a"); !errors.Is(err, auth.ErrUnknownToken) {
		t.Errorf("a removed token: %v", err)
	}
	if _, err := g.Revoke("t1"); !errors.Is(err, auth.ErrConfigured) {
		t.Errorf("a configured token: %v", err)
	}
}

// There is a bound on the tokens that are made, and room again once some are gone.
func TestTokensAreBounded(t *testing.T) {
	g, _ := fixture(t)
	tab := g.Tokens()
	for i := range auth.MaxMinted {
		add(t, tab, made(fmt.Sprint("n", i), "t1"))
	}
	if err := tab.Reserve(made("x", "t1")); !errors.Is(err, auth.ErrTooManyTokens) {
		t.Errorf("one more: %v, want ErrTooManyTokens", err)
	}
	ids, err := g.Revoke("n7")
	must(t, err)
	tab.Forget(ids...)
	add(t, tab, made("x", "t1"))
}

// A token ends exactly at its time, and so do its logins, which last no longer than
// it does; a login ends with a revocation too.
func TestLoginsEndWithTheirToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, h := fixture(t)
		tab := g.Tokens()
		m := made("short", "t1")
		m.ExpiresAt = time.Now().Add(time.Hour)
		add(t, tab, m)
		add(t, tab, made("long", "t1"))
		with := func(id string) int {
			w := login(h, fmt.Sprintf(`{"token":%q}`, secretOf(id)), nil)
			if w.Code != http.StatusOK {
				return w.Code
			}
			return len(w.Result().Cookies())
		}
		cookies := map[string]*http.Cookie{}
		for id, age := range map[string]int{"short": 3600, "long": 12 * 3600} {
			c := login(h, fmt.Sprintf(`{"token":%q}`, secretOf(id)), nil).Result().Cookies()[0]
			if cookies[id] = c; c.MaxAge != age {
				t.Errorf("the login of %s lasts %d s, want %d", id, c.MaxAge, age)
			}
		}
		let := func(id string) bool {
			r := request("GET", "/x")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.AddCookie(cookies[id])
			return do(h, r).Code == http.StatusOK
		}
		time.Sleep(time.Hour - time.Nanosecond)
		if !let("short") || !let("long") || with("short") != 1 {
			t.Error("a nanosecond early a login does not hold")
		}
		time.Sleep(time.Nanosecond)
		if let("short") || known(tab, "short") || with("short") != http.StatusUnauthorized {
			t.Error("a token or its login outlives its time")
		}
		if ids := tab.Expire(time.Now()); !slices.Equal(ids, []string{"short"}) {
			t.Errorf("Expire = %v", ids)
		}
		_, err := g.Tokens().Revoke("long") // a login made just then is not dropped, and means nothing
		must(t, err)
		if let("long") || with("long") != http.StatusUnauthorized {
			t.Error("a revoked token or its login is let in")
		}
	})
}

// Logins and revocations at once leave no login that is let in.
func TestNoLoginSurvivesARevocation(t *testing.T) {
	g, h := fixture(t)
	for i := range 200 {
		id := fmt.Sprint("r", i)
		add(t, g.Tokens(), made(id, "t1"))
		var wg sync.WaitGroup
		var w *httptest.ResponseRecorder
		wg.Go(func() { w = login(h, fmt.Sprintf(`{"token":%q}`, secretOf(id)), nil) })
		_, err := g.Revoke(id)
		must(t, err)
		wg.Wait()
		for _, c := range w.Result().Cookies() {
			r := request("GET", "/x")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.AddCookie(c)
			if code := do(h, r).Code; code == http.StatusOK {
				t.Fatalf("round %d: a login of a revoked token is let in", i)
			}
		}
		g.Tokens().Forget(id)
	}
}

// Names have budgets of their own, up to a bound; beyond it they share one.
func TestBudgetsAreApartAndBounded(t *testing.T) {
	now := time.Unix(1_000, 0)
	b := auth.Budget{Max: 2, Window: 10 * time.Second}
	b.Spend("a", now)
	b.Spend("a", now.Add(4*time.Second))
	if d := b.Wait("a", now.Add(5*time.Second)); d != 5*time.Second || b.Wait("b", now) != 0 {
		t.Errorf("Wait = %v, want 5 s for a and none for b", d)
	}
	if d := b.Wait("a", now.Add(10*time.Second)); d != 0 {
		t.Errorf("ten seconds after the first: %v", d)
	}
	b.Spend("a", now.Add(10*time.Second)) // the oldest goes
	if d := b.Wait("a", now.Add(11*time.Second)); d != 3*time.Second {
		t.Errorf("after a third: %v, want 3 s", d)
	}
	for i := range 2_000 {
		b.Spend(strings.Repeat("x", 1+i%7)+fmt.Sprint(i), now.Add(11*time.Second))
	}
	if b.Wait("new", now.Add(12*time.Second)) == 0 || b.Wait("new", now.Add(time.Minute)) != 0 {
		t.Error("names beyond the bound do not share a budget")
	}
}
