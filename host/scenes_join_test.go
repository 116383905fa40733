package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
)

// steps are what the puppet says in a turn of everything that streams, one chunk
// or one event each.
func steps(ctx context.Context, t agent.Turn) []func() error {
	reasoning, text, more := t.NewBlock(), t.NewBlock(), t.NewBlock()
	emit := func(p frames.Payload) func() error { return func() error { return t.Emit(ctx, p) } }
	words := func(f func(context.Context, int, string) error, block int, words ...string) (out []func() error) {
		for _, w := range words {
			out = append(out, func() error { return f(ctx, block, w) })
		}
		return out
	}
	progress := func(call frames.CallID, text string) func() error {
		return func() error { return t.Progress(ctx, call, text) }
	}
	content := func(s string) []frames.ContentBlock { return []frames.ContentBlock{frames.Text(s)} }
	all := words(t.Reasoning, reasoning, "I ", "think é", " so")
	all = append(all, emit(frames.TodoWrite{Todos: []frames.Todo{{ID: "1", Content: "look", Status: "pending"}}}))
	all = append(all, emit(frames.ReasoningMessage{Content: content("I think é so"), Blocks: []int{reasoning}}))
	all = append(all, words(t.Text, text, "Hel", "lo, ", "wörld")...)
	all = append(all, emit(frames.ToolCall{CallID: "a", Name: "grep"}), emit(frames.ToolCall{CallID: "b", Name: "make"}))
	all = append(all, progress("a", "line 1\n"), progress("b", "cc x.c\n"), progress("a", "line 2\n"))
	all = append(all, words(t.Text, more, "and ", "more")...)
	all = append(all, emit(frames.AssistantMessage{Content: content("Hello, wörld"), Blocks: []int{text}}))
	all = append(all, emit(frames.ToolResult{CallID: "a", Content: content("2 lines")}), progress("b", "ld x\n"))
	all = append(all, func() error {
		_, err := t.Ask(ctx, agent.Approval{Call: "c", Tool: frames.Tool{Name: "sh"}, Input: json.RawMessage(`{"x":1}`)})
		return err
	})
	all = append(all, emit(frames.AssistantRetracted{Blocks: []int{more}}), emit(frames.TodoWrite{Todos: []frames.Todo{{ID: "1", Content: "look", Status: "completed"}}}))
	return append(all, emit(frames.ToolResult{CallID: "b", IsError: true, Content: content("failed")}))
}

// A client that joins at any chunk of a turn, or asks for streams that it had
// turned off, folds to what a client has that was there from the start, at once
// and at every later chunk.
func TestWhoeverJoinsATurnSeesAllOfIt(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		next := make(chan struct{})
		s.pup.on("turn", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for _, step := range steps(ctx, t) {
				select {
				case <-next:
				case <-ctx.Done():
					return agent.Result{}, context.Cause(ctx)
				}
				if err := step(); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, nil
		})
		first, quiet := s.dial(), s.dial()
		sid := s.create(first)
		s.watch(first, sid, 0)
		ask[json.RawMessage](s, quiet, "mux.subscribe", streams(sid, 0, false))
		s.prompt(first, sid, "turn")
		joined := []*hosttest.Watch{}
		for step := 0; ; step++ {
			synctest.Wait()
			joined = append(joined, s.joiners(sid, quiet, step)...)
			synctest.Wait()
			s.sameView(sid, first, joined, step)
			if cards := first.Cards(); len(cards) > 0 {
				s.respond(first, sid, cards[0], frames.Rejected)
				continue
			}
			if s.list(first)[sid].State == frames.StateIdle {
				break
			}
			next <- struct{}{}
		}
		if len(joined) < 20 {
			t.Errorf("%d clients joined, want one at every chunk", len(joined))
		}
	})
}

// joiners attaches a new client from the start of the log, one from its head with
// what session.get says, and has the quiet one turn its streams on and off.
func (s *scene) joiners(sid frames.SessionID, quiet *hosttest.Watch, step int) []*hosttest.Watch {
	s.t.Helper()
	w, changed := s.dial(), s.dial()
	s.watch(w, sid, 0)
	ask[json.RawMessage](s, changed, "mux.subscribe", streams(sid, 0, false))
	ask[json.RawMessage](s, changed, "mux.subscribe", streams(sid, -1, true))
	if step%2 == 0 {
		ask[json.RawMessage](s, quiet, "mux.subscribe", streams(sid, -1, true))
		synctest.Wait()
		s.sameView(sid, w, []*hosttest.Watch{quiet}, step)
		ask[json.RawMessage](s, quiet, "mux.subscribe", streams(sid, -1, false))
	}
	return []*hosttest.Watch{w, changed}
}

