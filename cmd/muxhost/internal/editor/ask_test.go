package editor_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
)

// decided is how the last approval of a session ended.
func decided(v *frames.View) *frames.Decision {
	for i := len(v.Items) - 1; i >= 0; i-- {
		if tool := v.Items[i].Tool; tool != nil && len(tool.Decisions) > 0 {
			return tool.Decisions[0]
		}
	}
	return nil
}

// The person at the editor allows or rejects exactly what was shown, under the editor's
// name.
func TestPermissionIsAnsweredByThePerson(t *testing.T) {
	for option, want := range map[string]string{
		"allowed-once": "allowed-once by reply", "allowed-always": "allowed-always by reply", "rejected": "rejected by reply",
	} {
		t.Run(option, func(t *testing.T) {
			virtual(t, func(t *testing.T, r *rig) {
				f, c := r.edit(""), r.other()
				s := f.open(r)
				ch := f.say(s, `run {"cmd":"ls"}`)
				in := f.only()
				for _, part := range []string{`"rawInput":{"cmd":"ls"}`, `"kind":"execute"`, `"allow_once"`, `"allow_always"`, `"reject_once"`, `"inputHash"`} {
					if !strings.Contains(string(in.Params), part) {
						t.Errorf("the request lacks %s: %s", part, in.Params)
					}
				}
				f.choose(in, option)
				if got := f.stop(ch); got != "end_turn" {
					t.Errorf("the turn ended %q", got)
				}
				updates := f.seen(s, "tool_call_update")
				if got := updates[len(updates)-1].text(); got != want {
					t.Errorf("the call was %q, want %q", got, want)
				}
				if d := decided(view(t, c, s)); d == nil || d.By == nil || d.By.Label != "an-editor" {
					t.Errorf("decided %+v, want by an-editor", d)
				}
				if _, withdrawn := f.requests(); withdrawn != 0 {
					t.Error("a request that was answered was withdrawn")
				}
			})
		})
	}
}

// A request that somebody else settles is withdrawn; the editor's late answer changes
// nothing.
func TestPermissionSettledElsewhereIsWithdrawn(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		s := f.open(r)
		ch := f.say(s, `run {"cmd":"ls"}`)
		in := f.only()
		if err := c.Respond(t.Context(), rpc.ApprovalParams{SessionID: frames.SessionID(s), ID: pending(t, c)[0], Outcome: frames.Rejected}); err != nil {
			t.Fatal(err)
		}
		if _, withdrawn := f.requests(); withdrawn != 1 {
			t.Errorf("%d withdrawn, want 1", withdrawn)
		}
		f.choose(in, "allowed-once")
		f.stop(ch)
		if d := decided(view(t, c, s)); d.Outcome != frames.Rejected || d.By.Label != "other" {
			t.Errorf("decided %+v, want rejected by other", d)
		}
	})
}

// An editor that does not answer, or says what was not offered, answers nothing: the
// request waits for others, and is not asked again until the session is loaded again,
// then once.
func TestPermissionIsNeverAnsweredForThePerson(t *testing.T) {
	for name, answer := range map[string]func(*fake, acprpc.Inbound){
		"cancelled": func(f *fake, in acprpc.Inbound) {
			f.conn.Reply(in.ID, map[string]any{"outcome": map[string]string{"outcome": "cancelled"}})
		},
		"error":   func(f *fake, in acprpc.Inbound) { f.conn.Reject(in.ID, -32603, "no") },
		"nothing": func(f *fake, in acprpc.Inbound) { f.conn.Reply(in.ID, nil) },
		"other":   func(f *fake, in acprpc.Inbound) { f.choose(in, "allow_once") },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, r *rig) {
				f, c := r.edit(""), r.other()
				s := f.open(r)
				f.say(s, `run {"cmd":"ls"}`)
				answer(f, f.only())
				<-time.After(time.Minute)
				r.cut(false)
				<-time.After(time.Minute)
				if got := pending(t, c); len(got) != 1 {
					t.Fatalf("%d wait, want 1", len(got))
				}
				f.only()
				f.must("session/load", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
				if all, _ := f.requests(); len(all) != 2 {
					t.Errorf("%d requests after the load, want 2", len(all))
				}
			})
		})
	}
}

// A child's request is the child's to an editor that shows children as sessions, which is
// told of the child first; to others it is the session's.
func TestChildsRequestIsItsOwn(t *testing.T) {
	for _, subagents := range []bool{true, false} {
		virtual(t, func(t *testing.T, r *rig) {
			caps := ""
			if subagents {
				caps = `{"subagents":{}}`
			}
			f := r.edit(caps)
			s := f.open(r)
			ch := f.say(s, `spawn say hello; spawn run {"cmd":"ls"}`)
			in := f.only()
			if own := acprpc.SessionOf(in) != s; own != subagents {
				t.Errorf("subagents %t: the request is of %s, the session is %s", subagents, acprpc.SessionOf(in), s)
			}
			f.choose(in, "allowed-once")
			if got := f.stop(ch); got != "end_turn" {
				t.Errorf("the turn ended %q", got)
			}
			checkChildren(t, f, s, subagents)
		})
	}
}

