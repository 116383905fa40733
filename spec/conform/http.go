package conform

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

func httpChecks() []Check {
	return append([]Check{
		{ID: "rpc", Section: "2", Says: "POST /v1/rpc takes one request and gives one response.", run: rpcCall},
		{ID: "rpc-token", Section: "2, 8.6", Says: "POST /v1/rpc answers nothing without a token.", run: rpcNoToken},
		{ID: "rpc-origin", Section: "2", Says: "POST /v1/rpc is refused to a foreign Origin.", run: rpcOrigin},
		{ID: "rpc-get", Section: "2", Says: "GET /v1/rpc is refused.", run: rpcGet},
		{ID: "rpc-params", Section: "2", Says: "POST /v1/rpc is as strict: bad params are -32602.", run: rpcFault(`{"jsonrpc":"2.0","id":1,"method":"host.describe","params":{"x":1}}`, -32602)},
		{ID: "rpc-parse", Section: "2", Says: "POST /v1/rpc is as strict: what is not JSON is -32700.", run: rpcFault(`{`, -32700)},
		{ID: "rpc-batch", Section: "2", Says: "POST /v1/rpc is as strict: a batch is -32600.", run: rpcFault(`[]`, -32600)},
		{ID: "rpc-duplicate", Section: "2", Says: "POST /v1/rpc is as strict: a duplicate key is -32600.", run: rpcFault(`{"jsonrpc":"2.0","id":1,"id":2,"method":"host.describe"}`, -32600)},
		{ID: "rpc-unknown", Section: "2", Says: "POST /v1/rpc has the same methods: another is -32601.", run: rpcFault(`{"jsonrpc":"2.0","id":1,"method":"no.such"}`, -32601)},
		{ID: "rpc-scope", Section: "1, 2", Says: "POST /v1/rpc keeps scopes.", run: rpcScope},
		{ID: "rpc-same", Section: "2", Says: "POST /v1/rpc works on the same sessions.", run: rpcSame},
		{ID: "unknown-path", Section: "2", Says: "Other paths are not there.", run: func(t *T) { t.status(t.request(http.MethodGet, "/v2/ws", "", t.bearer()), 404) }},
	}, streamChecks()...)
}

// post makes a call by POST /v1/rpc.
func (t *T) post(body string, headers ...string) answer {
	if len(headers) == 0 {
		headers = []string{t.bearer()}
	}
	return t.request(http.MethodPost, "/v1/rpc", body, append(headers, "Content-Type: application/json")...)
}

const describeCall = `{"jsonrpc":"2.0","id":"é","method":"host.describe"}`

func rpcCall(t *T) {
	a := t.post(describeCall)
	t.status(a, 200)
	t.must(strings.HasPrefix(a.header.Get("Content-Type"), "application/json"), "Content-Type application/json", a.header.Get("Content-Type"))
	o := a.obj()
	t.must(o.str("id") == "é" && o.str("jsonrpc") == "2.0" && o.str("result.protocolVersion") == "1.0", "a result with the id", a.body)
}

func rpcNoToken(t *T) {
	t.status(t.post(describeCall, "X-None: 1"), 401)
}

func rpcOrigin(t *T) { t.status(t.post(describeCall, t.bearer(), "Origin: http://evil.example"), 403) }

func rpcGet(t *T) { t.status(t.request(http.MethodGet, "/v1/rpc", "", t.bearer()), 405) }

func rpcFault(body string, code int64) func(*T) {
	return func(t *T) {
		a := t.post(body)
		t.must(a.obj().num("error.code") == code, fmt.Sprint("error ", code), fmt.Sprint("HTTP ", a.status, " ", a.body))
	}
}

func rpcScope(t *T) {
	body := text(obj{"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": t.create(echoes)})
	a := t.post(body, "Authorization: Bearer "+t.scoped("observe"))
	t.equal("error.data.kind", a.obj().str("error.data.kind"), "forbidden")
}

func rpcSame(t *T) {
	p := t.dial()
	p.inbox()
	title := unique()
	a := t.post(text(obj{"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": t.create(echoes).with(obj{"title": title})}))
	s := t.made(a.obj().obj("result"))
	t.equal("title", p.frame("host/session-added", s).params.str("session.title"), title)
}

func streamChecks() []Check {
	return []Check{
		{ID: "sse", Section: "2", Says: "GET /v1/events gives the frames of a session: event: TYPE, data: PARAMS.", run: sseFrames},
		{ID: "sse-same", Section: "2", Says: "The data is the params of the frame that a WebSocket gets.", run: sseSame},
		{ID: "sse-ids", Section: "2", Says: "Durable events, and nothing else, have the id SESSION:EPOCH:SEQ.", run: sseIDs},
		{ID: "sse-since", Section: "2", Says: "since is where the stream begins.", run: sseSince},
		{ID: "sse-last-id", Section: "2", Says: "Last-Event-ID beats since.", run: sseLastID},
		{ID: "sse-live", Section: "2", Says: "Events come as they happen.", run: sseLive},
		{ID: "sse-resume", Section: "2, 8.1", Says: "A stream that is cut and resumes by Last-Event-ID has every durable event once.", run: sseResume},
		{ID: "sse-expired", Section: "2", Says: "An expired cursor, such as one of another epoch, is HTTP 410.", run: sseExpired},
		{ID: "sse-token", Section: "2, 8.6", Says: "GET /v1/events answers nothing without a token, nor with one in the URL.", run: sseNoToken},
		{ID: "sse-unknown", Section: "7", Says: "A session that does not exist has no stream.", run: sseUnknown},
	}
}

