package host_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/mux/muxtest"
	"github.com/muxhost/muxhost/rpc"
)

func (r *rig) tryDial(ctx context.Context, token string) (*websocket.Conn, int, error) {
	ws, resp, err := websocket.Dial(ctx, r.srv.URL+"/v1/ws", &websocket.DialOptions{HTTPHeader: bearerOf(token), Subprotocols: []string{"muxhost.v1"}})
	if resp == nil {
		return ws, 0, err
	}
	return ws, resp.StatusCode, err
}

func closeCode(err error) int { return int(websocket.CloseStatus(err)) }

// cookie logs in and returns the cookie and the status.
func (r *rig) cookie(ctx context.Context, token string) (*http.Cookie, int) {
	req, err := http.NewRequestWithContext(ctx, "POST", r.srv.URL+"/v1/login", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	if err != nil {
		return nil, 0
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.srv.Client().Do(req)
	if err != nil {
		return nil, 0
	}
	defer resp.Body.Close()
	if cs := resp.Cookies(); len(cs) == 1 {
		return cs[0], resp.StatusCode
	}
	return nil, resp.StatusCode
}

// postWith makes a call with a cookie and returns the status.
func (r *rig) postWith(ctx context.Context, c *http.Cookie) int {
	req, err := http.NewRequestWithContext(ctx, "POST", r.srv.URL+"/v1/rpc", strings.NewReader(callOf("host.describe", "{}")))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.AddCookie(c)
	resp, err := r.srv.Client().Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// curl reads a stream as a person would at a terminal, and hands on each id until
// want of them came; then it is killed.
func (r *rig) curl(ctx context.Context, query, lastID string, want int) (ids []string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "curl", "-sN", "-H", "Authorization: Bearer "+canary, "-H", "Last-Event-ID: "+lastID, r.srv.URL+"/v1/events?"+query)
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("curl, which this test needs: %v", err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for len(ids) < want && lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			ids = append(ids, id)
		}
	}
	cancel()
	_ = cmd.Wait() // killed
	if len(ids) < want {
		r.t.Fatalf("curl got %d events of %s after %q, want %d", len(ids), query, lastID, want)
	}
	return ids
}

// curl reads a session while it goes on, is killed, and resumes from the id that it
// read last: every durable event comes once and in order.
func TestCurlReadsALiveSessionAndResumes(t *testing.T) {
	r := start(t, nil)
	p := r.dial(canary)
	s := r.create(p, nil)
	subscribe(p, s.SessionID)
	prompt(p, s.SessionID, "say one")
	p.event(frames.TurnEndEvent)
	head := p.live(s.SessionID)
	query := "session=" + string(s.SessionID) + "&since=0"
	ids := r.curl(t.Context(), query, "", int(head)-2)
	for range 3 {
		prompt(p, s.SessionID, "say more and more")
		p.event(frames.TurnEndEvent)
		head = p.live(s.SessionID)
		ids = append(ids, r.curl(t.Context(), query, ids[len(ids)-1], int(head)-len(ids)-1)...)
	}
	for i, id := range ids {
		if want := fmt.Sprintf("%s:%s:%d", s.SessionID, s.Epoch, i+1); id != want {
			t.Fatalf("event %d has the id %s, want %s", i, id, want)
		}
	}
	if len(ids) != int(head)-1 {
		t.Errorf("curl got %d events, want %d", len(ids), head-1)
	}
}

// live returns the head of a session.
func (p *peer) live(sid frames.SessionID) frames.Seq {
	p.t.Helper()
	return must[rpc.GetResult](p, "session.get", map[string]any{"sessionId": sid}).Session.Head
}

// follow opens a stream in virtual time.
func (s *scene) follow(query string, edit func(*http.Request)) *muxtest.Stream {
	s.t.Helper()
	resp := muxtest.Do(s.t, s.host.Handler(), s.request("GET", "/v1/events?"+query, "", edit))
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Cache-Control") != "no-store" {
		b, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("GET %s: %d %v %s", query, resp.StatusCode, resp.Header, b)
	}
	return muxtest.Events(s.t, resp.Body)
}

// refusal is a JSON body that says why there is no stream.
type refusal struct {
	Error struct {
		Kind, Message string
		Details       struct {
			First, Head frames.Seq
			Epoch       frames.Epoch
		}
	}
}

