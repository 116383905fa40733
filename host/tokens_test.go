package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/mux/muxtest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// mint makes a token over a client.
func (s *scene) mint(w *hosttest.Watch, scope rpc.Scope, more map[string]any) rpc.TokenCreateResult {
	s.t.Helper()
	params := map[string]any{"label": "my phone", "scope": scope}
	maps.Copy(params, more)
	return ask[rpc.TokenCreateResult](s, w, "tokens.create", params)
}

// dialAs opens a client with a token.
func (s *scene) dialAs(token string) *hosttest.Watch {
	s.t.Helper()
	ws, _, err := muxtest.Dial(s.t.Context(), s.host.Handler(), bearerOf(token))
	if err != nil {
		s.t.Fatalf("dial: %v", err)
	}
	w := hosttest.NewWatch(ws)
	s.open = append(s.open, w)
	return w
}

func bearerOf(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// opens reports whether a token opens a socket.
func (s *scene) opens(token string) bool {
	s.t.Helper()
	ws, _, err := muxtest.Dial(s.t.Context(), s.host.Handler(), bearerOf(token))
	if err == nil {
		_ = ws.CloseNow()
	}
	return err == nil
}

// kind makes a call and returns the kind of its error.
func (s *scene) kind(w *hosttest.Watch, method string, params any) string {
	s.t.Helper()
	r, err := w.Call(s.t.Context(), method, params)
	if err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
	return r.Kind()
}

// A token that was made connects with its label and scope, its secret is stored and
// listed nowhere, and it holds after a restart.
func TestMadeTokensConnectAndSurviveARestart(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		admin := s.dial()
		made := s.mint(admin, rpc.ScopeAnswer, nil)
		if made.Token.MadeBy != "main" || made.Token.ID == "" || made.Secret == "" || len(made.Token.Scopes) != 2 {
			t.Errorf("made %+v", made.Token)
		}
		rows, err := s.store.Scan(t.Context(), store.TableToken, "", "", 0)
		if err != nil || len(rows) != 1 || strings.Contains(string(rows[0].Value), made.Secret) {
			t.Errorf("stored %q, %v; want one row without the secret", rows, err)
		}
		list := ask[rpc.TokensResult](s, admin, "tokens.list", map[string]any{})
		if b, _ := json.Marshal(list); len(list.Tokens) != 2 || list.Tokens[0].ID != "main" || strings.Contains(string(b), made.Secret) {
			t.Errorf("tokens.list = %s", b)
		}
		s.stop()
		s.start()
		phone := s.dialAs(made.Secret)
		you := ask[rpc.DescribeResult](s, phone, "host.describe", map[string]any{}).You
		if you.Label != "my phone" || len(you.Scopes) != 2 || you.Scopes[1] != rpc.ScopeAnswer {
			t.Errorf("you = %+v, want my phone, which answers", you)
		}
		clients := ask[rpc.ClientsResult](s, s.dial(), "clients.list", map[string]any{}).Clients
		i := slices.IndexFunc(clients, func(c rpc.ConnectedClient) bool { return c.ClientID == you.ClientID })
		if len(clients) != 2 || i < 0 || clients[i].TokenID != made.Token.ID || clients[i].Transport != "websocket" || clients[i].ConnectedAt.IsZero() {
			t.Errorf("clients.list = %+v, want the phone in it", clients)
		}
	})
}

