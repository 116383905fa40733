package host

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/rpc"
)

// serveEvents answers GET /v1/events: the frames of a subscription as Server-Sent
// Events, until the client hangs up; the handler returns meanwhile.
func (h *Host) serveEvents(w http.ResponseWriter, r *http.Request) {
	who, _ := auth.From(r.Context())
	opt, ref := clientOptions(r, who)
	c := newCaller(h, nil, who, opt)
	var req mux.SubscribeRequest
	if ref == nil {
		req, ref = c.eventsRequest(r)
	}
	if ref == nil {
		ref = refuseSeat(h.seats.take(who.TokenID))
	}
	if ref != nil {
		auth.Refuse(w, ref)
		return
	}
	for _, e := range req.Sessions {
		h.publisher.await(r.Context(), e.SessionID, c.exists)
	}
	conn, err := h.hub.AcceptEvents(w, r, mux.EventsOptions{AcceptOptions: opt, Subscribe: req, Refuse: h.refuseEvents})
	if err != nil { // the hub has answered
		h.seats.leave(who.TokenID)
		return
	}
	if !h.seats.serve(func() { h.serveStream(conn, c, who, r.RemoteAddr) }) {
		conn.Close(closeGoingAway, "the host is going down")
		h.seats.leave(who.TokenID)
	}
}

// serveStream waits until nothing of a stream is left.
func (h *Host) serveStream(conn *mux.Conn, c *caller, who auth.Principal, remote string) {
	defer h.seats.leave(who.TokenID)
	log := h.cfg.Logger.With(slog.String("client", string(c.by.ClientID)))
	log.Debug("stream opened", slog.String("label", c.by.Label), slog.String("token", who.TokenID))
	defer h.admit(c.client(overEvents, remote, conn.Close), who)()
	_, err := conn.Read(h.ctx) // the client has nothing to say: this is its end
	<-conn.Done()
	log.Debug("stream ended", slog.Any("err", err))
}

// refuseEvents says why a stream is not opened. A browser's EventSource does not
// come back after any of these, but for its page.
func (h *Host) refuseEvents(err error) (status int, body []byte) {
	ref := refuseSeat(hostClosed)
	if !errors.Is(err, mux.ErrShutdown) {
		h.cfg.Logger.Debug("a stream was refused", slog.Any("err", err))
		ref = eventsRefusal(err)
	}
	return ref.Status, ref.Body()
}

func eventsRefusal(err error) *auth.Refusal {
	if e, ok := errors.AsType[*mux.CursorError](err); ok {
		ref := &auth.Refusal{Status: http.StatusGone, Kind: string(e.Kind), Details: cursorDetails{e.First, e.Head, e.Epoch}}
		ref.Message = fmt.Sprintf("the log holds events %d to %d of epoch %s; drop what you have of this session and open a new stream without Last-Event-ID, with since=0", e.First, e.Head, e.Epoch)
		if e.Kind == mux.CursorAhead {
			ref.Status = http.StatusConflict
		}
		return ref
	}
	if errors.Is(err, mux.ErrNoSocket) {
		return badRequest(http.StatusHTTPVersionNotSupported, "a stream of events needs HTTP/1.1; let the server offer that")
	}
	if e, ok := errors.AsType[*mux.SubscribeError](err); ok && errors.Is(err, mux.ErrNoSession) {
		gone := noSession(e.SessionID)
		return &auth.Refusal{Status: http.StatusNotFound, Kind: string(gone.Kind), Message: gone.Message}
	}
	return &auth.Refusal{Status: http.StatusInternalServerError, Kind: string(rpc.KindStorageFailed), Message: "the log could not be read; the host's log says why"}
}

// eventsRequest reads what a stream shall carry.
func (c *caller) eventsRequest(r *http.Request) (mux.SubscribeRequest, *auth.Refusal) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return mux.SubscribeRequest{}, badRequest(http.StatusBadRequest, "the query cannot be read; want session=ID&since=N")
	}
	p := eventsQuery{q: q}
	req := mux.SubscribeRequest{Host: p.flag("host")}
	since, tree := p.since(), p.flag("tree")
	for _, sid := range q["session"] {
		req.Sessions = append(req.Sessions, mux.SubscribeEntry{SessionID: frames.SessionID(sid), Since: since, Tree: tree})
	}
	req.Delivery = p.delivery()
	p.known()
	if len(req.Sessions) == 0 && !req.Host {
		p.fail("the query asks for nothing; want session=ID, as often as you like, or host=1")
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" && p.ref == nil {
		c.resume(&p, &req, id)
	}
	return req, p.ref
}

