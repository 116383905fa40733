package acp

import (
	"encoding/json"

	"github.com/muxhost/muxhost/frames"
)

// maxCompactions bounds how many compactions of a thread may be open.
const maxCompactions = 8

// compaction is one of the agent's memory that has not ended.
type compaction struct {
	upTo    frames.Seq // the log's end when it began
	summary []frames.ContentBlock
}

// compact takes news of a compaction. One that completes replaces what the model saw
// before it began.
func (th *thread) compact(u update) {
	th.vendorOnce(u)
	id := u.text("compactionId")
	c := th.compactions[id]
	if c == nil {
		if len(th.compactions) >= maxCompactions {
			clear(th.compactions)
		}
		c = &compaction{upTo: th.head()}
		th.compactions[id] = c
	}
	if u.kind == "compaction_summary_chunk" {
		c.add(u.fields["content"])
		return
	}
	if raw, given := u.fields["summary"]; given {
		c.summary = nil
		var blocks []json.RawMessage
		if json.Unmarshal(raw, &blocks) == nil {
			for _, b := range blocks {
				c.add(b)
			}
		}
	}
	switch u.text("status") {
	case "completed":
		if c.upTo > 0 {
			th.emit(frames.SessionCompacted{UpTo: c.upTo, Content: c.summary})
		}
		delete(th.compactions, id)
	case "failed", "cancelled":
		delete(th.compactions, id)
	}
}

// add adds a content block to the summary; text goes on where text ended.
func (c *compaction) add(raw json.RawMessage) {
	var said content
	if json.Unmarshal(raw, &said) != nil {
		return
	}
	b, ok := contentBlock(said)
	if !ok {
		return
	}
	if n := len(c.summary) - 1; n >= 0 && b.Type == "text" && c.summary[n].Type == "text" {
		c.summary[n].Text = frames.Tail(c.summary[n].Text+b.Text, maxBlock)
		return
	}
	c.summary = append(c.summary, b)
}

// head is the number of the last event in the session's log, 0 if it cannot be read.
func (th *thread) head() frames.Seq {
	if th.history == nil {
		return 0
	}
	for {
		events, err := th.history(th.l.storing(), th.seen, historyPage)
		if err != nil {
			return 0
		}
		if len(events) == 0 {
			return th.seen
		}
		th.seen = events[len(events)-1].Seq
	}
}