// A maker that is limited to trees knows of its own token and those it made, and
// revokes no others; unknown and hidden ones give the same error.
func TestLimitedMakersReachTheirOwnTokensOnly(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		admin := s.dial()
		root := s.create(admin)
		tree := map[string]any{"trees": []any{root}}
		mine, theirs := s.mint(admin, rpc.ScopeAdmin, tree), s.mint(admin, rpc.ScopeAdmin, tree)
		maker, stranger := s.dialAs(mine.Secret), s.dialAs(theirs.Secret)
		made := s.mint(maker, rpc.ScopeAdmin, tree)
		grand := s.mint(s.dialAs(made.Secret), rpc.ScopeObserve, tree)
		var ids []string
		for _, x := range ask[rpc.TokensResult](s, maker, "tokens.list", map[string]any{}).Tokens {
			ids = append(ids, x.ID)
		}
		if want := []string{mine.Token.ID, made.Token.ID, grand.Token.ID}; !slices.Equal(ids, want) {
			t.Errorf("the maker lists %v, want %v", ids, want)
		}
		for _, x := range ask[rpc.ClientsResult](s, maker, "clients.list", map[string]any{}).Clients {
			if !slices.Contains(ids, x.TokenID) {
				t.Errorf("the maker sees the client %+v of a token it does not know of", x)
			}
		}
		errorOf := func(id string) string {
			r, err := maker.Call(t.Context(), "tokens.revoke", map[string]any{"id": id})
			if err != nil || r.Error == nil {
				t.Fatalf("revoke %s: %+v, %v", id, r, err)
			}
			return strings.ReplaceAll(fmt.Sprintf("%+v", *r.Error), id, "ID")
		}
		if a, b := errorOf(theirs.Token.ID), errorOf("none"); a != b {
			t.Errorf("another's token: %s; an unknown one: %s; want the same", a, b)
		}
		if got := s.kind(admin, "tokens.revoke", map[string]any{"id": "main"}); got != "forbidden" {
			t.Errorf("a token of the configuration: %s, want forbidden", got)
		}
		ask[rpc.Empty](s, maker, "tokens.revoke", map[string]any{"id": made.Token.ID})
		if s.opens(made.Secret) || s.opens(grand.Secret) || !s.opens(mine.Secret) {
			t.Error("a revoked token takes those it made with it, and no others")
		}
		synctest.Wait()
		if stranger.CloseCode() != 0 {
			t.Errorf("a client of another token was closed with %d", stranger.CloseCode())
		}
	})
}

// Revoking ends every socket and stream of the token and of those it made with 4001
// within a second, logins too; turns under way go on; the answer comes first where a
// token revokes itself, and all of it holds after a restart.
func TestRevokingCutsOffEverythingAtOnce(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		heard := gate(s)
		admin := s.dial()
		sid := s.create(admin)
		s.watch(admin, sid, 0)
		top := s.mint(admin, rpc.ScopeAdmin, nil)
		boss := s.dialAs(top.Secret)
		low := s.mint(boss, rpc.ScopeOperate, nil)
		guest := s.dialAs(low.Secret)
		resp := muxtest.Do(t, s.host.Handler(), s.request("GET", "/v1/events?host=1", "", as(low.Secret)))
		ev := muxtest.Events(t, resp.Body)
		cookie := s.login(low.Secret)
		s.prompt(guest, sid, "gate c")
		synctest.Wait()
		start := time.Now()
		ask[rpc.Empty](s, boss, "tokens.revoke", map[string]any{"id": top.Token.ID}) // its own
		ev.Wait()
		if err := rest(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for name, w := range map[string]*hosttest.Watch{"the token": boss, "the one it made": guest} {
			if w.CloseCode() != 4001 {
				t.Errorf("a socket of %s was closed with %d, want 4001", name, w.CloseCode())
			}
		}
		got := ev.Got()
		if last := got[len(got)-1]; last.Type != "mux/closed" || !strings.Contains(last.Data, "4001") || time.Since(start) > time.Second {
			t.Errorf("the stream ended with %+v after %v, want mux/closed with 4001 within a second", last, time.Since(start))
		}
		if got := s.post(callOf("host.describe", "{}"), as(low.Secret)).status; got != http.StatusUnauthorized {
			t.Errorf("a call with the revoked token: %d, want 401", got)
		}
		if got := s.post(callOf("host.describe", "{}"), cookie).status; got != http.StatusUnauthorized {
			t.Errorf("a call with its login: %d, want 401", got)
		}
		card := framesOf[*frames.ApprovalRequested](admin)[0]
		if kind := s.respond(admin, sid, card.ID, frames.AllowedOnce); kind != "ok" {
			t.Errorf("the turn that the revoked client began: %s", kind)
		}
		synctest.Wait()
		if len(heard()) != 1 {
			t.Errorf("the turn under way heard %d answers, want 1", len(heard()))
		}
		s.stop()
		s.start()
		if s.opens(top.Secret) || s.opens(low.Secret) {
			t.Error("a revoked token opens a socket after a restart")
		}
	})
}

// login exchanges a token for a cookie and returns what sends it.
func (s *scene) login(token string) func(*http.Request) {
	s.t.Helper()
	resp := muxtest.Do(s.t, s.host.Handler(), s.request("POST", "/v1/login", fmt.Sprintf(`{"token":%q}`, token), nil))
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		s.t.Fatalf("login: %d %v", resp.StatusCode, resp.Cookies())
	}
	c := resp.Cookies()[0]
	return func(r *http.Request) {
		r.Header.Del("Authorization")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
}

