package host_test

import (
	"maps"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
)

// maker is a client whose token is limited in tree and time, and may make others.
type maker struct {
	admin, w           *hosttest.Watch
	first              rpc.TokenCreateResult // its token, good for an hour
	root, child, other frames.SessionID      // it sees the first two
}

const hourMs = int64(time.Hour / time.Millisecond)

func (s *scene) maker() maker {
	m := maker{admin: s.dial()}
	m.root, m.other = s.create(m.admin), s.create(m.admin)
	m.child = ask[rpc.SessionResult](s, m.admin, "session.create", map[string]any{"cwd": s.dir, "parentSessionId": m.root}).Session.SessionID
	m.first = s.mint(m.admin, rpc.ScopeAdmin, map[string]any{"trees": []any{m.root}, "forMs": hourMs})
	m.w = s.dialAs(m.first.Secret)
	return m
}

// No token exceeds the one that made it, in scope, trees or time; what is refused
// makes none.
func TestTokensNeverExceedTheirMaker(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		m := s.maker()
		admin, root, child, other := m.admin, m.root, m.child, m.other
		for name, c := range map[string]struct {
			w    *hosttest.Watch
			more map[string]any
			want string
		}{
			"no trees":       {m.w, nil, "forbidden"},
			"another tree":   {m.w, map[string]any{"trees": []any{other}}, "session-not-found"},
			"one of them":    {m.w, map[string]any{"trees": []any{root, other}}, "session-not-found"},
			"longer":         {m.w, map[string]any{"trees": []any{root}, "forMs": hourMs + 1}, "forbidden"},
			"its own tree":   {m.w, map[string]any{"trees": []any{root}}, "ok"},
			"below it":       {m.w, map[string]any{"trees": []any{child}, "forMs": hourMs / 2}, "ok"},
			"unknown tree":   {admin, map[string]any{"trees": []any{"none"}}, "session-not-found"},
			"an empty list":  {admin, map[string]any{"trees": []any{}}, "-32602"},
			"no label":       {admin, map[string]any{"label": "\u202e"}, "-32602"},
			"no such scope":  {admin, map[string]any{"scope": "root"}, "-32602"},
			"no time":        {admin, map[string]any{"forMs": 0}, "-32602"},
			"a million ages": {admin, map[string]any{"forMs": int64(1) << 52}, "-32602"},
		} {
			params := map[string]any{"label": "x", "scope": "admin"}
			maps.Copy(params, c.more)
			before := len(ask[rpc.TokensResult](s, admin, "tokens.list", map[string]any{}).Tokens)
			got := s.kind(c.w, "tokens.create", params)
			after := len(ask[rpc.TokensResult](s, admin, "tokens.list", map[string]any{}).Tokens)
			if got != c.want || (after > before) != (got == "ok") {
				t.Errorf("%s: %s with %d more tokens, want %s", name, got, after-before, c.want)
			}
		}
	})
}

// A token that was made by one that was made is good for as long and within the
// trees of its maker: what is born there later too, and nothing once they are deleted.
func TestTokensOfTokensStayWithinTheirTrees(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		m := s.maker()
		admin, first, root, child, other := m.admin, m.first, m.root, m.child, m.other
		second := s.mint(m.w, rpc.ScopeObserve, map[string]any{"trees": []any{child}})
		if !second.Token.ExpiresAt.Equal(first.Token.ExpiresAt.Time) {
			t.Errorf("without a time it ends at %v, want its maker's %v", second.Token.ExpiresAt, first.Token.ExpiresAt)
		}
		guest := s.dialAs(second.Secret)
		for sid, want := range map[frames.SessionID]string{child: "ok", root: "session-not-found", other: "session-not-found"} {
			if got := s.kind(guest, "session.get", map[string]any{"sessionId": sid}); got != want {
				t.Errorf("the second token gets %s: %s, want %s", sid, got, want)
			}
		}
		if got := s.kind(guest, "tokens.create", map[string]any{"label": "x", "scope": "observe", "trees": []any{child}}); got != "forbidden" {
			t.Errorf("a token without admin makes another: %s", got)
		}
		// A session born later in the tree is within it.
		late := ask[rpc.SessionResult](s, admin, "session.create", map[string]any{"cwd": s.dir, "parentSessionId": child}).Session.SessionID
		if got := s.kind(guest, "session.get", map[string]any{"sessionId": late}); got != "ok" {
			t.Errorf("a session born later: %s", got)
		}
		// A token whose tree is deleted stays and sees nothing.
		ask[rpc.Empty](s, admin, "session.delete", map[string]any{"sessionId": child})
		if list := ask[rpc.ListResult](s, guest, "sessions.list", map[string]any{}); len(list.Sessions) != 0 {
			t.Errorf("with its tree deleted it sees %+v", list.Sessions)
		}
		if got := s.kind(guest, "mux.subscribe", from(late, 0, false)); got != "session-not-found" {
			t.Errorf("below a deleted tree: %s, want session-not-found", got)
		}
	})
}