// streams asks for a session with all streams or with none.
func streams(sid frames.SessionID, since int, on bool) map[string]any {
	p := from(sid, since, false)
	p["delivery"] = rpc.Delivery{Text: "final", Reasoning: "final", Tools: "off"}
	if on {
		p["delivery"] = rpc.Delivery{Text: "stream", Reasoning: "stream", Tools: "stream"}
	}
	return p
}

// sameView compares what clients make of a session to what first does.
func (s *scene) sameView(sid frames.SessionID, first *hosttest.Watch, others []*hosttest.Watch, step int) {
	s.t.Helper()
	fold, live, err := first.View(sid)
	if err != nil {
		s.t.Fatal(err)
	}
	for i, w := range others {
		f, l, err := w.View(sid)
		if err != nil || f != fold || l != live {
			s.t.Fatalf("after chunk %d client %d folds to (%v)\n%s\n%s\nwant\n%s\n%s", step, i, err, f, l, fold, live)
		}
	}
}

// A socket that is cut within the last words of a turn, or between two turns, costs
// no word of either: after each resumption exactly the gap is replayed, under the
// same turn ids, and nothing at all when nothing was missed.
func TestResumptionsReplayTheGapOnly(t *testing.T) {
	play(t, nil, func(t *testing.T, s *scene) {
		goOn := make(chan struct{})
		s.pup.on("talk", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			b, all := t.NewBlock(), ""
			for i := range 40 {
				if i%10 == 5 {
					<-goOn
				}
				word := fmt.Sprint(i, " ")
				if err := t.Text(ctx, b, word); err != nil {
					return agent.Result{}, err
				}
				all += word
			}
			return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: []frames.ContentBlock{frames.Text(all)}, Blocks: []int{b}})
		})
		there := s.dial()
		sid := s.create(there)
		s.watch(there, sid, 0)
		synctest.Wait() // live before the first word, which else comes in session/live
		cursor := 0
		var turns []frames.TurnID
		for range 2 {
			turns = append(turns, s.prompt(there, sid, "talk").TurnID)
			for range 4 {
				synctest.Wait()
				cursor = s.resume(there, sid, cursor)
				goOn <- struct{}{}
				synctest.Wait()
			}
		}
		cursor = s.resume(there, sid, cursor)
		if again := s.resume(there, sid, cursor); again != cursor {
			t.Errorf("a resumption at head %d came to %d", cursor, again)
		}
		said, at := payloads[frames.AssistantMessage](t, s.log(there, sid), frames.AssistantMessageEvent)
		if len(said) != 2 || at[0].TurnID != turns[0] || at[1].TurnID != turns[1] || said[0].Content[0].Text != said[1].Content[0].Text {
			t.Errorf("said %+v", said)
		}
		s.everyWord(there, turns)
	})
}

// resume connects anew from a cursor, compares, hangs up and returns the new cursor.
func (s *scene) resume(there *hosttest.Watch, sid frames.SessionID, cursor int) int {
	s.t.Helper()
	w := s.dial()
	defer s.leave(w)
	s.watch(w, sid, cursor)
	synctest.Wait()
	want, _ := there.Cursor(sid)
	replayed := 0
	for _, g := range w.Got() {
		if g.Event != nil && g.Event.Seq > 0 {
			replayed++
		}
		if g.Event != nil && g.Event.Seq == 0 {
			s.t.Errorf("%s was replayed: what is live comes in session/live", g.Event.Type)
		}
	}
	if got, live := w.Cursor(sid); got != want || !live || replayed != int(want)-cursor {
		s.t.Errorf("resumed from %d: %d events, at %d (live: %v); want exactly the gap up to %d", cursor, replayed, got, live, want)
	}
	_, wantLive, err := there.View(sid)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, live, err := w.View(sid); err != nil || live != wantLive {
		s.t.Errorf("resumed from %d the open turn is %s, want %s (%v)", cursor, live, wantLive, err)
	}
	return int(want)
}

// everyWord checks that one long connection was sent all chunks of both turns,
// each once and each turn from its first.
func (s *scene) everyWord(w *hosttest.Watch, turns []frames.TurnID) {
	s.t.Helper()
	next := map[frames.TurnID]int{}
	for _, g := range w.Got() {
		if g.Event == nil || g.Event.Type != frames.AssistantDeltaEvent {
			continue
		}
		var d frames.AssistantDelta
		if err := json.Unmarshal(g.Event.Data, &d); err != nil {
			s.t.Fatal(err)
		}
		if d.From != next[g.Event.TurnID] {
			s.t.Errorf("turn %s: chunks from %d came, want from %d", g.Event.TurnID, d.From, next[g.Event.TurnID])
		}
		next[g.Event.TurnID] = d.To
	}
	for _, turn := range turns {
		if next[turn] != 40 {
			s.t.Errorf("turn %s: %d of 40 chunks came", turn, next[turn])
		}
	}
}
