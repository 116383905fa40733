package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
)

// What is said by one client is seen by all as it is said; one that said it and
// reconnects at once finds it said once, and one that vanishes stops nothing.
func TestPromptsAreSeenByAllAndOnce(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		goOn := make(chan struct{})
		s.pup.on("talk", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			select {
			case <-goOn:
				return agent.Result{}, say(ctx, t, "well, ", "hello")
			case <-ctx.Done():
				return agent.Result{}, context.Cause(ctx)
			}
		})
		other, sender := s.dial(), s.dial()
		sid := s.create(other)
		s.watch(other, sid, 0)
		s.watch(sender, sid, 0)
		s.prompt(sender, sid, "talk")
		cursor, _ := sender.Cursor(sid)
		s.leave(sender)
		again := s.dial()
		s.watch(again, sid, int(cursor))
		synctest.Wait()
		goOn <- struct{}{}
		synctest.Wait()
		said, streamed := 0, 0
		for _, g := range other.Got() {
			if g.Event != nil && g.Event.Type == frames.UserMessageEvent {
				said++
			}
			if g.Event != nil && g.Event.Type == frames.AssistantDeltaEvent {
				streamed++
			}
		}
		if said != 1 || streamed == 0 {
			t.Errorf("the other client saw the prompt %d times and %d pieces of the answer, want once and some", said, streamed)
		}
		log := s.log(other, sid)
		users, _ := payloads[frames.UserMessage](t, log, frames.UserMessageEvent)
		ends, _ := payloads[frames.TurnEnd](t, log, frames.TurnEndEvent)
		if len(users) != 1 || len(ends) != 1 || ends[0].Reason != frames.TurnCompleted {
			t.Errorf("the log has %d prompts and the ends %+v, want one of each, completed", len(users), ends)
		}
		if got, live := again.Cursor(sid); int(got) != len(log) || !live {
			t.Errorf("the sender came back at %d and is at %d of %d", cursor, got, len(log))
		}
	})
}

