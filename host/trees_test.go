package host_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store/mem"
)

// limited starts a host with a tree of three sessions and another session, and
// returns a client that may see the tree of mid only.
func limited(t *testing.T) (r *rig, admin, guest *peer, root, mid, leaf, other frames.Session) {
	t.Helper()
	st := mem.New()
	r = start(t, func(c *host.Config) { c.Store = st })
	admin = r.dial(canary)
	root = r.create(admin, map[string]any{"title": "root"})
	mid = r.create(admin, map[string]any{"title": "mid", "parentSessionId": root.SessionID})
	leaf = r.create(admin, map[string]any{"title": "leaf", "parentSessionId": mid.SessionID})
	other = r.create(admin, map[string]any{"title": "other"})
	if err := r.host.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret := host.NewToken()
	r = start(t, func(c *host.Config) {
		c.Store = st
		c.Tokens = []host.Token{{Secret: secret, Scopes: []rpc.Scope{rpc.ScopeOperate}, Trees: []frames.SessionID{mid.SessionID}}}
	})
	return r, r.dial(canary), r.dial(secret), root, mid, leaf, other
}

// For a client that is limited to a tree, a session outside of it and one that
// does not exist give the same answer, to every method.
func TestInvisibleLooksLikeUnknown(t *testing.T) {
	r, _, guest, root, mid, leaf, other := limited(t)
	text := []frames.ContentBlock{frames.Text("say hi")}
	calls := map[string]func(sid frames.SessionID) any{
		"session.get":       func(s frames.SessionID) any { return map[string]any{"sessionId": s} },
		"session.history":   func(s frames.SessionID) any { return map[string]any{"sessionId": s} },
		"session.prompt":    func(s frames.SessionID) any { return map[string]any{"sessionId": s, "content": text} },
		"session.cancel":    func(s frames.SessionID) any { return map[string]any{"sessionId": s} },
		"session.configure": func(s frames.SessionID) any { return map[string]any{"sessionId": s, "title": "x"} },
		"session.close":     func(s frames.SessionID) any { return map[string]any{"sessionId": s} },
		"session.delete":    func(s frames.SessionID) any { return map[string]any{"sessionId": s} },
		"approval.respond":  func(s frames.SessionID) any { return map[string]any{"sessionId": s, "id": "x", "outcome": "rejected"} },
		"question.respond":  func(s frames.SessionID) any { return map[string]any{"sessionId": s, "id": "x", "cancel": true} },
		"pending.list":      func(s frames.SessionID) any { return map[string]any{"tree": s} },
		"session.create":    func(s frames.SessionID) any { return map[string]any{"cwd": r.cwd, "parentSessionId": s} },
		"session.fork":      func(s frames.SessionID) any { return map[string]any{"sessionId": s} },
		"session.export":    func(s frames.SessionID) any { return map[string]any{"sessionId": s, "format": "jsonl"} },
		"tasks.list":        func(s frames.SessionID) any { return map[string]any{"tree": s} },
		"tasks.get":         func(s frames.SessionID) any { return map[string]any{"sessionId": s, "taskId": "x"} },
		"tasks.wait":        func(s frames.SessionID) any { return map[string]any{"sessionId": s, "taskId": "x"} },
		"tasks.cancel":      func(s frames.SessionID) any { return map[string]any{"sessionId": s, "taskId": "x"} },
		"mux.subscribe":     func(s frames.SessionID) any { return map[string]any{"sessions": []any{map[string]any{"sessionId": s}}} },
	}
	const unknown = frames.SessionID("0190b0c0-0000-7000-8000-000000000000")
	for method, params := range calls {
		want := guest.call(method, params(unknown))
		if kindOf(want) != "session-not-found" {
			t.Errorf("%s of an unknown session: %s", method, kindOf(want))
			continue
		}
		for _, s := range []frames.Session{root, other} {
			got := guest.call(method, params(s.SessionID))
			if got.Error == nil || got.Error.Code != want.Error.Code || string(got.Error.Data) != string(want.Error.Data) ||
				strings.ReplaceAll(got.Error.Message, string(s.SessionID), "ID") != strings.ReplaceAll(want.Error.Message, string(unknown), "ID") {
				t.Errorf("%s of %s: %+v, want as for an unknown one: %+v", method, s.Title, got.Error, want.Error)
			}
		}
	}
	for _, s := range []frames.Session{mid, leaf} {
		if got := kindOf(guest.call("session.get", map[string]any{"sessionId": s.SessionID})); got != "ok" {
			t.Errorf("%s: %s, want ok", s.Title, got)
		}
	}
	if got := kindOf(guest.call("session.create", map[string]any{"cwd": r.cwd})); got != "forbidden" {
		t.Errorf("a root session: %s, want forbidden", got)
	}
}