// resume lets the cursor that a client brings back beat since, for its session. The
// others begin at since again, and without it at 0: whoever comes back has been away,
// and repeats are known by their ids, while a gap would not be seen. A session that
// was in a tree and is deleted, or is not to be seen, has no more to resume.
func (c *caller) resume(p *eventsQuery, req *mux.SubscribeRequest, id string) {
	sid, epoch, seq, ok := cutEventID(id)
	if !ok {
		p.fail(fmt.Sprintf("Last-Event-ID is %.100q; want SESSION:EPOCH:SEQ, as an event's id said", id))
		return
	}
	at := slices.IndexFunc(req.Sessions, func(e mux.SubscribeEntry) bool { return e.SessionID == sid })
	if at < 0 && p.flag("tree") {
		if c.see(sid) != nil {
			fromStart(req)
			return
		}
		above := c.host.sessions.Ancestors(sid)
		if slices.ContainsFunc(req.Sessions, func(e mux.SubscribeEntry) bool { return slices.Contains(above, e.SessionID) }) {
			req.Sessions = append(req.Sessions, mux.SubscribeEntry{SessionID: sid})
			at = len(req.Sessions) - 1
		}
	}
	if at < 0 {
		p.fail("Last-Event-ID names a session that the query does not ask for; name it in session, or leave the header out")
		return
	}
	req.Sessions[at].Since, req.Sessions[at].Epoch = &seq, epoch
	fromStart(req)
}

// fromStart has sessions without a cursor begin at 0.
func fromStart(req *mux.SubscribeRequest) {
	for i := range req.Sessions {
		if req.Sessions[i].Since == nil {
			req.Sessions[i].Since = new(frames.Seq)
		}
	}
}

// cutEventID takes apart the id of a durable event.
func cutEventID(id string) (sid frames.SessionID, epoch frames.Epoch, seq frames.Seq, ok bool) {
	first, last := strings.IndexByte(id, ':'), strings.LastIndexByte(id, ':')
	if first < 1 || last <= first {
		return "", "", 0, false
	}
	n, ok := number(id[last+1:])
	return frames.SessionID(id[:first]), frames.Epoch(id[first+1 : last]), n, ok
}

// number reads a seq.
func number(s string) (frames.Seq, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return frames.Seq(n), err == nil && n < frames.MaxInteger && strconv.FormatUint(n, 10) == s
}

// eventsQuery reads the query of a stream and keeps what is wrong first.
type eventsQuery struct {
	q   url.Values
	ref *auth.Refusal
}

func (p *eventsQuery) fail(message string) {
	if p.ref == nil {
		p.ref = badRequest(http.StatusBadRequest, message)
	}
}

// one returns the value of a name that may be there once.
func (p *eventsQuery) one(name string) (string, bool) {
	vs := p.q[name]
	if len(vs) > 1 {
		p.fail(name + " is there more than once; want it once, for all sessions")
	}
	return p.q.Get(name), len(vs) > 0
}

func (p *eventsQuery) flag(name string) bool {
	v, ok := p.one(name)
	if ok && v != "0" && v != "1" {
		p.fail(fmt.Sprintf("%s is %.20q; want 1 or 0", name, v))
	}
	return v == "1"
}

func (p *eventsQuery) since() *frames.Seq {
	v, ok := p.one("since")
	if !ok {
		return nil
	}
	n, ok := number(v)
	if !ok {
		p.fail(fmt.Sprintf("since is %.20q; want the number of the last event that you have, 0 for all", v))
	}
	return &n
}

// delivery reads which streams are wanted; nil if nothing is said.
func (p *eventsQuery) delivery() *mux.Delivery {
	var d mux.Delivery
	said := false
	for _, row := range []struct {
		name string
		into *string
		may  []string
	}{
		{"text", &d.Text, []string{"stream", "final"}},
		{"reasoning", &d.Reasoning, []string{"stream", "final", "off"}},
		{"tools", &d.Tools, []string{"stream", "off"}},
	} {
		v, ok := p.one(row.name)
		if !ok {
			continue
		}
		if !slices.Contains(row.may, v) {
			p.fail(fmt.Sprintf("%s is %.20q; want %s", row.name, v, strings.Join(row.may, " or ")))
		}
		*row.into, said = v, true
	}
	if !said {
		return nil
	}
	return &d
}

// known refuses names that mean nothing here: what is meant to limit a stream must
// not be dropped silently.
func (p *eventsQuery) known() {
	names := []string{"session", "since", "tree", "host", "text", "reasoning", "tools", "heartbeat", "label"}
	for name := range p.q {
		if !slices.Contains(names, name) {
			p.fail(fmt.Sprintf("the query has %.40q; want only %s", name, strings.Join(names, ", ")))
		}
	}
}
