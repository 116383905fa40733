package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// newRoots are sessions of every kind of load.
func newRoots() []*root {
	gone := func(*world, int) (string, string) { return "go", "" }
	return []*root{
		{agent: "demo", config: `{"role":"stream","speed":0,"chunks":100,"size":60,"everyMs":3,"durableEvery":4}`, most: 4, text: gone},
		{agent: "demo", config: `{"role":"asks","speed":0,"count":40,"parallel":4}`, most: 4, text: gone},
		{agent: "demo", config: `{"role":"spawns","speed":0,"count":2,"depth":1}`, most: 1, text: gone, spawns: true},
		{agent: "shell", config: `{}`, most: 5, text: (*world).command},
		{agent: "shell", config: `{}`, most: 3, text: (*world).command},
		{agent: "shell", config: `{}`, most: 2, text: func(*world, int) (string, string) { return "@ask which? | this | that", "" }},
	}
}

// command is a command line that leaves a mark, and in two of three cases stays, with
// processes that hide from it, until things are calm: in one of them in the background.
func (w *world) command(n int) (line, mark string) {
	mark = fmt.Sprint("ran-", n)
	line = fmt.Sprintf(": >'%s/%s'; echo up", w.marks, mark)
	if n%3 < 2 {
		line += fmt.Sprintf("; [ -e '%s' ] || { setsid sleep 1000 & (nohup sleep 1000 >/dev/null 2>&1 &); sleep 1000; }", w.calm)
	}
	if n%3 == 1 {
		line += behind
	}
	return line, mark
}

// behind ends a command line that is to run in the background.
const behind = " &"

// load gives every session work, until the connection of c ends. What makes more
// sessions is done in every third round.
func (w *world) load(c *client.Client, round int) {
	ctx := w.ctx
	for _, r := range w.roots {
		if r.spawns && round%3 != 0 {
			continue
		}
		seed := w.rnd.Uint64()
		w.calls.Go(func() { w.feed(ctx, c, r, seed) })
	}
	named := w.roots[w.rnd.IntN(len(w.roots))].sid
	w.calls.Go(func() { w.rename(ctx, c, named, round) })
	if round%3 == 0 {
		w.calls.Go(func() { w.create(ctx, c, fmt.Sprint("c", round)) })
	}
}

// feed sends again what nobody was told about, then new prompts; one at least.
func (w *world) feed(ctx context.Context, c *client.Client, r *root, seed uint64) {
	for _, id := range w.unanswered(r.sid) {
		if !w.send(ctx, c, id) {
			return
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 3))
	for range max(1, min(3, r.most-r.waits)) {
		text, mark := r.text(w, rnd.IntN(1_000_000_000))
		hash := ""
		if mark != "" {
			hash = hashOf(text, w.cwd)
		}
		if !w.send(ctx, c, w.prompt(r.sid, text, mark, hash)) {
			return
		}
	}
}

// hashOf is the hash of a command line's input, as a person allows it.
func hashOf(line, cwd string) string {
	in := map[string]any{"cwd": cwd}
	command, background := strings.CutSuffix(line, behind)
	if in["command"] = command; background {
		in["background"] = true
	}
	b, err := json.Marshal(in)
	if err != nil {
		return err.Error()
	}
	_, hash, err := frames.InputHash(b)
	if err != nil {
		return err.Error()
	}
	return hash
}

// send sends a prompt and holds the answer against the first one.
func (w *world) send(ctx context.Context, c *client.Client, id frames.PromptID) bool {
	r, err := c.Prompt(ctx, w.params(id))
	if err != nil {
		w.refused("session.prompt", err)
		return false
	}
	if first := w.told(id, r); first != r {
		w.problem("prompt %s was first answered %+v, then %+v", id, first, r)
	}
	return true
}

// refused notes an error that is not the end of a host.
func (w *world) refused(method string, err error) {
	_, host := errors.AsType[*rpc.Error](err)
	_, wire := errors.AsType[*client.RPCError](err)
	if host || wire {
		w.problem("%s: %v", method, err)
	}
}

func (w *world) rename(ctx context.Context, c *client.Client, sid frames.SessionID, round int) {
	for i := range 5 {
		title := fmt.Sprintf("round %d, name %d", round, i)
		w.renaming(sid, title)
		if _, err := c.Configure(ctx, rpc.ConfigureParams{SessionID: sid, Title: &title}); err != nil {
			w.refused("session.configure", err)
			return
		}
		w.renamed(sid)
	}
}

func (w *world) create(ctx context.Context, c *client.Client, requestID string) {
	s, err := c.Create(ctx, rpc.CreateParams{Cwd: w.cwd, RequestID: requestID})
	if err != nil {
		w.refused("session.create", err)
		return
	}
	w.creating(requestID, s.SessionID)
}

// answerer answers what is asked, at random, in goroutines that the world waits
// for.
func (w *world) answerer(seed uint64) func(*hosttest.Conn, frames.Frame) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 5))
	return func(c *hosttest.Conn, f frames.Frame) {
		mu.Lock()
		dice := rnd.IntN(20)
		mu.Unlock()
		if dice < 4 && !w.still {
			return // it waits for somebody else, or for ever
		}
		ctx := w.ctx
		switch f := f.(type) {
		case *frames.ApprovalRequested:
			outcome := frames.AllowedOnce
			if dice < 10 {
				outcome = frames.Rejected
			} else if dice == 19 {
				outcome = frames.AllowedAlways
			}
			w.calls.Go(func() {
				w.respond(ctx, c, "approval.respond", f.ID, outcome, map[string]any{
					"sessionId": f.SessionID, "id": f.ID, "outcome": outcome, "inputHash": f.InputHash,
				})
			})
		case *frames.QuestionRequested:
			w.calls.Go(func() {
				w.respond(ctx, c, "question.respond", f.ID, frames.Answered, map[string]any{
					"sessionId": f.SessionID, "id": f.ID, "answers": []any{map[string]any{"id": f.Questions[0].ID, "labels": []string{"this"}}},
				})
			})
		}
	}
}

// respond gives one answer. An error is the end of the host, or somebody else's
// answer.
func (w *world) respond(ctx context.Context, c *hosttest.Conn, method string, id frames.RequestID, o frames.Outcome, params any) {
	w.answering(id, o)
	if _, err := c.Call(ctx, method, params); err == nil {
		w.won(id, o)
	}
}
