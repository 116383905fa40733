package conform_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
)

// brokenOrders mix up what comes when.
var brokenOrders = []broken{
	{
		"answers a subscription after its first frame",
		[]string{"subscribe"},
		"subscribe/response-first", "before the response",
		&middle{down: func(l *link, m message) [][]byte {
			if m.call != nil && m.call.method == "mux.subscribe" && m.fault() == nil && m.call.params["host"] == nil {
				l.held = m.raw
				return nil
			}
			if held := l.held; held != nil && m.method == "session/subscribed" {
				l.held = nil
				return [][]byte{m.raw, held}
			}
			return [][]byte{m.raw}
		}},
	},
	{
		"does not announce a tree's sessions",
		[]string{"subscribe"},
		"subscribe/tree-added", "host/session-added",
		&middle{
			up: onCall("mux.subscribe", func(l *link, m message) []byte {
				if m.params["host"] != nil {
					l.mu.Lock()
					l.count = 1
					l.mu.Unlock()
				}
				return m.raw
			}),
			down: func(l *link, m message) [][]byte {
				l.mu.Lock()
				defer l.mu.Unlock()
				if m.method == "host/session-added" && l.count == 0 {
					return nil
				}
				return [][]byte{m.raw}
			},
		},
	},
	{
		"forgets request ids",
		[]string{"sessions"},
		"sessions/request-id", "sessionId",
		&middle{up: onCall("session.create", func(_ *link, m message) []byte {
			if m.params["requestId"] == nil {
				return m.raw
			}
			m.params["requestId"] = rand.Text()
			return m.encode()
		})},
	},
	{
		"says that there is no more history",
		[]string{"sessions"},
		"sessions/history-after", "more",
		&middle{down: onResult("session.history", func(_ *link, m message) []byte {
			if m.call.params["limit"] == 1000.0 {
				return m.raw
			}
			m.result()["more"] = false
			return m.encode()
		})},
	},
	{
		"lists the newest request first",
		[]string{"pending"},
		"pending/oldest", "order",
		&middle{down: onResult("pending.list", func(_ *link, m message) []byte {
			if all, ok := m.result()["pending"].([]any); ok {
				slices.Reverse(all)
			}
			return m.encode()
		})},
	},
	{
		"says that prompts which conflict are accepted",
		[]string{"prompts"},
		"prompts/conflict-content", "request-id-conflict",
		&middle{down: onFault(func(_ *link, m message) []byte {
			if kind, _ := m.kind(); kind == "request-id-conflict" {
				return answer(m.id, map[string]any{"accepted": true})
			}
			return m.raw
		})},
	},
	{
		"cancels whatever runs",
		[]string{"cancel"},
		"cancel/unknown", "cancelled",
		&middle{up: onCall("session.cancel", func(_ *link, m message) []byte {
			delete(m.params, "turnId")
			return m.encode()
		})},
	},
}

// brokenGates let through what must wait, or take what comes too late.
var brokenGates = []broken{
	{
		"accepts second answers",
		[]string{"approvals"},
		"approvals/race", "one winner",
		&middle{down: onFault(func(_ *link, m message) []byte {
			kind, details := m.kind()
			if kind == "approval-not-pending" && details["outcome"] != nil && details["outcome"] != m.call.params["outcome"] {
				return answer(m.id, map[string]any{"accepted": true})
			}
			return m.raw
		})},
	},
	{
		"says that somebody rejected at the deadline",
		[]string{"approvals"},
		"approvals/timeout", "timeout",
		&middle{down: func(_ *link, m message) [][]byte {
			if m.method == "approval/resolved" && m.params["origin"] == "timeout" {
				m.params["origin"] = "reply"
				return [][]byte{m.encode()}
			}
			return [][]byte{m.raw}
		}},
	},
	{
		"does not compare hashes",
		[]string{"approvals"},
		"approvals/hash-wrong", "input-hash-mismatch",
		&middle{up: onCall("approval.respond", func(_ *link, m message) []byte {
			// An input that is cut needs its hash: those keep theirs.
			if h, _ := m.params["inputHash"].(string); h == "" || h != hashOfTwo {
				return m.raw
			}
			delete(m.params, "inputHash")
			return m.encode()
		})},
	},
	{
		"accepts second answers to questions",
		[]string{"questions"},
		"questions/late", "question-not-pending",
		&middle{down: onFault(func(_ *link, m message) []byte {
			kind, details := m.kind()
			if kind == "question-not-pending" && details["outcome"] != nil {
				return answer(m.id, map[string]any{"accepted": true})
			}
			return m.raw
		})},
	},
	{
		"does not revoke grants",
		[]string{"grants"},
		"grants/revoked", "no grant",
		&middle{up: onCall("grants.revoke", func(l *link, m message) []byte {
			if id, _ := m.params["id"].(string); len(id) < 8 {
				return m.raw // there is no such grant
			}
			l.reply(m.id, map[string]any{})
			return nil
		})},
	},
	{
		"lets anybody cancel",
		[]string{"scopes"},
		"scopes/session.cancel", "forbidden",
		&middle{down: onFault(func(_ *link, m message) []byte {
			if kind, _ := m.kind(); kind == "forbidden" && m.call.method == "session.cancel" {
				return answer(m.id, map[string]any{"cancelled": true})
			}
			return m.raw
		})},
	},
}

// hashOfTwo is the inputHash of {"n":2}.
var hashOfTwo = func() string {
	sum := sha256.Sum256([]byte(`{"n":2}`))
	return hex.EncodeToString(sum[:])
}()

// brokenWork do another work than they were told to.
var brokenWork = []broken{
	{
		"does not wait for tasks",
		[]string{"tasks"},
		"tasks/wait-time", "not done",
		&middle{down: onResult("tasks.wait", func(_ *link, m message) []byte {
			m.result()["done"] = true
			return m.encode()
		})},
	},
	{
		"forks from the end whatever it is told",
		[]string{"fork"},
		"fork/created", "forkedFrom",
		&middle{up: onCall("session.fork", func(_ *link, m message) []byte {
			if _, ok := m.params["at"].(float64); ok {
				delete(m.params, "at")
			}
			return m.encode()
		})},
	},
	{
		"exports words for lines",
		[]string{"export"},
		"export/jsonl", "JSON object",
		&middle{up: onCall("session.export", func(_ *link, m message) []byte {
			if m.params["format"] == "jsonl" {
				m.params["format"] = "markdown"
			}
			return m.encode()
		})},
	},
	{
		"does not check digests",
		[]string{"blobs"},
		"blobs/wrong-hash", "an error",
		&middle{up: onCall("blob.write", func(_ *link, m message) []byte {
			data, _ := m.params["data"].(string)
			b, err := base64.StdEncoding.DecodeString(data)
			if err != nil || m.params["sha256"] == nil || m.params["upload"] != nil {
				return m.raw
			}
			sum := sha256.Sum256(b)
			m.params["sha256"] = hex.EncodeToString(sum[:])
			return m.encode()
		})},
	},
}
