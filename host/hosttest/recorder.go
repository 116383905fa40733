package hosttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
)

// Recorder is one client that lives over many connections. It subscribes trees
// from their start and the host's inbox, resumes every session from its own
// cursor, and keeps what it received. Its methods are safe for concurrent use.
type Recorder struct {
	url, token string

	// Host is sent as the Host header: the host's own address, where the
	// connection goes through a proxy.
	Host string
	// Answer, when set, is told of each request once per baseline, and may
	// answer by calling the connection's Call from a goroutine of its own.
	Answer func(c *Conn, f frames.Frame)
	// Trims says that logs are trimmed meanwhile: a cursor that expires is no
	// fault, and its session starts over from its base.
	Trims bool
	// Seen, when set, is told of each frame after it was taken in. It must not
	// block.
	Seen func(f frames.Frame)

	mu       sync.Mutex
	roots    []frames.SessionID
	sessions map[frames.SessionID]*Record
	open     map[frames.RequestID]frames.Frame
	faults   []string
	dials    int
}

// Record is what a recorder received of one session.
type Record struct {
	Epoch  frames.Epoch
	Cursor frames.Seq // last durable event received
	View   *frames.View
	Events [][]byte // durable events as received, in order
	Bases  int      // bases received whole

	base       int  // parts of a base that are to come
	subscribed bool // on the present connection
	replaying  bool // `session/live` has not come yet
}

// NewRecorder returns a recorder of the trees below roots.
func NewRecorder(url, token string, roots ...frames.SessionID) *Recorder {
	return &Recorder{
		url: url, token: token, roots: roots,
		sessions: map[frames.SessionID]*Record{}, open: map[frames.RequestID]frames.Frame{},
	}
}

// Move makes later connections go to url: the host was restarted elsewhere.
func (r *Recorder) Move(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.url = url
}

// Faults returns every broken promise that was noticed.
func (r *Recorder) Faults() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.faults)
}

// Dials returns how many connections were opened.
func (r *Recorder) Dials() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials
}

// Open returns the requests that were asked and not resolved, as this client
// sees it.
func (r *Recorder) Open() []frames.RequestID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.open))
}

// Sessions calls f with each session's record; f must not keep it.
func (r *Recorder) Sessions(f func(frames.SessionID, *Record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sid := range slices.Sorted(maps.Keys(r.sessions)) {
		f(sid, r.sessions[sid])
	}
}

func (r *Recorder) fault(format string, args ...any) {
	if len(r.faults) < 50 {
		r.faults = append(r.faults, fmt.Sprintf(format, args...))
	}
}

// ErrRefused is a handshake that the host answered with a refusal.
var ErrRefused = errors.New("hosttest: refused")

// Conn is one connection of a recorder.
type Conn struct {
	sock *websocket.Conn

	mu    sync.Mutex
	next  int
	waits map[int]chan reply
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// Call makes one call and waits for its response. It must not be called from
// Answer itself, only from another goroutine.
func (c *Conn) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	ch := make(chan reply, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.waits[id] = ch
	c.mu.Unlock()
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if err := c.sock.Write(ctx, websocket.MessageText, b); err != nil {
		return nil, err
	}
	select {
	case rep, ok := <-ch:
		if !ok {
			return nil, errors.New("hosttest: the connection ended")
		}
		if rep.Error != nil {
			return nil, fmt.Errorf("hosttest: %s: %s", method, rep.Error)
		}
		return rep.Result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, ch := range c.waits {
		close(ch)
		delete(c.waits, id)
	}
}

// Session runs one connection until it breaks, or until enough reports true
// after a frame.
func (r *Recorder) Session(ctx context.Context, enough func() bool) error {
	r.mu.Lock()
	url := r.url
	r.mu.Unlock()
	sock, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + r.token}},
		Subprotocols: []string{"muxhost.v1"},
		Host:         r.Host,
	})
	if err != nil {
		if resp != nil && resp.StatusCode >= 400 {
			r.mu.Lock()
			r.fault("the host refused to connect: %s", resp.Status)
			r.mu.Unlock()
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return err
	}
	defer sock.CloseNow()
	sock.SetReadLimit(4 << 20)
	c := &Conn{sock: sock, waits: map[int]chan reply{}, next: 1}
	defer c.end()
	if err := sock.Write(ctx, websocket.MessageText, r.subscribe()); err != nil {
		return err
	}
	for {
		_, msg, err := sock.Read(ctx)
		if err != nil {
			return err
		}
		if err := r.message(c, msg); err != nil {
			return err
		}
		if enough != nil && enough() {
			return nil
		}
	}
}

