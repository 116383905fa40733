package main_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/hosttest"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// check holds a host that was just started, and does nothing yet, against what
// everybody knows. With all it reads every log from its beginning.
func (w *world) check(c *client.Client, all bool) {
	w.t.Helper()
	listed := map[frames.SessionID]frames.Session{}
	for s, err := range c.ListAll(w.t.Context(), rpc.ListParams{}) {
		if err != nil {
			w.fatal(err)
		}
		listed[s.SessionID] = s
		w.checkSummary(s)
	}
	for sid, s := range listed {
		w.read(c, s, all)
		if left := w.logs[sid].open(); left != "" || len(w.logs[sid].tasks) > 0 {
			w.problem("session %s after a start: %s, tasks %v", sid, left, w.logs[sid].tasks)
		}
	}
	for sid := range w.logs {
		if _, ok := listed[sid]; !ok {
			w.problem("session %s is gone", sid)
		}
	}
	if waiting, err := c.Pending(w.t.Context(), ""); err != nil || len(waiting) > 0 {
		w.problem("pending after a start: %+v, %v", waiting, err)
	}
	for i, r := range w.recs {
		w.checkRecorder(i, r)
	}
	w.checkCreates(listed)
	w.checkPrompts(c)
	w.checkDecisions(c)
	w.checkCommands()
	for _, r := range w.roots {
		if h := w.logs[r.sid]; h != nil {
			r.waits = len(h.queue)
		}
	}
}

func (w *world) checkSummary(s frames.Session) {
	if s.State != frames.StateIdle || s.Pending+s.PendingBelow > 0 {
		w.problem("session %s after a start: %s, %d and %d pending", s.SessionID, s.State, s.Pending, s.PendingBelow)
	}
	if names := w.may(s.SessionID); names != nil && !slices.Contains(names, s.Title) {
		w.problem("session %s is called %q; acknowledged or later are %q", s.SessionID, s.Title, names)
	}
}

// read reads what is new in a log; with all, all of it.
func (w *world) read(c *client.Client, s frames.Session, all bool) {
	h := w.logs[s.SessionID]
	if h == nil {
		h = newHistory()
		h.epoch = s.Epoch
		w.logs[s.SessionID] = h
	}
	if h.epoch != s.Epoch {
		w.problem("session %s: epoch %s became %s", s.SessionID, h.epoch, s.Epoch)
	}
	if int(s.Head) < len(h.events) {
		w.problem("session %s: its log has %d events, there were %d", s.SessionID, s.Head, len(h.events))
		return
	}
	after := frames.Seq(len(h.events))
	if all {
		after = 0
	}
	for after < s.Head {
		page, err := c.History(w.t.Context(), rpc.HistoryParams{SessionID: s.SessionID, After: &after, Limit: 1000})
		if err != nil || len(page.Events) == 0 {
			w.problem("session %s: reading after %d: %d events, %v", s.SessionID, after, len(page.Events), err)
			return
		}
		for _, raw := range page.Events {
			if after++; int(after) > len(h.events) {
				h.take(raw, w.verdicts)
			} else if !bytes.Equal(raw, h.events[after-1]) {
				w.problem("session %s: event %d was %s and is %s", s.SessionID, after, h.events[after-1], raw)
			}
		}
	}
	for _, f := range h.faults {
		w.problem("session %s: %s", s.SessionID, f)
	}
	h.faults = nil
}

// checkRecorder holds what a client saw against the logs.
func (w *world) checkRecorder(i int, r *hosttest.Recorder) {
	for _, f := range r.Faults() {
		w.problem("client %d: %s", i, f)
	}
	r.Sessions(func(sid frames.SessionID, rec *hosttest.Record) {
		h := w.logs[sid]
		if h == nil || len(rec.Events) > len(h.events) {
			w.problem("client %d saw %d events of session %s, which has not so many", i, len(rec.Events), sid)
			return
		}
		for n := w.compared[i][sid]; n < len(rec.Events); n++ {
			if !bytes.Equal(rec.Events[n], h.events[n]) {
				w.problem("client %d saw event %d of session %s as %s, the log has %s", i, n+1, sid, rec.Events[n], h.events[n])
			}
		}
		w.compared[i][sid] = len(rec.Events)
	})
}

func (w *world) checkCreates(listed map[frames.SessionID]frames.Session) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for id, sid := range w.creates {
		if _, ok := listed[sid]; !ok {
			w.problem("session %s, made by request %s, is not listed", sid, id)
		}
	}
}