// What cannot be streamed is refused with a status and with what to do: a cursor
// that the log does not have, a session that is not there or not to be seen, a query
// that asks for nothing or for what does not exist.
func TestStreamsAreRefusedWithWhatToDo(t *testing.T) {
	guest := host.NewToken()
	edit := func(c *host.Config) {
		c.Tokens = []host.Token{{Secret: guest, Scopes: []rpc.Scope{rpc.ScopeObserve}, Trees: []frames.SessionID{}}}
	}
	play(t, edit, func(t *testing.T, s *scene) {
		w := s.dial()
		sid, other := s.create(w), s.create(w)
		one := "session=" + string(sid)
		last := func(id string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set("Last-Event-ID", id) }
		}
		for name, c := range map[string]struct {
			query  string
			edit   func(*http.Request)
			status int
			kind   string
		}{
			"another epoch":      {one, last(string(sid) + ":other:1"), 410, "cursor-expired"},
			"beyond the head":    {one + "&since=99", nil, 409, "cursor-ahead"},
			"unknown":            {"session=none", nil, 404, "session-not-found"},
			"one of two":         {one + "&session=none", nil, 404, "session-not-found"},
			"not to be seen":     {one, as(guest), 404, "session-not-found"},
			"nothing":            {"since=1", nil, 400, "bad-request"},
			"no number":          {one + "&since=x", nil, 400, "bad-request"},
			"two numbers":        {one + "&since=1&since=2", nil, 400, "bad-request"},
			"unknown name":       {one + "&policy=deny", nil, 400, "bad-request"},
			"unknown delivery":   {one + "&text=none", nil, 400, "bad-request"},
			"a flag":             {one + "&tree=yes", nil, 400, "bad-request"},
			"heartbeat":          {one + "&heartbeat=1", nil, 400, "bad-request"},
			"a bad id":           {one, last("x"), 400, "bad-request"},
			"an id of another":   {one, last(string(other) + ":e:1"), 400, "bad-request"},
			"an id of a tree":    {one + "&tree=1", last(string(other) + ":e:1"), 400, "bad-request"},
			"no token":           {one, func(r *http.Request) { r.Header.Del("Authorization") }, 401, "unauthenticated"},
			"a token in the URL": {one + "&token=" + canary, nil, 400, "bad-request"},
			"HEAD":               {one, func(r *http.Request) { r.Method = http.MethodHead }, 405, ""},
		} {
			resp := muxtest.Do(t, s.host.Handler(), s.request("GET", "/v1/events?"+c.query, "", c.edit))
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			var body refusal
			if err == nil && c.kind != "" {
				err = json.Unmarshal(b, &body)
			}
			if err != nil || resp.StatusCode != c.status || body.Error.Kind != c.kind {
				t.Errorf("%s: %d %s (%v), want %d and %s", name, resp.StatusCode, b, err, c.status, c.kind)
			}
			if c.status == http.StatusGone && (body.Error.Details.Epoch == "" || !strings.Contains(body.Error.Message, "since=0")) {
				t.Errorf("%s: %s does not say what to do", name, b)
			}
		}
		if n := len(ask[rpc.ClientsResult](s, w, "clients.list", map[string]any{}).Clients); n != 1 {
			t.Errorf("%d clients are connected, want the one", n)
		}
	})
}

// One stream carries several sessions, a tree and the inbox; Last-Event-ID sets the
// cursor of its session and since those of the others.
func TestAStreamCarriesWhatItsQueryAsksFor(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		s.pup.on("say", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, errors.Join(say(ctx, t, "a ", "b "), t.Emit(ctx, frames.TodoWrite{}))
		})
		w := s.dial()
		root, other := s.create(w), s.create(w)
		child := ask[rpc.SessionResult](s, w, "session.create", map[string]any{"cwd": s.dir, "parentSessionId": root}).Session
		for _, sid := range []frames.SessionID{root, other, child.SessionID} {
			s.prompt(w, sid, "say")
		}
		synctest.Wait()
		resume := fmt.Sprintf("%s:%s:2", child.SessionID, child.Epoch)
		ev := s.follow(fmt.Sprintf("session=%s&session=%s&since=1&tree=1&host=1&text=final", root, other), func(r *http.Request) { r.Header.Set("Last-Event-ID", resume) })
		synctest.Wait()
		for _, sid := range []frames.SessionID{root, other, child.SessionID} {
			s.prompt(w, sid, "say")
		}
		synctest.Wait()
		first, next := map[string]int{}, map[string]int{}
		types := map[string]int{}
		for _, e := range ev.Got() {
			types[e.Type]++
			if strings.Contains(e.Data, `"assistant/delta"`) {
				t.Errorf("text=final let %s through", e.Data)
			}
			sid, epoch, seq, ok := splitID(e.ID)
			if !ok {
				continue
			}
			if next[sid] == 0 {
				first[sid], next[sid] = seq, seq
			}
			if seq != next[sid] || epoch == "" {
				t.Errorf("event %d of %s, want %d", seq, sid, next[sid])
			}
			next[sid]++
		}
		heads := s.list(w)
		for sid, want := range map[frames.SessionID]int{root: 2, other: 2, child.SessionID: 3} {
			if first[string(sid)] != want || next[string(sid)] != int(heads[sid].Head)+1 {
				t.Errorf("%s came from %d to %d, want from %d to %d", sid, first[string(sid)], next[string(sid)]-1, want, heads[sid].Head)
			}
		}
		if types["host/live"] != 1 || types["session/live"] != 3 || types["mux/heartbeat"] != 0 {
			t.Errorf("types = %v, want one host/live and three session/live", types)
		}
		clients := ask[rpc.ClientsResult](s, w, "clients.list", map[string]any{}).Clients
		if len(clients) != 2 || clients[1].Transport != "sse" {
			t.Errorf("clients.list = %+v, want the stream in it", clients)
		}
		ev.Close()
		synctest.Wait()
		if n := len(ask[rpc.ClientsResult](s, w, "clients.list", map[string]any{}).Clients); n != 1 {
			t.Errorf("%d clients after the stream was hung up, want 1", n)
		}
	})
}