// subscribe builds the call that resumes everything; its id is 1.
func (r *Recorder) subscribe() []byte {
	type entry struct {
		SessionID frames.SessionID `json:"sessionId"`
		Since     frames.Seq       `json:"since"`
		Epoch     frames.Epoch     `json:"epoch,omitempty"`
		Tree      bool             `json:"tree,omitempty"`
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dials++
	var entries []entry
	for _, root := range r.roots {
		if r.sessions[root] == nil {
			entries = append(entries, entry{SessionID: root, Tree: true})
		}
	}
	for _, sid := range slices.Sorted(maps.Keys(r.sessions)) {
		s := r.sessions[sid]
		s.subscribed, s.replaying = false, false
		if s.base > 0 { // what was trimmed is missing
			s.Cursor, s.base = 0, 0
		}
		entries = append(entries, entry{sid, s.Cursor, s.Epoch, slices.Contains(r.roots, sid)})
	}
	b, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "mux.subscribe",
		"params": map[string]any{"sessions": entries, "host": true},
	})
	if err != nil {
		r.fault("encode: %v", err)
	}
	return b
}

// message takes in a response or a frame.
func (r *Recorder) message(c *Conn, msg []byte) error {
	var env struct {
		ID     *int            `json:"id"`
		Method string          `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(msg, &env); err != nil {
		return fmt.Errorf("hosttest: no JSON: %w", err)
	}
	if env.Method == "" {
		return r.response(c, env.ID, reply{env.Result, env.Error})
	}
	f, err := frames.DecodeFrame(msg)
	if err != nil {
		return fmt.Errorf("hosttest: %w", err)
	}
	r.mu.Lock()
	ask := r.frame(f)
	expired := r.expired(f)
	r.mu.Unlock()
	if expired {
		return errExpired
	}
	if ask && r.Answer != nil {
		r.Answer(c, f)
	}
	if r.Seen != nil {
		r.Seen(f)
	}
	return nil
}

// errExpired ends a connection on which a session has to start over.
var errExpired = errors.New("hosttest: a cursor expired")

// expired reports whether f says that a session has to start over, and sees to it.
func (r *Recorder) expired(f frames.Frame) bool {
	u, ok := f.(*frames.SessionUnsubscribed)
	if !ok || u.Reason != "cursor-expired" {
		return false
	}
	if !r.Trims {
		r.fault("%s: the cursor expired", u.SessionID)
	}
	r.restart(u.SessionID)
	return true
}

// restart forgets a session's record, so that it is received anew.
func (r *Recorder) restart(sid frames.SessionID) {
	if s := r.sessions[sid]; s != nil {
		*s = Record{Epoch: s.Epoch, View: frames.NewView(), Bases: s.Bases}
	}
}

func (r *Recorder) response(c *Conn, id *int, rep reply) error {
	if id == nil || *id == 1 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.subscribed(rep)
	}
	c.mu.Lock()
	ch := c.waits[*id]
	delete(c.waits, *id)
	c.mu.Unlock()
	if ch != nil {
		ch <- rep
	}
	return nil
}

// subscribed checks that every entry of the subscription succeeded, but for those
// whose cursor may have expired.
func (r *Recorder) subscribed(rep reply) (err error) {
	var entries []struct {
		SessionID frames.SessionID `json:"sessionId"`
		Error     json.RawMessage  `json:"error"`
	}
	if rep.Error != nil {
		r.fault("the subscription was refused: %s", rep.Error)
	} else if err := json.Unmarshal(rep.Result, &entries); err != nil {
		r.fault("the subscription's result: %v", err)
	}
	for _, e := range entries {
		switch {
		case e.Error == nil:
		case r.Trims && bytes.Contains(e.Error, []byte(`"cursor-expired"`)):
			r.restart(e.SessionID)
			err = errExpired
		default:
			r.fault("%s: the subscription was refused: %s", e.SessionID, e.Error)
		}
	}
	return err
}

// frame takes in one frame; ask says that it is a request to answer.
func (r *Recorder) frame(f frames.Frame) (ask bool) {
	switch f := f.(type) {
	case *frames.SessionSubscribed:
		r.begin(f)
	case *frames.SessionBase:
		r.takeBase(f)
	case *frames.SessionEvent:
		r.event(f)
	case *frames.SessionLive:
		if s := r.sessions[f.SessionID]; s != nil && !f.More {
			s.replaying = false
		}
	case *frames.HostSubscribed:
		clear(r.open)
	case *frames.ApprovalRequested:
		r.open[f.ID] = f
		ask = true
	case *frames.QuestionRequested:
		r.open[f.ID] = f
		ask = true
	case *frames.ApprovalResolved:
		r.resolved(f.ID)
	case *frames.QuestionResolved:
		r.resolved(f.ID)
	}
	if s := r.sessions[sessionOf(f)]; s != nil {
		if err := s.View.ApplyFrame(f); err != nil {
			r.fault("fold: %v", err)
		}
	}
	return ask
}

func (r *Recorder) resolved(id frames.RequestID) {
	if r.open[id] == nil {
		r.fault("%s was resolved and never requested on this picture", id)
	}
	delete(r.open, id)
}

// begin opens a subscription and voids the session's cards.
func (r *Recorder) begin(f *frames.SessionSubscribed) {
	s := r.sessions[f.SessionID]
	if s == nil {
		s = &Record{View: frames.NewView()}
		r.sessions[f.SessionID] = s
	}
	if s.subscribed {
		r.fault("%s: subscribed twice on one connection", f.SessionID)
	}
	if s.Epoch != "" && s.Epoch != f.Epoch {
		r.fault("%s: epoch %s became %s", f.SessionID, s.Epoch, f.Epoch)
	}
	if f.Since != s.Cursor {
		r.fault("%s: subscribed since %d, cursor %d", f.SessionID, f.Since, s.Cursor)
	}
	s.Epoch, s.subscribed, s.replaying = f.Epoch, true, true
	s.Cursor, s.base = startOf(f), f.BaseParts
	if f.Base != nil {
		s.Bases++
	}
	for id, card := range r.open {
		if sessionOf(card) == f.SessionID {
			delete(r.open, id)
		}
	}
}

// takeBase counts the parts of a base, which come at once and in order.
func (r *Recorder) takeBase(f *frames.SessionBase) {
	s := r.sessions[f.SessionID]
	if s == nil || s.base == 0 || f.Part != f.Parts-s.base {
		r.fault("%s: part %d of %d of a base out of order", f.SessionID, f.Part, f.Parts)
		return
	}
	if s.base--; s.base == 0 {
		s.Bases++
	}
}

// event checks promise 1: exactly the next durable event, and live ones only
// after `session/live`.
func (r *Recorder) event(f *frames.SessionEvent) {
	e, err := frames.DecodeEvent(f.Event)
	if err != nil {
		r.fault("%s: %v", f.SessionID, err)
		return
	}
	s := r.sessions[f.SessionID]
	switch {
	case s == nil || !s.subscribed || s.base > 0:
		r.fault("%s: an event before session/subscribed", f.SessionID)
	case e.Seq == 0 && s.replaying:
		r.fault("%s: %s before session/live", f.SessionID, e.Type)
	case e.Seq == 0 && e.After != s.Cursor:
		r.fault("%s: %s after %d, cursor %d", f.SessionID, e.Type, e.After, s.Cursor)
	case e.Seq > 0 && e.Seq != s.Cursor+1:
		r.fault("%s: event %d, cursor %d", f.SessionID, e.Seq, s.Cursor)
	case e.Seq > 0:
		s.Cursor = e.Seq
		s.Events = append(s.Events, f.Event)
	}
}

// sessionOf returns the session that a frame is about, "" for others.
func sessionOf(f frames.Frame) frames.SessionID {
	switch f := f.(type) {
	case *frames.SessionEvent:
		return f.SessionID
	case *frames.SessionSubscribed:
		return f.SessionID
	case *frames.SessionBase:
		return f.SessionID
	case *frames.SessionLive:
		return f.SessionID
	case *frames.SessionLagging:
		return f.SessionID
	case *frames.SessionStatus:
		return f.SessionID
	case *frames.ApprovalRequested:
		return f.SessionID
	case *frames.ApprovalResolved:
		return f.SessionID
	case *frames.QuestionRequested:
		return f.SessionID
	case *frames.QuestionResolved:
		return f.SessionID
	}
	return ""
}

// Behind returns the sessions of want that r has not received whole, or whose
// present subscription is not live yet.
func (r *Recorder) Behind(want map[frames.SessionID]frames.Seq) []frames.SessionID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []frames.SessionID
	for sid, head := range want {
		if s := r.sessions[sid]; s == nil || s.Cursor < head || !s.subscribed || s.replaying {
			out = append(out, sid)
		}
	}
	return out
}