// A cold session whose agent is slow to start shows its past at once, and what
// comes later when it comes.
func TestColdSessionIsReadableWhileItsAgentStarts(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		s.pup.on("talk", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			return agent.Result{}, say(ctx, t, "hello")
		})
		w := s.dial()
		sid := s.create(w)
		s.prompt(w, sid, "talk")
		synctest.Wait()
		ask[rpc.Empty](s, w, "session.close", map[string]any{"sessionId": sid})
		s.pup.mu.Lock()
		s.pup.open = func(ctx context.Context) error { return rest(ctx, 5*time.Second) }
		s.pup.mu.Unlock()
		began := time.Now()
		wait, err := w.Start(t.Context(), "session.prompt", promptParams(sid, "talk"))
		if err != nil {
			t.Fatal(err)
		}
		s.watch(w, sid, 0)
		synctest.Wait()
		if got, live := w.Cursor(sid); got == 0 || !live || time.Since(began) > time.Second {
			t.Errorf("after %v: at %d (live: %v), want the past at once", time.Since(began), got, live)
		}
		if r, err := wait(); err != nil || r.Kind() != "ok" {
			t.Errorf("prompt: %s %v", r.Kind(), err)
		}
		at := 0
		ends := 0
		if _, err := w.Next(t.Context(), &at, func(g hosttest.Got) bool {
			if ended(g, sid) {
				ends++
			}
			return ends == 2
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// A request waits for nobody in particular: it is shown again to who reconnects,
// under the same id and before any event, and ten minutes later to a client that
// never saw the session; once answered it is gone for those who were away.
func TestCardsWaitForWhoeverComes(t *testing.T) {
	play(t, func(c *host.Config) { c.AskTimeout = time.Hour }, func(t *testing.T, s *scene) {
		gate(s)
		a, b := s.dial(), s.dial()
		sid := s.create(a)
		s.watch(a, sid, 0)
		s.watch(b, sid, 0)
		s.prompt(a, sid, "gate c")
		synctest.Wait()
		id := a.Cards()[0]
		cursor, _ := a.Cursor(sid)
		s.leave(a)
		a = s.dial()
		s.watch(a, sid, int(cursor)-2)
		synctest.Wait()
		if got := types(a); !slices.Equal(got[:3], []string{"", "session/subscribed", "approval/requested"}) || !slices.Equal(a.Cards(), []frames.RequestID{id}) {
			t.Errorf("reconnected to %v with the cards %v, want the same card behind session/subscribed", got, a.Cards())
		}
		if err := rest(t.Context(), 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		phone := s.dial()
		s.inbox(phone)
		synctest.Wait()
		if !slices.Equal(phone.Cards(), []frames.RequestID{id}) {
			t.Errorf("ten minutes later the inbox shows %v, want %s", phone.Cards(), id)
		}
		cursor, _ = b.Cursor(sid)
		s.leave(b)
		if kind := s.respond(phone, sid, id, frames.AllowedOnce); kind != "ok" {
			t.Errorf("respond: %s", kind)
		}
		synctest.Wait()
		b = s.dial()
		s.attach(b, sid, int(cursor))
		synctest.Wait()
		if len(framesOf[*frames.ApprovalRequested](b)) != 0 || len(framesOf[*frames.ApprovalResolved](a)) != 1 || len(a.Cards()) != 0 {
			t.Errorf("answered: who was away is shown %d cards, who was there is told %d ends and shows %v",
				len(framesOf[*frames.ApprovalRequested](b)), len(framesOf[*frames.ApprovalResolved](a)), a.Cards())
		}
	})
}

// Who was shown a request is told how it ended, after it has unsubscribed too.
func TestWhoeverWasAskedIsToldTheEnd(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		gate(s)
		w, inbox, other := s.dial(), s.dial(), s.dial()
		sid := s.create(other)
		s.watch(w, sid, 0)
		s.inbox(inbox)
		s.prompt(other, sid, "gate c")
		synctest.Wait()
		id := w.Cards()[0]
		ask[rpc.Empty](s, w, "mux.unsubscribe", map[string]any{"sessions": []any{sid}})
		ask[rpc.Empty](s, inbox, "mux.unsubscribe", map[string]any{"host": true})
		if kind := s.respond(other, sid, id, frames.Rejected); kind != "ok" {
			t.Errorf("respond: %s", kind)
		}
		synctest.Wait()
		for name, c := range map[string]*hosttest.Watch{"session": w, "host": inbox} {
			if ends := framesOf[*frames.ApprovalResolved](c); len(ends) != 1 || ends[0].ID != id {
				t.Errorf("after unsubscribing the %s: told %+v, want the end of %s", name, ends, id)
			}
		}
	})
}

// types returns the types of the frames that came, "" for responses.
func types(w *hosttest.Watch) []string {
	var out []string
	for _, g := range w.Got() {
		if g.Frame == nil {
			out = append(out, "")
			continue
		}
		out = append(out, string(g.Frame.FrameType()))
	}
	return out
}

// An answer settles the request that it names, not the oldest; a question can be
// cancelled, and any client can cancel the turn that it blocks.
func TestAnswersSettleWhatTheyName(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		gate(s)
		s.pup.on("question", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			_, err := t.Question(ctx, frames.Question{ID: "q", Question: "which?", AllowText: true})
			return agent.Result{}, err
		})
		w, phone := s.dial(), s.dial()
		s.inbox(w)
		one, two := s.create(w), s.create(w)
		s.prompt(w, one, "gate first")
		s.prompt(w, two, "gate second")
		synctest.Wait()
		cards := framesOf[*frames.ApprovalRequested](w)
		if len(cards) != 2 {
			t.Fatalf("%d cards, want 2", len(cards))
		}
		if cards[0].SessionID == two {
			one, two = two, one
		}
		if kind := s.respond(phone, one, cards[1].ID, frames.AllowedOnce); kind == "ok" {
			t.Errorf("an answer that names another session's request was accepted")
		}
		if kind := s.respond(phone, two, cards[1].ID, frames.AllowedOnce); kind != "ok" {
			t.Errorf("respond: %s", kind)
		}
		synctest.Wait()
		if got := w.Cards(); !slices.Equal(got, []frames.RequestID{cards[0].ID}) {
			t.Errorf("after the second was answered %v wait, want the first", got)
		}
		for i, end := range []func(sid frames.SessionID, id frames.RequestID){
			func(sid frames.SessionID, id frames.RequestID) {
				ask[rpc.Accepted](s, phone, "question.respond", map[string]any{"sessionId": sid, "id": id, "cancel": true})
			},
			func(sid frames.SessionID, _ frames.RequestID) {
				ask[rpc.CancelResult](s, phone, "session.cancel", map[string]any{"sessionId": sid})
			},
		} {
			sid := s.create(w)
			s.prompt(w, sid, "question")
			synctest.Wait()
			end(sid, framesOf[*frames.QuestionRequested](w)[i].ID)
			synctest.Wait()
			told := framesOf[*frames.QuestionResolved](w)
			if len(told) != i+1 || told[i].Outcome != frames.Cancelled || s.list(w)[sid].State != frames.StateIdle {
				t.Errorf("question %d: told %+v, session %s; want cancelled and idle", i, told, s.list(w)[sid].State)
			}
		}
	})
}