// At the moment when a token expires its sockets and streams end with 4001, its
// logins end, it is in no list, and a restart removes it.
func TestTokensEndAtTheirTime(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		admin := s.dial()
		made := s.mint(admin, rpc.ScopeObserve, map[string]any{"forMs": 3_600_000})
		w := s.dialAs(made.Secret)
		resp := muxtest.Do(t, s.host.Handler(), s.request("GET", "/v1/events?host=1", "", as(made.Secret)))
		ev := muxtest.Events(t, resp.Body)
		cookie := s.login(made.Secret)
		if err := rest(t.Context(), time.Until(made.Token.ExpiresAt.Time)-time.Millisecond); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.CloseCode() != 0 || ev.Over() || !s.opens(made.Secret) || s.post(callOf("host.describe", "{}"), cookie).status != 200 {
			t.Error("a millisecond early the token does not hold")
		}
		if err := rest(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := rest(t.Context(), time.Millisecond); err != nil { // for the stream's last bytes
			t.Fatal(err)
		}
		synctest.Wait()
		if w.CloseCode() != 4001 || !ev.Over() {
			t.Errorf("at its time: closed with %d, the stream is over: %v", w.CloseCode(), ev.Over())
		}
		if s.opens(made.Secret) || s.post(callOf("host.describe", "{}"), cookie).status != 401 {
			t.Error("an expired token, or its login, is let in")
		}
		if list := ask[rpc.TokensResult](s, admin, "tokens.list", map[string]any{}).Tokens; len(list) != 1 {
			t.Errorf("tokens.list = %+v, want the configured one", list)
		}
		s.stop()
		s.start()
		if rows, err := s.store.Scan(t.Context(), store.TableToken, "", "", 0); err != nil || len(rows) != 0 {
			t.Errorf("stored after a restart: %q, %v", rows, err)
		}
	})
}

// A configuration that grants a maker less takes it from what it made, and one that
// grants it nothing ends what it made.
func TestARestartConfinesTokensToTheirMakers(t *testing.T) {
	maker := host.NewToken()
	configured := []host.Token{{Secret: maker, ID: "maker", Scopes: []rpc.Scope{rpc.ScopeAdmin}}}
	play(t, func(c *host.Config) { c.Tokens = configured }, func(t *testing.T, s *scene) {
		made := s.mint(s.dialAs(maker), rpc.ScopeAdmin, nil)
		sid := s.create(s.dial())
		s.stop()
		configured = []host.Token{{Secret: maker, ID: "maker", Scopes: []rpc.Scope{rpc.ScopeAnswer}, Trees: []frames.SessionID{}}}
		s.start()
		w := s.dialAs(made.Secret)
		you := ask[rpc.DescribeResult](s, w, "host.describe", map[string]any{}).You
		if got := s.kind(w, "session.get", map[string]any{"sessionId": sid}); len(you.Scopes) != 2 || got != "session-not-found" {
			t.Errorf("confined to answer and no trees it has %v and gets a session: %s", you.Scopes, got)
		}
		for _, x := range ask[rpc.TokensResult](s, s.dial(), "tokens.list", map[string]any{}).Tokens {
			if x.ID == made.Token.ID && x.Trees == nil {
				t.Errorf("%+v is listed as not limited", x)
			}
		}
		s.stop()
		configured = nil
		s.start()
		if s.opens(made.Secret) {
			t.Error("a token holds without the one that made it")
		}
	})
}

// stuck is a store whose writes of rows fail while it is broken, and whose writes
// of tokens wait for hold, if that is there.
type stuck struct {
	store.Store
	broken bool
	hold   chan struct{}
}

func (s *stuck) Put(ctx context.Context, rows ...store.Row) error {
	if last := rows[len(rows)-1]; s.hold != nil && last.Table == store.TableToken && last.Value != nil {
		<-s.hold
	}
	if s.broken {
		return fmt.Errorf("no luck: %w", store.ErrUnknown)
	}
	return s.Store.Put(ctx, rows...)
}