// checkChildren holds what an editor saw of two children against what it offered.
func checkChildren(t *testing.T, f *fake, s string, subagents bool) {
	t.Helper()
	if !subagents {
		last := map[string]update{}
		for _, u := range f.seen(s, "tool_call", "tool_call_update") {
			last[u.Call] = u
		}
		var said strings.Builder
		for _, u := range last {
			said.WriteString(u.text())
			if u.Status != "completed" {
				t.Errorf("a child ended %q", u.Status)
			}
		}
		if len(last) != 2 || !strings.Contains(said.String(), "hello") {
			t.Errorf("the children: %+v", last)
		}
		return
	}
	told := map[string]string{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.updates {
		switch {
		case u.Kind == "subagent_update":
			told[u.Child] += u.State.State + " "
		case u.Session != s && !strings.HasSuffix(told[u.Session], "running ") && !strings.HasSuffix(told[u.Session], "action "):
			t.Errorf("%s of a child that is %q", u.Kind, told[u.Session])
		}
	}
	for child, states := range told {
		if states != "running idle " && states != "running requires_action running idle " {
			t.Errorf("child %s was %s", child, states)
		}
	}
	if len(told) != 2 {
		t.Errorf("%d children, want 2", len(told))
	}
}

// An input that does not fit a frame is shown whole before it can be allowed.
func TestLargeInputIsShownWhole(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f := r.edit("")
		s := f.open(r)
		input := `{"cmd":"` + strings.Repeat("x", 300<<10) + `"}`
		ch := f.say(s, "large 300")
		in := f.only()
		if !strings.Contains(string(in.Params), input) || strings.Contains(string(in.Params), "allow_always") {
			t.Errorf("the request has %d bytes: %.200s", len(in.Params), in.Params)
		}
		f.choose(in, "allowed-once")
		if got := f.stop(ch); got != "end_turn" {
			t.Errorf("the turn ended %q", got)
		}
		if got := f.text(s, "agent_message_chunk"); got != "allowed-once" {
			t.Errorf("it was %q, want allowed-once", got)
		}
	})
}

// An input that is too large to be shown cannot be allowed at the editor.
func TestInputThatIsNotShownCannotBeAllowed(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, c := r.edit(""), r.other()
		f.say(f.open(r), "large 2000")
		in := f.only()
		if strings.Contains(string(in.Params), "allow_") || !strings.Contains(string(in.Params), "muxhost approve") {
			t.Errorf("the request: %.2000s", in.Params)
		}
		f.choose(in, "allowed-once")
		synctest.Wait()
		if got := len(pending(t, c)); got != 1 {
			t.Errorf("%d wait, want 1", got)
		}
	})
}

// A question is a form where the editor has forms: what was chosen, or said, is the
// answer; declined it is cancelled; else it waits for others.
func TestQuestionIsAForm(t *testing.T) {
	for reply, want := range map[string]string{
		`{"action":"accept","content":{"q":"b"}}`:            "answered[{q [b] }]",
		`{"action":"accept","content":{"q_note":"neither"}}`: "answered[{q [] neither}]",
		`{"action":"decline"}`:                               "cancelled[]",
		`{"action":"cancel"}`:                                "",
		`{"action":"accept","content":{}}`:                   "",
		`{}`:                                                 "",
	} {
		virtual(t, func(t *testing.T, r *rig) {
			f, c := r.edit(`{"elicitation":{"form":{}},"session":{"notices":{}}}`), r.other()
			s := f.open(r)
			f.say(s, "ask")
			in := f.only()
			if in.Method != "elicitation/create" || !strings.Contains(string(in.Params), `"oneOf":[{"const":"a","title":"a"}`) {
				t.Errorf("the request is %s %s", in.Method, in.Params)
			}
			f.conn.Reply(in.ID, json.RawMessage(reply))
			synctest.Wait()
			if got := f.text(s, "agent_message_chunk"); got != want {
				t.Errorf("%s: %q, want %q", reply, got, want)
			}
			if got := len(pending(t, c)); (got == 1) != (want == "") {
				t.Errorf("%s: %d wait", reply, got)
			}
		})
	}
}

// A question that somebody else answers is withdrawn; an editor without forms is told how
// to answer, and asked nothing.
func TestQuestionIsAnsweredElsewhere(t *testing.T) {
	virtual(t, func(t *testing.T, r *rig) {
		f, plain, c := r.edit(`{"elicitation":{"form":{}}}`), r.edit(""), r.other()
		s := f.open(r)
		plain.must("session/load", map[string]any{"sessionId": s, "cwd": r.cwd, "mcpServers": []int{}})
		ch := f.say(s, "ask")
		f.only()
		id := pending(t, c)[0]
		if all, _ := plain.requests(); len(all) != 0 || !strings.Contains(plain.text(s, "agent_message_chunk"), "muxhost answer "+string(id)) {
			t.Errorf("%d requests; it was told %q", len(all), plain.text(s, "agent_message_chunk"))
		}
		if err := c.Answer(t.Context(), rpc.QuestionParams{SessionID: frames.SessionID(s), ID: id, Answers: []frames.Answer{{ID: "q", Labels: []string{"a"}}}}); err != nil {
			t.Fatal(err)
		}
		if got := f.stop(ch); got != "end_turn" {
			t.Errorf("it ended %q", got)
		}
		if _, withdrawn := f.requests(); withdrawn != 1 {
			t.Errorf("%d withdrawn, want 1", withdrawn)
		}
	})
}