// Lists, the inbox and what waits show a limited client its trees and nothing
// else.
func TestListsAndInboxStayWithinTheTrees(t *testing.T) {
	_, admin, guest, root, mid, leaf, other := limited(t)
	ids := func(p *peer) (out []frames.SessionID) {
		for _, s := range must[rpc.ListResult](p, "sessions.list", map[string]any{}).Sessions {
			out = append(out, s.SessionID)
		}
		return out
	}
	if got := ids(guest); len(got) != 2 || !slices.Contains(got, mid.SessionID) || !slices.Contains(got, leaf.SessionID) {
		t.Errorf("the guest's list = %v, want mid and leaf", got)
	}
	if got := ids(admin); len(got) != 4 {
		t.Errorf("the admin's list has %d sessions, want 4", len(got))
	}
	must[rpc.SubscribeResult](guest, "mux.subscribe", map[string]any{"host": true})
	guest.frame(frames.HostLiveFrame)
	must[rpc.SubscribeResult](admin, "mux.subscribe", map[string]any{"host": true})
	admin.frame(frames.HostLiveFrame)
	for _, s := range []frames.Session{root, other, leaf} {
		prompt(admin, s.SessionID, `ask {"x":1}`)
		admin.frame(frames.ApprovalRequestedFrame)
	}
	var card frames.ApprovalRequested
	m := guest.until("a frame of leaf", func(m message) bool {
		var p struct{ SessionID frames.SessionID }
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		if p.SessionID != leaf.SessionID && p.SessionID != mid.SessionID {
			t.Errorf("the guest was sent %s of a session it may not see", m.Method)
		}
		return m.Method == string(frames.ApprovalRequestedFrame)
	})
	if err := json.Unmarshal(m.Params, &card); err != nil || card.SessionID != leaf.SessionID {
		t.Errorf("card = %+v, %v", card, err)
	}
	if list := must[rpc.PendingResult](guest, "pending.list", map[string]any{}); len(list.Pending) != 1 || list.Pending[0].Approval.SessionID != leaf.SessionID {
		t.Errorf("the guest's pending = %+v, want leaf's", list)
	}
	if list := must[rpc.PendingResult](admin, "pending.list", map[string]any{}); len(list.Pending) != 3 {
		t.Errorf("the admin's pending = %d, want 3", len(list.Pending))
	}
	grant := map[string]any{"sessionId": leaf.SessionID, "id": card.ID, "outcome": "allowed-always", "grant": map[string]any{"scope": "project"}}
	if got := kindOf(guest.call("approval.respond", grant)); got != "forbidden" {
		t.Errorf("a project grant of a limited client: %s, want forbidden", got)
	}
	grant["grant"] = map[string]any{"scope": "session"}
	if got := kindOf(guest.call("approval.respond", grant)); got != "ok" {
		t.Errorf("a session grant: %s", got)
	}
	if gs := must[rpc.GrantsResult](guest, "grants.list", map[string]any{}).Grants; len(gs) > 1 {
		t.Errorf("grants = %+v", gs)
	}
}

// What a limited client allows for always holds in what it sees, not in the rest of
// the tree; it lists such a grant, and revokes it.
func TestGrantsOfALimitedClientStayInItsTrees(t *testing.T) {
	_, admin, guest, root, mid, leaf, other := limited(t)
	for _, s := range []frames.Session{root, mid, leaf, other} {
		subscribe(admin, s.SessionID)
	}
	// ask has a session ask, and returns its card, or nil if nobody was asked.
	ask := func(sid frames.SessionID) (card *frames.ApprovalRequested) {
		prompt(admin, sid, `ask {"x":1}`)
		admin.until("a card or a decision", func(m message) bool {
			var f frames.ApprovalRequested
			if m.Method == string(frames.ApprovalRequestedFrame) && json.Unmarshal(m.Params, &f) == nil && f.SessionID == sid {
				card = &f
				return true
			}
			e, ok := eventOf(t, m)
			return ok && e.Type == frames.ApprovalDecidedEvent
		})
		return card
	}
	answer := func(p *peer, sid frames.SessionID, card *frames.ApprovalRequested, outcome frames.Outcome) {
		must[rpc.Accepted](p, "approval.respond", map[string]any{"sessionId": sid, "id": card.ID, "outcome": outcome})
		admin.event(frames.TurnEndEvent)
	}
	answer(guest, leaf.SessionID, ask(leaf.SessionID), frames.AllowedAlways)
	for _, s := range []frames.Session{root, other} {
		if card := ask(s.SessionID); card == nil {
			t.Errorf("in %s nobody was asked", s.Title)
		} else {
			answer(admin, s.SessionID, card, frames.Rejected)
		}
	}
	if card := ask(mid.SessionID); card != nil {
		t.Errorf("in mid somebody was asked: %+v; want it allowed by the guest's grant", card)
	}
	gs := must[rpc.GrantsResult](guest, "grants.list", map[string]any{}).Grants
	if len(gs) != 1 || gs[0].RootSessionID != mid.SessionID {
		t.Fatalf("the guest's grants = %+v, want the one, in the tree of mid", gs)
	}
	must[rpc.Empty](guest, "grants.revoke", map[string]any{"id": gs[0].ID})
}

// The requestId of somebody else's create does not lead a limited client to a
// session that it may not see; its own, given again, leads to its own session.
func TestRequestIDsOfLimitedClientsAreTheirOwn(t *testing.T) {
	r, admin, guest, _, mid, _, _ := limited(t)
	theirs := r.create(admin, map[string]any{"requestId": "r1"})
	if again := r.create(admin, map[string]any{"requestId": "r1"}); again.SessionID != theirs.SessionID {
		t.Errorf("the same requestId made another session")
	}
	own := r.create(guest, map[string]any{"requestId": "r1", "parentSessionId": mid.SessionID})
	if own.SessionID == theirs.SessionID || own.ParentSessionID != mid.SessionID {
		t.Errorf("the guest got %+v, want a session of its own below mid", own)
	}
	if again := r.create(guest, map[string]any{"requestId": "r1", "parentSessionId": mid.SessionID}); again.SessionID != own.SessionID {
		t.Errorf("the guest's own requestId made another session")
	}
}