// If it cannot be stored, a token is not made; one that is revoked is shut out all
// the same, says so, and can be revoked again.
func TestTokensFailClosedWithTheStore(t *testing.T) {
	st := &stuck{}
	play(t, func(c *host.Config) { st.Store = c.Store; c.Store = st }, func(t *testing.T, s *scene) {
		admin := s.dial()
		made := s.mint(admin, rpc.ScopeObserve, nil)
		w := s.dialAs(made.Secret)
		st.broken = true
		if got := s.kind(admin, "tokens.create", map[string]any{"label": "x", "scope": "observe"}); got != "storage-failed" {
			t.Errorf("making one: %s, want storage-failed", got)
		}
		if got := s.kind(admin, "tokens.revoke", map[string]any{"id": made.Token.ID}); got != "storage-failed" {
			t.Errorf("revoking one: %s, want storage-failed", got)
		}
		synctest.Wait()
		if w.CloseCode() != 4001 || s.opens(made.Secret) {
			t.Errorf("a token whose end is not stored: closed with %d, opens %v", w.CloseCode(), s.opens(made.Secret))
		}
		st.broken = false
		if n := len(ask[rpc.TokensResult](s, admin, "tokens.list", map[string]any{}).Tokens); n != 2 {
			t.Errorf("%d tokens are listed, want the configured one and the one to be revoked again", n)
		}
		ask[rpc.Empty](s, admin, "tokens.revoke", map[string]any{"id": made.Token.ID})
		s.stop()
		s.start()
		if s.opens(made.Secret) {
			t.Error("the revoked token holds after a restart")
		}
	})
}

// A token that is being stored while the one that makes it is revoked never holds,
// and nothing of it is left.
func TestATokenDiesWithItsMakerWhileItIsStored(t *testing.T) {
	st := &stuck{}
	play(t, func(c *host.Config) { st.Store = c.Store; c.Store = st }, func(t *testing.T, s *scene) {
		admin := s.dial()
		parent := s.mint(admin, rpc.ScopeAdmin, nil)
		st.hold = make(chan struct{})
		answer := make(chan posted, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			answer <- s.post(callOf("tokens.create", `{"label":"x","scope":"observe"}`), as(parent.Secret))
		})
		synctest.Wait()
		ask[rpc.Empty](s, admin, "tokens.revoke", map[string]any{"id": parent.Token.ID})
		close(st.hold)
		wg.Wait()
		if got := <-answer; got.status != http.StatusOK || kindOf(got.message) != "forbidden" {
			t.Errorf("the call that made it: %d %s, want forbidden", got.status, kindOf(got.message))
		}
		if list := ask[rpc.TokensResult](s, admin, "tokens.list", map[string]any{}).Tokens; len(list) != 1 {
			t.Errorf("tokens.list = %+v, want the configured one", list)
		}
		if rows, err := s.store.Scan(t.Context(), store.TableToken, "", "", 0); err != nil || len(rows) != 0 {
			t.Errorf("stored: %q, %v", rows, err)
		}
	})
}

// However handshakes, logins, streams and calls race with the end of their token,
// none of them is open once it is revoked.
func TestNoHandshakeSurvivesItsToken(t *testing.T) {
	r := start(t, nil)
	admin := r.dial(canary)
	for range 20 {
		made := must[rpc.TokenCreateResult](admin, "tokens.create", map[string]any{"label": "racer", "scope": "operate"})
		var wg sync.WaitGroup
		ended := make(chan error, 12)
		for range 4 {
			wg.Go(func() { ended <- r.untilClosed(made.Secret) })
			wg.Go(func() { ended <- r.untilRefused(made.Secret) })
			wg.Go(func() { ended <- r.untilOver(made.Secret) })
		}
		must[rpc.Empty](admin, "tokens.revoke", map[string]any{"id": made.Token.ID})
		wg.Wait()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		// Who was told 4001 leaves the list a moment later.
		for start := time.Now(); slices.ContainsFunc(must[rpc.ClientsResult](admin, "clients.list", map[string]any{}).Clients, func(x rpc.ConnectedClient) bool { return x.TokenID == made.Token.ID }); {
			if time.Since(start) > 10*time.Second {
				t.Fatal("a client outlived its token")
			}
		}
	}
}

// untilClosed opens a socket and waits until the host ends it.
func (r *rig) untilClosed(token string) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	ws, status, err := r.tryDial(ctx, token)
	if err != nil {
		if status == http.StatusUnauthorized || status == http.StatusTooManyRequests {
			return nil
		}
		return fmt.Errorf("dial: %d %w", status, err)
	}
	defer ws.CloseNow() //nolint:errcheck // it is closed
	for {
		if _, _, err := ws.Read(ctx); err != nil {
			if code := closeCode(err); code != 4001 {
				return fmt.Errorf("closed with %d (%w), want 4001", code, err)
			}
			return nil
		}
	}
}

