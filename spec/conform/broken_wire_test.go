package conform_test

import (
	"net/http"
	"slices"
	"strings"

	"github.com/coder/websocket"
)

// brokenTransports break sockets and doors.
var brokenTransports = []broken{
	{
		"closes a binary message with the wrong code",
		[]string{"transport"},
		"transport/binary", "1003",
		&middle{code: func(c websocket.StatusCode) websocket.StatusCode {
			if c == 1003 {
				return 1008
			}
			return c
		}},
	},
	{
		"lets in who has no token",
		[]string{"transport"},
		"transport/auth-none", "101",
		&middle{request: func(m *middle, r *http.Request) {
			if r.URL.Path == "/v1/ws" && r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer "+m.token)
			}
		}},
	},
	{
		"lets in pages of anybody",
		[]string{"transport"},
		"transport/origin-http-evil.example", "403",
		&middle{request: func(_ *middle, r *http.Request) {
			if r.URL.Path == "/v1/ws" {
				r.Header.Del("Origin")
			}
		}},
	},
	{
		"takes any heartbeat",
		[]string{"transport"},
		"transport/heartbeat-14", "400",
		&middle{request: func(_ *middle, r *http.Request) {
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "heartbeat=", "beat=", 1)
		}},
	},
	{
		"forgets the code 4001",
		[]string{"tokens"},
		"tokens/revoke", "4001",
		&middle{code: func(c websocket.StatusCode) websocket.StatusCode {
			if c == 4001 {
				return 1000
			}
			return c
		}},
	},
	{
		"answers POST without a token",
		[]string{"http"},
		"http/rpc-token", "401",
		&middle{request: func(m *middle, r *http.Request) {
			if r.URL.Path == "/v1/rpc" && r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer "+m.token)
			}
		}},
	},
	{
		"gives streams no ids",
		[]string{"http"},
		"http/sse-ids", "id",
		&middle{stream: func(line string) string {
			if strings.HasPrefix(line, "id:") {
				return ""
			}
			return line
		}},
	},
}

// brokenWords misread messages, or answer with the wrong words.
var brokenWords = []broken{
	{
		"mistakes bad envelopes for bad params",
		[]string{"envelope"},
		"envelope/invalid-batch", "-32602",
		&middle{down: onFault(func(_ *link, m message) []byte {
			if m.id == "null" && m.fault()["code"] == -32600.0 {
				m.fault()["code"] = -32602
			}
			return m.encode()
		})},
	},
	{
		"takes the last of duplicate keys",
		[]string{"envelope"},
		"envelope/invalid-duplicate-in-params", "-32600",
		&middle{up: func(_ *link, m message) []byte {
			if m.body == nil || !strings.Contains(string(m.raw), "describe") {
				return m.raw
			}
			return m.encode()
		}},
	},
	{
		"lets unknown params pass",
		[]string{"params"},
		"params/session.create-unknown", "-32602",
		&middle{up: onCall("", func(_ *link, m message) []byte {
			if _, ok := m.params["xUnknown"]; !ok {
				return m.raw
			}
			delete(m.params, "xUnknown")
			return m.encode()
		})},
	},
	{
		"speaks another version",
		[]string{"describe"},
		"describe/host", "1.0",
		&middle{down: onResult("host.describe", func(_ *link, m message) []byte {
			m.result()["protocolVersion"] = "0.9"
			return m.encode()
		})},
	},
	{
		"says nothing in its errors",
		[]string{"errors"},
		"errors/message", "words",
		&middle{down: onFault(func(_ *link, m message) []byte {
			if kind, _ := m.kind(); kind == "session-not-found" {
				m.fault()["message"] = "no"
			}
			return m.encode()
		})},
	},
	{
		"cuts what it does not know",
		[]string{"open"},
		"open/vendor-event", "deep",
		&middle{down: func(_ *link, m message) [][]byte {
			if m.event()["type"] != "conform.example/note" {
				return [][]byte{m.raw}
			}
			delete(m.data(), "deep")
			return [][]byte{m.encode()}
		}},
	},
}

