package host_test

import (
	"slices"
	"testing"

	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
)

// Over the wire, every method of the table runs for the scopes that include its own
// and for no other, over a socket and by POST.
func TestEveryMethodKeepsToItsScope(t *testing.T) {
	order := []rpc.Scope{rpc.ScopeObserve, rpc.ScopeAnswer, rpc.ScopeOperate, rpc.ScopeAdmin}
	secrets := map[rpc.Scope]string{}
	edit := func(c *host.Config) {
		for _, scope := range order {
			secrets[scope] = host.NewToken()
			c.Tokens = append(c.Tokens, host.Token{Secret: secrets[scope], ID: string(scope), Scopes: []rpc.Scope{scope}})
		}
	}
	play(t, edit, func(t *testing.T, s *scene) {
		for granted, scope := range order {
			w := s.dialAs(secrets[scope])
			for _, m := range rpc.Methods() {
				allowed := granted >= slices.Index(order, m.Scope)
				// Params that no method takes: who may call it is told so, or served.
				if got := s.kind(w, m.Name, map[string]any{"noSuchParam": 1}); (got == "forbidden") == allowed || allowed && got != "-32602" {
					t.Errorf("%s with the scope %s: %s, want allowed %v", m.Name, scope, got, allowed)
				}
			}
			s.leave(w)
		}
		for granted, scope := range order {
			for _, m := range []string{"session.get", "approval.respond", "session.create", "tokens.list"} {
				i := slices.IndexFunc(rpc.Methods(), func(x rpc.MethodInfo) bool { return x.Name == m })
				allowed := granted >= slices.Index(order, rpc.Methods()[i].Scope)
				if got := kindOf(s.post(callOf(m, `{"noSuchParam":1}`), as(secrets[scope])).message); (got == "forbidden") == allowed {
					t.Errorf("%s by POST with the scope %s: %s, want allowed %v", m, scope, got, allowed)
				}
			}
		}
	})
}
