package host

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/rpc"
)

// protocol is the WebSocket subprotocol of the wire.
const protocol = "muxhost.v1"

// The heartbeat that a client may ask for, in seconds.
const minHeartbeat, maxHeartbeat = 15, 120

// serveSocket upgrades a request whose credentials are checked, and serves its
// calls until the connection ends; the handler returns meanwhile.
func (h *Host) serveSocket(w http.ResponseWriter, r *http.Request) {
	who, _ := auth.From(r.Context())
	opt, ref := socketOptions(r, who)
	if ref == nil {
		ref = refuseSeat(h.seats.take(who.TokenID))
	}
	if ref != nil {
		auth.Refuse(w, ref)
		return
	}
	conn, err := h.hub.Accept(w, r, opt)
	if err != nil { // the hub has answered
		h.cfg.Logger.Debug("a connection was not upgraded", slog.Any("err", err))
		h.seats.leave(who.TokenID)
		return
	}
	if !h.seats.serve(func() { h.serveConn(conn, r.RemoteAddr, who, opt) }) {
		conn.Close(closeGoingAway, "the host is going down")
		h.seats.leave(who.TokenID)
	}
}

// Close codes that the host itself gives.
const (
	closeGoingAway = 1001
	closeToken     = 4001
)

// serveConn serves one connection and waits until nothing of it is left.
func (h *Host) serveConn(conn *mux.Conn, remote string, who auth.Principal, opt mux.AcceptOptions) {
	defer h.seats.leave(who.TokenID)
	log := h.cfg.Logger.With(slog.String("client", string(opt.ID)))
	log.Debug("connected", slog.String("label", opt.Label), slog.String("token", who.TokenID))
	c := newCaller(h, conn, who, opt)
	defer h.admit(c.client(overWebSocket, remote, conn.Close), who)()
	err := rpc.Serve(h.ctx, conn, c, rpc.Options{Scopes: c.scopes, Logger: log, MaxInFlight: h.cfg.MaxInFlight})
	conn.Close(closeGoingAway, "the host is going down") // unless it has ended already
	<-conn.Done()
	log.Debug("disconnected", slog.Any("err", err))
}

// socketOptions reads what the handshake asks for.
func socketOptions(r *http.Request, who auth.Principal) (mux.AcceptOptions, *auth.Refusal) {
	if !headerHas(r, "Connection", "upgrade") || !headerHas(r, "Upgrade", "websocket") {
		return mux.AcceptOptions{}, badRequest(http.StatusUpgradeRequired, "this path speaks WebSocket only; open it with a WebSocket client and the subprotocol "+protocol)
	}
	if !slices.Contains(auth.Protocols(r), protocol) {
		return mux.AcceptOptions{}, badRequest(http.StatusBadRequest, "the subprotocol "+protocol+" is not offered; offer it in Sec-WebSocket-Protocol")
	}
	return clientOptions(r, who)
}

// clientOptions says who a client is, and what it may see.
func clientOptions(r *http.Request, who auth.Principal) (mux.AcceptOptions, *auth.Refusal) {
	q := r.URL.Query()
	opt := mux.AcceptOptions{ID: frames.ClientID(newID()), Label: label(r, who), Subprotocol: protocol}
	if q.Has("heartbeat") {
		n, err := strconv.Atoi(q.Get("heartbeat"))
		if err != nil || n < minHeartbeat || n > maxHeartbeat {
			return mux.AcceptOptions{}, badRequest(http.StatusBadRequest, fmt.Sprintf("heartbeat is %.20q; want whole seconds from %d to %d", q.Get("heartbeat"), minHeartbeat, maxHeartbeat))
		}
		opt.Heartbeat = time.Duration(n) * time.Second
	}
	if who.Trees != nil {
		opt.Trees = []frames.SessionID{}
	}
	for _, t := range who.Trees {
		opt.Trees = append(opt.Trees, frames.SessionID(t))
	}
	return opt, nil
}

// label is what a person recognises the client by: what it says, what its token or
// login says, or its program.
func label(r *http.Request, who auth.Principal) string {
	return cmp.Or(auth.CleanLabel(r.URL.Query().Get("label")), who.Label, auth.CleanLabel(r.UserAgent()), "a client")
}

// headerHas reports whether a comma-separated header has the token.
func headerHas(r *http.Request, name, token string) bool {
	for _, v := range r.Header.Values(name) {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

func badRequest(status int, message string) *auth.Refusal {
	return &auth.Refusal{Status: status, Kind: "bad-request", Message: message}
}

// refuseSeat says why there is no seat, nil if there is one.
func refuseSeat(s seating) *auth.Refusal {
	switch s {
	case hostFull:
		return &auth.Refusal{Status: http.StatusServiceUnavailable, Kind: "rate-limited", Message: "the host has as many connections as it takes; close one, or come back later"}
	case tokenFull:
		return &auth.Refusal{Status: http.StatusTooManyRequests, Kind: "rate-limited", Message: "this token has as many connections as it may; close one"}
	case hostClosed:
		return &auth.Refusal{Status: http.StatusServiceUnavailable, Kind: "draining", Message: "the host is going down; come back when it is up"}
	}
	return nil
}