// onCall changes calls of a method, "" for any; others pass.
func onCall(method string, change func(l *link, m message) []byte) func(*link, message) []byte {
	return func(l *link, m message) []byte {
		if m.params == nil || method != "" && m.method != method {
			return m.raw
		}
		return change(l, m)
	}
}

// onResult changes results of a method; the rest passes.
func onResult(method string, change func(l *link, m message) []byte) func(*link, message) [][]byte {
	return func(l *link, m message) [][]byte {
		if m.call == nil || m.call.method != method || m.result() == nil {
			return [][]byte{m.raw}
		}
		return [][]byte{change(l, m)}
	}
}

// onFault changes errors; the rest passes.
func onFault(change func(l *link, m message) []byte) func(*link, message) [][]byte {
	return func(l *link, m message) [][]byte {
		if m.fault() == nil {
			return [][]byte{m.raw}
		}
		return [][]byte{change(l, m)}
	}
}

// brokenPipes lose or repeat what they carry.
var brokenPipes = []broken{
	{
		"repeats an event to who resumes",
		[]string{"reconnect"},
		"reconnect/at-head", "[]",
		&middle{up: onCall("mux.subscribe", func(_ *link, m message) []byte {
			sessions, _ := m.params["sessions"].([]any)
			for _, s := range sessions {
				entry, _ := s.(map[string]any)
				if n, _ := entry["since"].(float64); n > 3 && entry["epoch"] != nil {
					entry["since"] = n - 1
				}
			}
			return m.encode()
		})},
	},
	{
		"forgets the third card of a baseline",
		[]string{"reconnect"},
		"reconnect/cards", "three",
		&middle{up: noteNamed, down: func(l *link, m message) [][]byte {
			if l.inBaseline(m) && m.method == "approval/requested" {
				if l.count++; l.count == 3 {
					return nil
				}
			}
			return [][]byte{m.raw}
		}},
	},
	{
		"loses what is pending",
		[]string{"subscribe", "approvals", "questions", "reconnect"},
		"approvals/replay", "approval/requested",
		&middle{up: noteNamed, down: func(l *link, m message) [][]byte {
			if l.inBaseline(m) && strings.HasSuffix(m.method, "/requested") {
				return nil
			}
			return [][]byte{m.raw}
		}},
	},
	{
		"loses an event of a flood",
		[]string{"slow"},
		"slow/whole", "seq",
		&middle{down: func(_ *link, m message) [][]byte {
			if len(m.raw) > 60_000 && m.event()["seq"] == 50.0 {
				return nil
			}
			return [][]byte{m.raw}
		}},
	},
	{
		"tells the wrong range of a chunk",
		[]string{"events"},
		"events/reasoning", "from =",
		&middle{down: func(_ *link, m message) [][]byte {
			if m.event()["type"] != "reasoning/delta" || m.data()["from"] != 0.0 {
				return [][]byte{m.raw}
			}
			m.data()["from"] = 1
			return [][]byte{m.encode()}
		}},
	},
	{
		"repeats progress",
		[]string{"events"},
		"events/progress", "from =",
		&middle{down: func(_ *link, m message) [][]byte {
			if m.event()["type"] == "tool/progress" {
				return [][]byte{m.raw, m.raw}
			}
			return [][]byte{m.raw}
		}},
	},
}

// noteNamed notes which sessions a client subscribes by name.
func noteNamed(l *link, m message) []byte {
	sessions, _ := m.params["sessions"].([]any)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range sessions {
		entry, _ := s.(map[string]any)
		sid, _ := entry["sessionId"].(string)
		l.named = append(l.named, sid)
	}
	return m.raw
}

// inBaseline reports whether m belongs to the baseline of a session that was
// subscribed by name.
func (l *link) inBaseline(m message) bool {
	sid, _ := m.params["sessionId"].(string)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m.method {
	case "session/subscribed":
		l.opening, l.count = "", 0
		if slices.Contains(l.named, sid) {
			l.opening = sid
		}
	case "session/event", "session/live":
		if sid == l.opening {
			l.opening = ""
		}
	}
	return l.opening != "" && sid == l.opening
}