// fields are those of one message of a stream.
type fields struct {
	event, id string
	data      obj
	hasID     bool
}

// stream opens GET /v1/events.
func (t *T) stream(query string, headers ...string) *bufio.Reader {
	resp := t.open(http.MethodGet, "/v1/events?"+query, "", append([]string{t.bearer(), "Accept: text/event-stream"}, headers...)...)
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		t.fail("HTTP status 200", "%d %s", resp.StatusCode, b)
	}
	t.must(strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"), "Content-Type text/event-stream", resp.Header.Get("Content-Type"))
	return bufio.NewReader(resp.Body)
}

// message reads the next message of a stream; comments are passed over.
func (t *T) message(r *bufio.Reader) fields {
	var f fields
	var data strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.fail("a message of the stream", "%v", err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" && (f.event != "" || data.Len() > 0) {
			t.must(decode([]byte(data.String()), &f.data) == nil, "data that is a JSON object", clip(data.String()))
			return f
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			f.event = value
		case "data":
			data.WriteString(value)
		case "id":
			f.id, f.hasID = value, true
		}
	}
}

// until reads a stream up to a message for which ok holds.
func (t *T) until(r *bufio.Reader, ok func(fields) bool) []fields {
	var out []fields
	for {
		f := t.message(r)
		out = append(out, f)
		if ok(f) {
			return out
		}
	}
}

func isLive(f fields) bool { return f.event == "session/live" }

func sseFrames(t *T) {
	s, _ := t.long(t.dial(), 1)
	all := t.until(t.stream("session="+s.id+"&since=0"), isLive)
	t.must(all[0].event == "session/subscribed" && all[0].data.str("sessionId") == s.id, "session/subscribed first", text(all[0].data))
	t.must(len(all) > 3 && all[1].event == "session/event", "events, then session/live", all[1].event)
}

func sseSame(t *T) {
	s, p, _ := t.echoed("hi é")
	var sse, ws []obj
	for _, f := range t.until(t.stream("session="+s.id+"&since=0"), isLive) {
		if f.event == "session/event" {
			sse = append(sse, f.data)
		}
	}
	q, _ := t.replay(s)
	for _, m := range q.since(0) {
		if m.method == "session/event" {
			ws = append(ws, m.params)
		}
	}
	t.equal("data", sse, ws)
	_ = p
}

func sseIDs(t *T) {
	s, _ := t.long(t.dial(), 1)
	for _, f := range t.until(t.stream("session="+s.id+"&since=0"), isLive) {
		if f.event == "session/event" && f.data.has("event.seq") {
			t.equal("id", f.id, fmt.Sprintf("%s:%s:%d", s.id, s.epoch, f.data.num("event.seq")))
		} else {
			t.must(!f.hasID, "no id on anything but durable events", f.event+" "+f.id)
		}
	}
}

// streamed returns the seqs of the durable events in messages.
func streamed(all []fields) []int64 {
	out := []int64{}
	for _, f := range all {
		if f.data.has("event.seq") {
			out = append(out, f.data.num("event.seq"))
		}
	}
	return out
}

func sseSince(t *T) {
	s, head := t.long(t.dial(), 1)
	t.equal("seqs", streamed(t.until(t.stream("session="+s.id+"&since=3"), isLive)), upTo(4, head))
}

func sseLastID(t *T) {
	s, head := t.long(t.dial(), 1)
	r := t.stream("session="+s.id+"&since=0", fmt.Sprintf("Last-Event-ID: %s:%s:%d", s.id, s.epoch, head-1))
	t.equal("seqs", streamed(t.until(r, isLive)), upTo(head, head))
}

func sseLive(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	r := t.stream("session=" + s.id)
	t.until(r, isLive)
	p.prompt(s, "hi")
	all := t.until(r, func(f fields) bool { return f.data.str("event.type") == "turn/end" })
	t.must(slices.ContainsFunc(all, func(f fields) bool { return f.data.str("event.type") == "assistant/delta" && !f.hasID }), "deltas, without id", len(all))
}

func sseResume(t *T) {
	p := t.dial()
	s, head := t.long(p, 2)
	var got []int64
	last := ""
	for int64(len(got)) < head {
		var headers []string
		if last != "" {
			headers = append(headers, "Last-Event-ID: "+last)
		}
		r := t.stream("session="+s.id+"&since=0", headers...)
		all := t.until(r, func(f fields) bool { return f.data.has("event.seq") })
		got = append(got, streamed(all)...)
		last = all[len(all)-1].id
	}
	t.equal("seqs over all streams", got, upTo(1, head))
}

func sseExpired(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	a := t.request(http.MethodGet, "/v1/events?session="+s.id, "", t.bearer(), "Last-Event-ID: "+s.id+":another-epoch:1")
	t.status(a, 410)
}

func sseNoToken(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	t.status(t.request(http.MethodGet, "/v1/events?session="+s.id, ""), 401)
	t.status(t.request(http.MethodGet, "/v1/events?session="+s.id+"&token="+t.r.opt.Token, ""), 400, 401)
}

func sseUnknown(t *T) {
	a := t.request(http.MethodGet, "/v1/events?session="+nobodyID, "", t.bearer())
	t.must(a.status >= 400 && a.status < 500, "an HTTP status from 400 to 499", fmt.Sprint("HTTP ", a.status))
}