// Subagents are in the list with their lineage and not among the roots, and who
// connects while they run is told that they run.
func TestRunningSubagentsAreListedAsSuch(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		s.pup.on("wait", func(ctx context.Context, _ agent.Turn, _ agent.Prompt) (agent.Result, error) {
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		})
		s.pup.on("three", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for range 3 {
				if _, err := t.Spawn(ctx, agent.Spawn{Prompt: []frames.ContentBlock{frames.Text("wait")}}); err != nil {
					return agent.Result{}, err
				}
			}
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		})
		boss := s.dial()
		root := s.create(boss)
		s.prompt(boss, root, "three")
		synctest.Wait()
		late := s.dial()
		s.inbox(late)
		s.watchTree(late, root)
		synctest.Wait()
		states := map[frames.SessionID]frames.SessionState{}
		for _, f := range framesOf[*frames.SessionStatus](late) {
			states[f.SessionID] = f.State
		}
		for _, f := range framesOf[*frames.SessionSubscribed](late) {
			if f.State != frames.StateRunning || states[f.SessionID] != frames.StateRunning {
				t.Errorf("%s is %s in its baseline and %s in the host's, want running", f.SessionID, f.State, states[f.SessionID])
			}
			if fold, _, err := late.View(f.SessionID); err != nil || !strings.Contains(fold, `"status":"running"`) {
				t.Errorf("%s folds to %.200s (%v), want running", f.SessionID, fold, err)
			}
		}
		children := ask[rpc.ListResult](s, late, "sessions.list", map[string]any{"parent": root}).Sessions
		roots := ask[rpc.ListResult](s, late, "sessions.list", map[string]any{"roots": true}).Sessions
		if len(roots) != 1 || roots[0].SessionID != root || len(children) != 3 {
			t.Fatalf("%d roots and %d children are listed, want 1 and 3", len(roots), len(children))
		}
		for _, c := range children {
			if c.ParentSessionID != root || c.RootSessionID != root || c.Origin != frames.OriginSubagent || c.State != frames.StateRunning {
				t.Errorf("listed %+v, want a running subagent of the root", c)
			}
		}
	})
}