// checkPrompts holds every answered prompt against the logs, and asks the host
// again about the last ones and some others.
func (w *world) checkPrompts(c *client.Client) {
	answered := w.answers()
	for _, p := range answered {
		h, id := w.logs[p.params.SessionID], p.params.PromptID
		if h == nil {
			continue // reported already
		}
		turn, started := h.started[id]
		if !h.queued[id] && !started || p.answer.Queued != h.queued[id] {
			w.problem("prompt %s was answered %+v; queued in the log: %v, started: %v", id, *p.answer, h.queued[id], started)
		}
		if started && turn != p.answer.TurnID {
			w.problem("prompt %s was answered %+v and ran as turn %s", id, *p.answer, turn)
		}
	}
	for i, p := range answered {
		if i >= len(answered)-5 || w.rnd.IntN(len(answered)) < 2 {
			w.send(w.ctx, c, p.params.PromptID)
		}
	}
}

// checkDecisions: what was acknowledged is decided so; what was allowed, somebody
// allowed.
func (w *world) checkDecisions(c *client.Client) {
	w.ledger.mu.Lock()
	accepted := make(map[frames.RequestID]frames.Outcome, len(w.accepted))
	maps.Copy(accepted, w.accepted)
	w.ledger.mu.Unlock()
	for id, o := range accepted {
		if d, ok := w.verdicts.byID[id]; !ok || d.outcome != o || d.origin != frames.CauseReply {
			w.problem("the answer %s to %s was acknowledged; the log has %+v", o, id, d)
		}
	}
	for id, d := range w.verdicts.byID {
		if !d.outcome.Allows() {
			continue
		}
		by := id
		if d.origin == frames.CausePolicy {
			by = w.verdicts.grants[d.grant]
		}
		if !w.gave(by, d.outcome) {
			w.problem("%s is decided %+v, and nobody answered so", id, d)
		}
	}
	grants, err := c.Grants(w.t.Context())
	if err != nil {
		w.problem("grants.list: %v", err)
	}
	for _, g := range grants {
		if w.verdicts.grants[g.ID] == "" {
			w.problem("the grant %s holds, and no decision in the logs gave it", g.ID)
		}
	}
	for id, by := range w.verdicts.grants {
		if !slices.ContainsFunc(grants, func(g rpc.Grant) bool { return g.ID == id }) {
			w.problem("the grant %s, given by the answer to %s, is gone", id, by)
		}
	}
}

// checkCommands: whatever ran was allowed, for exactly its input.
func (w *world) checkCommands() {
	ran, err := os.ReadDir(w.marks)
	if err != nil {
		w.fatal(err)
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for _, f := range ran {
		if hash := w.hashes[f.Name()]; hash == "" || !w.verdicts.allows[hash] {
			w.problem("the command %s ran; nothing in the logs allows its input %s", f.Name(), hash)
		}
	}
}

// checkDone: every prompt that was ever sent has run once, and each client's
// picture is the log's.
func (w *world) checkDone() {
	for _, p := range w.answers() {
		if h := w.logs[p.params.SessionID]; h != nil && h.started[p.params.PromptID] == "" {
			w.problem("prompt %s never ran", p.params.PromptID)
		}
	}
	for i, r := range w.recs {
		if open := r.Open(); len(open) > 0 {
			w.problem("client %d still shows %v", i, open)
		}
		r.Sessions(func(sid frames.SessionID, rec *hosttest.Record) {
			w.comparePicture(i, sid, rec)
		})
	}
}

func (w *world) comparePicture(i int, sid frames.SessionID, rec *hosttest.Record) {
	h := w.logs[sid]
	if h == nil || len(h.events) != len(rec.Events) {
		w.problem("client %d has %d events of session %s, not all", i, len(rec.Events), sid)
		return
	}
	v := frames.NewView()
	for _, raw := range h.events {
		e, err := frames.DecodeEvent(raw)
		if err == nil {
			err = v.ApplyEvent(e)
		}
		if err != nil {
			w.problem("session %s: folding its log: %v", sid, err)
		}
	}
	want, err := json.Marshal(v.Durable())
	if err != nil {
		w.fatal(err)
	}
	got, err := json.Marshal(rec.View.Durable())
	if err != nil || !bytes.Equal(got, want) {
		w.problem("client %d: its picture of session %s differs from the log's: %v\n%s\n%s", i, sid, err, got, want)
	}
}
