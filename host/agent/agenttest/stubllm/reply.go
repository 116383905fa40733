package stubllm

import (
	"fmt"
	"net/http"
	"time"
)

// reply is one answer on its way.
type reply struct {
	conversation

	s *server
	w http.ResponseWriter
	r *http.Request
}

// json answers with one object.
func (r *reply) json(v any) {
	r.w.Header().Set("Content-Type", "application/json")
	_, _ = r.w.Write(encode(v)) // a client that left needs no answer
}

// fail answers with an error in a form that every format's clients read.
func (r *reply) fail(status int, message string) {
	r.w.Header().Set("Content-Type", "application/json")
	r.w.WriteHeader(status)
	_, _ = r.w.Write(encode(object{"type": "error", "error": object{
		"type": "stub_error", "code": status, "status": "STUB", "message": "stub: " + message,
	}}))
}

// begin begins a stream of events.
func (r *reply) begin() {
	r.w.Header().Set("Content-Type", "text/event-stream")
	r.w.Header().Set("Cache-Control", "no-cache")
	r.w.WriteHeader(http.StatusOK)
}

// event sends one event; name may be "".
func (r *reply) event(name string, v any) {
	if name != "" {
		name = "event: " + name + "\n"
	}
	r.raw(name + "data: " + string(encode(v)) + "\n\n")
}

func (r *reply) raw(text string) {
	_, _ = fmt.Fprint(r.w, text) // a client that left is noticed by pause
	if f, ok := r.w.(http.Flusher); ok {
		f.Flush()
	}
}

// speak streams the text of s by say, then does what else happens before its tools.
// It reports whether the client is still there.
func (r *reply) speak(s Step, say func(piece string)) bool {
	for _, piece := range s.pieces() {
		say(piece)
		if !r.pause(s.DelayMS) {
			return false
		}
	}
	return r.idle(s)
}

// idle hangs, or breaks the connection, where s says so.
func (r *reply) idle(s Step) bool {
	if !r.pause(s.HangMS) {
		return false
	}
	if s.Cut {
		panic(http.ErrAbortHandler) // the server's way to break a connection
	}
	return true
}

// pause waits; it reports whether the client is still there.
func (r *reply) pause(ms int) bool {
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r.r.Context().Err() == nil
	case <-r.r.Context().Done():
		return false
	}
}

// halves cuts a JSON text in two, as models stream it.
func halves(s string) [2]string { return [2]string{s[:len(s)/2], s[len(s)/2:]} }
