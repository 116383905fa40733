package llm

import (
	"context"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

const (
	summaryIntro = "What happened so far in this conversation, in short (the messages themselves are gone):"

	summarySystem = "You shorten conversations between a person and a coding agent, so that the agent can go on without the original. " +
		"Keep: what the person wants, word for word where it matters; decisions and their reasons; the names of files, functions and " +
		"commands that matter; what was done, what failed and why; what is still to do. Write plain text, as short as that allows."

	// bytesPerToken is a cautious guess for text whose tokens nobody counted.
	bytesPerToken = 3
	keepPrompt    = 4 << 10 // bytes of the person's last words in a summary
	partOfSummary = 2 << 10 // bytes of one message that the summary is made of
	// unknownWindow is what is made room for where nobody says how large the
	// window is, in tokens.
	unknownWindow = 8 << 10
)

// measured notes how many tokens a request of so many bytes had.
func (c *conversation) measured(rep *reply, bytes int) {
	if rep.usage != nil && rep.usage.PromptTokens > 0 {
		c.tokens, c.bytes = rep.usage.PromptTokens, bytes
	}
}

// estimate is about how many tokens messages are, from what the server counted
// last and what came since.
func (c *conversation) estimate(bytes int) int64 {
	if c.tokens == 0 || bytes < c.bytes {
		return int64(bytes) / bytesPerToken
	}
	return c.tokens + int64(bytes-c.bytes)/bytesPerToken
}

// tooLarge reports whether a request leaves too little of the window for an answer.
func (r *run) tooLarge(bytes int) bool {
	w := r.opt.ContextWindow
	if w <= 0 {
		return false
	}
	room := r.opt.MaxTokens
	if room <= 0 {
		room = w / 8
	}
	return r.conv.estimate(bytes) > w-room
}

// compact replaces the older part of the conversation by a summary that the model
// makes of it. It is false where there is nothing that could be left out.
func (r *run) compact(ctx context.Context, cfg Config, ms []entry) (bool, error) {
	w := r.opt.ContextWindow
	if w <= 0 {
		w = unknownWindow
	}
	n, upTo := cut(ms, int(w/4)*bytesPerToken)
	if n == 0 {
		return false, nil
	}
	q := request{Model: cfg.Model, Temperature: cfg.Temperature, MaxTokens: r.opt.MaxTokens, Messages: []message{
		{Role: "system", Content: text(summarySystem)},
		{Role: "user", Content: text("Shorten this conversation:\n\n" + transcript(ms[:n], int(w/2)*bytesPerToken))},
	}}
	rep, err := r.generate(ctx, cfg, q, quiet{})
	if err != nil {
		return false, r.failure(ctx, err, cfg.Model)
	}
	summary := strings.TrimSpace(rep.text.String())
	if summary == "" {
		return false, fmt.Errorf("llm: the conversation does not fit into the model's window, and %q made no summary of it: "+
			"begin a new session, or choose a model with a larger window", cfg.Model)
	}
	if !strings.Contains(userWords(ms[n:]), r.prompt) {
		summary += "\n\nThe person's last words were:\n" + middle(r.prompt, keepPrompt)
	}
	summary = middle(summary, int(w/4)*bytesPerToken)
	return true, r.t.Emit(ctx, frames.SessionCompacted{UpTo: upTo, Content: []frames.ContentBlock{frames.Text(summary)}})
}

// cut returns how many messages to replace, and the last event of those: what is
// left begins a round and has at most keep bytes, unless it is the last round
// alone. Zero means that there is nothing to leave out.
func cut(ms []entry, keep int) (n int, upTo frames.Seq) {
	var most frames.Seq
	left := size(ms)
	for i := range ms {
		if i > 0 && most > 0 && ms[i].Role != "tool" && clean(ms[i:], most) {
			n, upTo = i, most
			if left <= keep {
				return n, upTo
			}
		}
		most = max(most, ms[i].seq)
		left -= size(ms[i : i+1])
	}
	if len(ms) > 0 && ms[len(ms)-1].Role == "tool" && most > 0 && n < len(ms) && tailSize(ms, n) > keep {
		return len(ms), most // the last round is too large by itself
	}
	return n, upTo
}

func tailSize(ms []entry, n int) int { return size(ms[n:]) }

// clean reports whether nothing in ms is from an event up to seq. What is not in
// the log yet counts as later.
func clean(ms []entry, seq frames.Seq) bool {
	for _, m := range ms {
		if m.seq < seq || m.seq == seq && m.Role != "user" {
			return false
		}
	}
	return true
}

func userWords(ms []entry) string {
	var all []string
	for _, m := range ms {
		if m.Role == "user" {
			all = append(all, m.Content.text())
		}
	}
	return strings.Join(all, "\n")
}

// transcript writes messages for the summary, at most limit bytes: the middle of
// what is longer is left out.
func transcript(ms []entry, limit int) string {
	var b strings.Builder
	for i, m := range ms {
		part := partOfSummary
		if i == 0 { // an earlier summary, or what began it all
			part = limit / 2
		}
		if s := m.Content.text(); s != "" {
			fmt.Fprintf(&b, "%s: %s\n", m.Role, middle(s, part))
		}
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, "%s calls %s %s\n", m.Role, c.Function.Name, middle(c.Function.Arguments, part))
		}
	}
	return middle(b.String(), limit)
}

// quiet takes an answer that nobody is shown.
type quiet struct{}

func (quiet) text(string) error { return nil }

func (quiet) reasoning(string) error { return nil }