func splitID(id string) (sid, epoch string, seq int, ok bool) {
	p := strings.Split(id, ":")
	if len(p) != 3 {
		return "", "", 0, false
	}
	_, err := fmt.Sscan(p[2], &seq)
	return p[0], p[1], seq, err == nil
}

// A stream resumes after a tree's member, which its last id was of, is deleted.
func TestAStreamResumesWithoutADeletedMember(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		w := s.dial()
		root := s.create(w)
		child := ask[rpc.SessionResult](s, w, "session.create", map[string]any{"cwd": s.dir, "parentSessionId": root}).Session
		ask[rpc.Empty](s, w, "session.delete", map[string]any{"sessionId": child.SessionID})
		ev := s.follow("session="+string(root)+"&since=0&tree=1", func(r *http.Request) {
			r.Header.Set("Last-Event-ID", fmt.Sprintf("%s:%s:1", child.SessionID, child.Epoch))
		})
		synctest.Wait()
		if got := ev.Got(); len(got) < 3 {
			t.Errorf("got %+v, want the root's events", got)
		}
	})
}

// An id of a session that a client may not see and one of a session that does not
// exist give the same answer.
func TestAnIDDoesNotTellWhichSessionsThereAre(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		w := s.dial()
		root, other := s.create(w), s.create(w)
		guest := s.mint(w, rpc.ScopeObserve, map[string]any{"trees": []any{root}}).Secret
		for _, tree := range []string{"", "&tree=1"} {
			var status []int
			for _, sid := range []frames.SessionID{other, "none"} {
				resp := muxtest.Do(t, s.host.Handler(), s.request("GET", "/v1/events?session="+string(root)+tree, "", func(r *http.Request) {
					as(guest)(r)
					r.Header.Set("Last-Event-ID", string(sid)+":e:1")
				}))
				status = append(status, resp.StatusCode)
				_ = resp.Body.Close()
			}
			if status[0] != status[1] {
				t.Errorf("%s: %d for a session that is not to be seen, %d for one that does not exist", tree, status[0], status[1])
			}
		}
	})
}

// A stream of several sessions, or of a tree, that began without since and comes
// back with the id of one of them has no gap in the others.
func TestAStreamThatComesBackHasNoGapInOtherSessions(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		w := s.dial()
		one, two := s.create(w), s.create(w)
		child := ask[rpc.SessionResult](s, w, "session.create", map[string]any{"cwd": s.dir, "parentSessionId": one}).Session.SessionID
		for query, last := range map[string]frames.SessionID{
			fmt.Sprintf("session=%s&session=%s", one, two): one,
			fmt.Sprintf("session=%s&tree=1", one):          child,
		} {
			epoch := ask[rpc.GetResult](s, w, "session.get", map[string]any{"sessionId": last}).Session.Epoch
			ev := s.follow(query, func(r *http.Request) { r.Header.Set("Last-Event-ID", fmt.Sprintf("%s:%s:1", last, epoch)) })
			synctest.Wait()
			got := map[string]int{}
			for _, e := range ev.Got() {
				if e.ID != "" {
					sid, _, _, _ := splitID(e.ID)
					got[sid]++
				}
			}
			if got[string(last)] != 0 || len(got) != 1 {
				t.Errorf("%s after an id of %s: durable events of %v, want those of the other session", query, last, got)
			}
		}
	})
}

// While the host goes down a stream is told so, gets what is settled, and ends with
// 1001; a stream takes a seat, and none is left for another.
func TestStreamsDrainAndTakeSeats(t *testing.T) {
	play(t, func(c *host.Config) { c.MaxConns = 2 }, func(t *testing.T, s *scene) {
		gate(s)
		w := s.dial()
		sid := s.create(w)
		ev := s.follow("session="+string(sid)+"&since=0", nil)
		if resp := muxtest.Do(t, s.host.Handler(), s.request("GET", "/v1/events?host=1", "", nil)); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a third connection of two: %d, want 503", resp.StatusCode)
		}
		s.prompt(w, sid, "gate c")
		synctest.Wait()
		s.stop()
		ev.Wait()
		var types []string
		for _, e := range ev.Got() {
			if e.Type != "session/event" && e.Type != "host/session-status" && e.Type != "host/session-updated" {
				types = append(types, e.Type)
			}
		}
		got := strings.Join(types, " ")
		if !strings.Contains(got, "host/draining") || !strings.Contains(got, "approval/resolved") || !strings.HasSuffix(got, "mux/closed") {
			t.Errorf("the stream got %s; want host/draining, approval/resolved and at last mux/closed", got)
		}
		if last := ev.Got()[len(ev.Got())-1]; !strings.Contains(last.Data, "1001") {
			t.Errorf("the last event is %+v, want 1001", last)
		}
	})
}