// A tool's output of 40 MB is stored whole and shown as a preview: the event, the
// page and the baseline that hold it stay small, and its blob has every byte.
func TestHugeOutputIsAPreviewAndABlob(t *testing.T) {
	size := under(4<<20, 40<<20)
	play(t, nil, func(t *testing.T, s *scene) {
		s.pup.on("huge", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			out := strings.Repeat("0123456789abcdé\n", size/17)
			return agent.Result{}, t.Emit(ctx, frames.ToolCall{CallID: "c", Name: "cat"},
				frames.ToolResult{CallID: "c", Content: []frames.ContentBlock{frames.Text(out)}})
		})
		w := s.dial()
		sid := s.create(w)
		s.watch(w, sid, 0)
		s.prompt(w, sid, "huge")
		synctest.Wait()
		for range 3 { // no reconnect meets it again and again
			again := s.dial()
			s.watch(again, sid, 0)
			synctest.Wait()
			if got, live := again.Cursor(sid); got != s.head(w, sid) || !live {
				t.Errorf("a reconnect is at %d (live: %v)", got, live)
			}
			s.leave(again)
		}
		results, _ := payloads[frames.ToolResult](t, s.log(w, sid), frames.ToolResultEvent)
		if len(results) != 1 || results[0].Content[0].Truncated == nil {
			t.Fatalf("%d results, want one that is truncated", len(results))
		}
		cut := results[0].Content[0].Truncated
		if int(cut.Bytes) != size/17*17 || cut.Blob == "" {
			t.Errorf("truncated = %+v, want %d bytes in a blob", cut, size/17*17)
		}
		offset, want := int64(0), []byte("0123456789abcdé\n")
		for {
			page := ask[rpc.BlobReadResult](s, w, "blob.read", map[string]any{"blob": cut.Blob, "offset": offset, "limit": 17 * 4096})
			if bytes.Count(page.Data, want)*17 != len(page.Data) {
				t.Fatalf("at %d the blob differs from the output", offset)
			}
			if offset += int64(len(page.Data)); !page.More {
				break
			}
		}
		if offset != cut.Bytes {
			t.Errorf("the blob has %d bytes, want %d", offset, cut.Bytes)
		}
	})
}

// One client's prompts at the limit of a message delay nobody else's calls.
func TestLargePromptsDelayNobodyElse(t *testing.T) {
	s, srv := socketScene(t)
	s.pup.on("x", func(context.Context, agent.Turn, agent.Prompt) (agent.Result, error) { return agent.Result{}, nil })
	rude, polite := s.dialSocket(srv), s.dialSocket(srv)
	sid := s.create(rude)
	params := promptParams(sid, "x "+strings.Repeat("long ", 200<<10))
	var waits []func() (hosttest.Reply, error)
	for range 8 {
		wait, err := rude.Start(t.Context(), "session.prompt", params)
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, wait)
		began := time.Now()
		ask[json.RawMessage](s, polite, "host.describe", map[string]any{})
		if took := time.Since(began); took > time.Second {
			t.Errorf("a call beside a large prompt took %v", took)
		}
	}
	for i, wait := range waits {
		r, err := wait()
		if err != nil || r.Kind() != "too-large" {
			t.Errorf("prompt %d: %s %v, want too-large: %s", i, r.Kind(), err, fmt.Sprint(r.Error))
		}
	}
}

// A client whose connection ends in the middle of its turn takes nobody with it:
// the turn that it started and the others' connections go on.
func TestClientThatVanishesTakesNobodyWithIt(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		heard := gate(s)
		a, b := s.dial(), s.dial()
		sid := s.create(b)
		s.watch(b, sid, 0)
		s.watch(a, sid, 0)
		if _, err := a.Start(t.Context(), "session.prompt", promptParams(sid, "gate c")); err != nil {
			t.Fatal(err)
		}
		at := 0
		card, err := b.Next(t.Context(), &at, isCard)
		if err != nil {
			t.Fatal(err)
		}
		s.leave(a)
		ask[json.RawMessage](s, b, "approval.respond", map[string]any{
			"sessionId": sid, "id": card.Frame.(*frames.ApprovalRequested).ID, "outcome": "allowed-once",
		})
		if _, err := b.Next(t.Context(), &at, func(g hosttest.Got) bool { return ended(g, sid) }); err != nil {
			t.Fatal(err)
		}
		if got := heard(); len(got) != 1 || !got[0].Allowed() || b.Err() != nil {
			t.Errorf("the agent heard %+v and the other client has %v, want one allow and an open connection", got, b.Err())
		}
	})
}