// untilOver opens a stream of events and waits until the host ends it.
func (r *rig) untilOver(token string) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", r.srv.URL+"/v1/events?host=1", nil)
	if err != nil {
		return err
	}
	req.Header = bearerOf(token)
	resp, err := r.srv.Client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK && !strings.Contains(string(b), `"code":4001`) {
		return fmt.Errorf("the stream ended with %d %q, %w; want mux/closed with 4001", resp.StatusCode, b, err)
	}
	return nil
}

// untilRefused logs in and makes calls with the cookie until they are refused.
func (r *rig) untilRefused(token string) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	cookie, status := r.cookie(ctx, token)
	for status == http.StatusOK {
		status = r.postWith(ctx, cookie)
	}
	if status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
		return fmt.Errorf("ended with %d, want 401", status)
	}
	return ctx.Err()
}

// A thousand tokens made and revoked by many clients at once leave none behind, in
// memory or stored.
func TestManyTokensMadeAndRevokedAtOnce(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		parent := s.mint(s.dial(), rpc.ScopeAdmin, nil)
		makers := make([]*hosttest.Watch, 20)
		for i := range makers {
			makers[i] = s.dialAs(parent.Secret)
		}
		var wg sync.WaitGroup
		for i, w := range makers {
			wg.Go(func() {
				for range 50 {
					r, err := w.Call(t.Context(), "tokens.create", map[string]any{"label": "x", "scope": "admin"})
					if err != nil {
						return // its own token was revoked
					}
					var made rpc.TokenCreateResult
					if r.Kind() == "forbidden" || r.Kind() == "rate-limited" {
						continue
					}
					if err := json.Unmarshal(r.Result, &made); err != nil || r.Error != nil {
						t.Errorf("create: %+v, %v", r, err)
					}
					if i%2 == 0 {
						if _, err := w.Call(t.Context(), "tokens.revoke", map[string]any{"id": made.Token.ID}); err != nil && !errors.Is(err, context.Canceled) {
							return
						}
					}
				}
			})
		}
		wg.Wait()
		admin := s.dial()
		ask[rpc.Empty](s, admin, "tokens.revoke", map[string]any{"id": parent.Token.ID})
		if list := ask[rpc.TokensResult](s, admin, "tokens.list", map[string]any{}).Tokens; len(list) != 1 {
			t.Errorf("%d tokens are left, want the configured one", len(list))
		}
		if rows, err := s.store.Scan(t.Context(), store.TableToken, "", "", 0); err != nil || len(rows) != 0 {
			t.Errorf("%d rows are left, %v", len(rows), err)
		}
	})
}

// A token of the configuration whose secret was replaced, because it had become
// known, takes those that were made with it along, and those that they made.
func TestTokensEndWithTheirMakersSecret(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		made := s.mint(s.dial(), rpc.ScopeAdmin, nil)
		grand := s.mint(s.dialAs(made.Secret), rpc.ScopeObserve, nil)
		for _, c := range []struct {
			token string
			holds bool
		}{{host.NewToken(), false}, {canary, true}} {
			s.stop()
			s.edit = func(cfg *host.Config) { cfg.Token = c.token }
			s.start()
			if s.opens(made.Secret) != c.holds || s.opens(grand.Secret) != c.holds {
				t.Errorf("with the secret %.8s…: what was made with %.8s… opens: %v, and what that made: %v; want %v", c.token, canary, s.opens(made.Secret), s.opens(grand.Secret), c.holds)
			}
		}
	})
}

// Tokens hold after a restart in whatever order the clock says they were made: it
// may have been set back meanwhile.
func TestTokensHoldThoughTheClockWasSetBack(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		secrets := map[string]string{}
		w := s.dial()
		for range 4 {
			made := s.mint(w, rpc.ScopeAdmin, nil)
			secrets[made.Token.ID], w = made.Secret, s.dialAs(made.Secret)
		}
		s.stop()
		rows, err := s.store.Scan(t.Context(), store.TableToken, "", "", 0)
		if err != nil || len(rows) != 4 {
			t.Fatalf("stored %d tokens, %v", len(rows), err)
		}
		at := time.Now()
		for i, row := range rows { // ids sort by the time they were made
			var m map[string]any
			if err := json.Unmarshal(row.Value, &m); err != nil {
				t.Fatal(err)
			}
			m["createdAt"] = at.Add(-time.Duration(i) * time.Second)
			if rows[i].Value, err = json.Marshal(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.store.Put(t.Context(), rows...); err != nil {
			t.Fatal(err)
		}
		s.start()
		for id, secret := range secrets {
			if !s.opens(secret) {
				t.Errorf("token %s does not open a socket", id)
			}
		}
	})
}
