package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/rpc"
)

// serveCall answers POST /v1/rpc: one call, with the methods, scopes, limits and
// strictness of a WebSocket. Whatever is an answer in the words of JSON-RPC is 200,
// but for a body that is too large (413).
func (h *Host) serveCall(w http.ResponseWriter, r *http.Request) {
	who, _ := auth.From(r.Context())
	payer := who.TokenID + " " + remoteHost(r)
	opt, ref := clientOptions(r, who)
	if ref == nil {
		ref = h.refuseCall(r, payer)
	}
	if ref == nil {
		ref = refuseSeat(h.seats.take(who.TokenID))
	}
	if ref != nil {
		auth.Refuse(w, ref)
		return
	}
	defer h.seats.leave(who.TokenID)
	leaveLobby(r)
	msg, status, answer := readCall(w, r)
	if answer == nil {
		answer, ref = h.call(r, newCaller(h, nil, who, opt), who, msg)
	}
	if ref != nil {
		auth.Refuse(w, ref)
		return
	}
	if isFault(answer) {
		h.faults.Spend(payer, time.Now())
	}
	// A call may take longer than a server gives to requests.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(answer, '\n'))
}

// refuseCall refuses what is no call for reasons of HTTP.
func (h *Host) refuseCall(r *http.Request, payer string) *auth.Refusal {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return badRequest(http.StatusUnsupportedMediaType, "want Content-Type: application/json and a body of one JSON-RPC request object")
	}
	if wait := h.faults.Wait(payer, time.Now()); wait > 0 {
		return &auth.Refusal{
			Status: http.StatusTooManyRequests, Kind: string(rpc.KindRateLimited), RetryAfter: wait,
			Message: "too many faulty calls; mend them, wait as long as Retry-After says, and come back",
		}
	}
	return nil
}

// remoteHost is the address that a request came from, without the port.
func remoteHost(r *http.Request) string {
	name, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return name
}

// readCall reads the body; what cannot be a message is answered at once.
func readCall(w http.ResponseWriter, r *http.Request) (msg []byte, status int, answer []byte) {
	msg, err := io.ReadAll(http.MaxBytesReader(w, r.Body, frames.MaxMessage))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, http.StatusRequestEntityTooLarge, failed(rpc.CodeInvalidRequest, "the body is too large; a message may have 1 MiB, and blobs are written in chunks")
	}
	switch {
	case err != nil:
		return nil, http.StatusOK, failed(rpc.CodeParse, "the body did not arrive whole; send it again")
	case !utf8.Valid(msg):
		return nil, http.StatusOK, failed(rpc.CodeParse, "the body is not valid UTF-8; want one JSON-RPC request object")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it has been read
	return msg, http.StatusOK, nil
}

// failed returns an answer to what was not understood as a call.
func failed(code int64, message string) []byte {
	b, err := json.Marshal(struct {
		Version string         `json:"jsonrpc"`
		ID      *int           `json:"id"`
		Error   *rpc.WireError `json:"error"`
	}{"2.0", nil, &rpc.WireError{Code: code, Message: message}})
	if err != nil {
		return []byte("{}")
	}
	return b
}

// isFault reports whether an answer says that the call was faulty, as opposed to an
// outcome: that spends the budget.
func isFault(answer []byte) bool {
	var a struct{ Error *rpc.WireError }
	if json.Unmarshal(answer, &a) != nil || a.Error == nil {
		return false
	}
	switch a.Error.Code {
	case rpc.CodeParse, rpc.CodeInvalidRequest, rpc.CodeMethodNotFound, rpc.CodeInvalidParams:
		return true
	}
	var d struct{ Kind rpc.Kind }
	return json.Unmarshal(a.Error.Data, &d) == nil && d.Kind == rpc.KindForbidden
}

// errRevoked is the cause of a call that ended with its token.
var errRevoked = errors.New("host: the token was revoked or has expired")

// call makes one call and waits for it. Queries end when the client hangs up, when
// its token is revoked and when the host goes down; changes are finished.
func (h *Host) call(r *http.Request, c *caller, who auth.Principal, msg []byte) ([]byte, *auth.Refusal) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })()
	defer h.admit(c.client(overCall, r.RemoteAddr, func(int, string) { cancel(errRevoked) }), who)()
	if errors.Is(context.Cause(ctx), errRevoked) {
		return nil, auth.Unauthenticated() // before anything started
	}
	log := h.cfg.Logger.With(slog.String("client", string(c.by.ClientID)))
	done := make(chan []byte, 1)
	if !h.seats.serve(func() { done <- rpc.Once(ctx, msg, c, rpc.Options{Scopes: c.scopes, Logger: log}) }) {
		return nil, refuseSeat(hostClosed)
	}
	answer := <-done
	switch {
	case answer != nil:
		return answer, nil
	case errors.Is(context.Cause(ctx), errRevoked):
		return nil, auth.Unauthenticated()
	}
	return nil, refuseSeat(hostClosed)
}
