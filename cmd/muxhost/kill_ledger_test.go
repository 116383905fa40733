package main_test

import (
	"fmt"
	"slices"
	"sync"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// ledger is what clients sent, noted before they sent it, and what they were
// told, noted when they were. Its methods are safe for concurrent use.
type ledger struct {
	mu       sync.Mutex
	prompts  map[frames.PromptID]*sentPrompt
	order    []frames.PromptID
	sent     map[frames.RequestID][]frames.Outcome // answers that somebody gave
	accepted map[frames.RequestID]frames.Outcome
	titles   map[frames.SessionID]*sentTitles
	creates  map[string]frames.SessionID // request id → session, "" if not told
	hashes   map[string]string           // mark of a command → hash of its input
}

type sentPrompt struct {
	params rpc.PromptParams
	answer *rpc.PromptResult // nil while nobody was told
}

// sentTitles are the names given to one session, in order; told is how many of
// them are known to hold.
type sentTitles struct {
	names []string
	told  int
}

func newLedger() *ledger {
	return &ledger{
		prompts: map[frames.PromptID]*sentPrompt{}, sent: map[frames.RequestID][]frames.Outcome{}, accepted: map[frames.RequestID]frames.Outcome{},
		titles: map[frames.SessionID]*sentTitles{}, creates: map[string]frames.SessionID{}, hashes: map[string]string{},
	}
}

// prompt notes a new prompt and returns its id.
func (l *ledger) prompt(sid frames.SessionID, text, mark, hash string) frames.PromptID {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := frames.PromptID(fmt.Sprint("p", len(l.order)))
	l.order = append(l.order, id)
	l.prompts[id] = &sentPrompt{params: rpc.PromptParams{SessionID: sid, PromptID: id, Content: []frames.ContentBlock{frames.Text(text)}}}
	if mark != "" {
		l.hashes[mark] = hash
	}
	return id
}

func (l *ledger) params(id frames.PromptID) rpc.PromptParams {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.prompts[id].params
}

// told notes the answer to a prompt; it returns the first one.
func (l *ledger) told(id frames.PromptID, r rpc.PromptResult) rpc.PromptResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prompts[id].answer == nil {
		l.prompts[id].answer = &r
	}
	return *l.prompts[id].answer
}

// answers returns the prompts that were answered, oldest first.
func (l *ledger) answers() []sentPrompt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []sentPrompt
	for _, id := range l.order {
		if p := l.prompts[id]; p.answer != nil {
			out = append(out, *p)
		}
	}
	return out
}

// unanswered returns the prompts of a session that nobody knows the fate of.
func (l *ledger) unanswered(sid frames.SessionID) []frames.PromptID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.order), func(id frames.PromptID) bool {
		p := l.prompts[id]
		return p.answer != nil || p.params.SessionID != sid
	})
}

func (l *ledger) answering(id frames.RequestID, o frames.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[id] = append(l.sent[id], o)
}

func (l *ledger) won(id frames.RequestID, o frames.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[id] = o
}

// gave reports whether some client answered id with o.
func (l *ledger) gave(id frames.RequestID, o frames.Outcome) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.sent[id], o)
}

func (l *ledger) renaming(sid frames.SessionID, title string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.titles[sid] == nil {
		l.titles[sid] = &sentTitles{}
	}
	l.titles[sid].names = append(l.titles[sid].names, title)
}

func (l *ledger) renamed(sid frames.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.titles[sid].told = len(l.titles[sid].names)
}

// may returns the titles that a session may have: the last that is known to hold,
// or one given after it. Nil means that nothing is known.
func (l *ledger) may(sid frames.SessionID) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.titles[sid]
	if t == nil || t.told == 0 {
		return nil
	}
	return slices.Clone(t.names[t.told-1:])
}

func (l *ledger) creating(requestID string, sid frames.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.creates[requestID] = sid
}
