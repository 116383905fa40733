package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muxhost/muxhost/cmd/muxhost/internal/term"
	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// desk holds the cards that wait for a person, oldest first. It belongs to one
// goroutine.
type desk struct {
	a     *app
	c     *client.Client
	cards []frames.Frame // *ApprovalRequested or *QuestionRequested
	shown frames.RequestID
}

func newDesk(a *app, c *client.Client) *desk { return &desk{a: a, c: c} }

// requestOf names what a card asks; "" for other frames.
func requestOf(f frames.Frame) (frames.SessionID, frames.RequestID) {
	switch f := f.(type) {
	case *frames.ApprovalRequested:
		return f.SessionID, f.ID
	case *frames.QuestionRequested:
		return f.SessionID, f.ID
	}
	return "", ""
}

// frame takes cards in and out; it reports whether the desk changed. A baseline
// voids the cards of its session, unless they are repeated.
func (d *desk) frame(f frames.Frame) bool {
	gone := func(match func(frames.Frame) bool) bool {
		n := len(d.cards)
		d.cards = slices.DeleteFunc(d.cards, match)
		return len(d.cards) != n
	}
	byID := func(id frames.RequestID) func(frames.Frame) bool {
		return func(c frames.Frame) bool { _, have := requestOf(c); return have == id }
	}
	switch f := f.(type) {
	case *frames.ApprovalRequested:
		gone(byID(f.ID))
		d.cards = append(d.cards, f)
		return true
	case *frames.QuestionRequested:
		gone(byID(f.ID))
		d.cards = append(d.cards, f)
		return true
	case *frames.ApprovalResolved:
		return gone(byID(f.ID))
	case *frames.QuestionResolved:
		return gone(byID(f.ID))
	case *frames.SessionSubscribed:
		return gone(func(c frames.Frame) bool { sid, _ := requestOf(c); return sid == f.SessionID })
	case *frames.HostSubscribed:
		return gone(func(frames.Frame) bool { return true })
	}
	return false
}

// top returns the oldest card, nil if none waits.
func (d *desk) top() frames.Frame {
	if len(d.cards) == 0 {
		return nil
	}
	return d.cards[0]
}

// unseen reports whether the oldest card was not shown yet.
func (d *desk) unseen() bool {
	_, id := requestOf(d.top())
	return d.top() != nil && id != d.shown
}

// show prints the oldest card, once. Someone who can answer here is told how.
func (d *desk) show(ctx context.Context, interact bool) {
	if !d.unseen() {
		return
	}
	top := d.top()
	_, d.shown = requestOf(top)
	fmt.Fprint(d.a.stderr, d.a.card(ctx, d.c, top, d.a.errStyle))
	if interact {
		fmt.Fprintln(d.a.stderr, " "+keys(top))
		return
	}
	fmt.Fprintln(d.a.stderr, " "+howElsewhere(top))
}

// keys says what can be typed at a card.
func keys(f frames.Frame) string {
	switch f := f.(type) {
	case *frames.ApprovalRequested:
		if f.Truncated != nil {
			return fmt.Sprintf("[yes %s] allow once, unseen parts too  [n] reject  [n WHY]", first8(f.InputHash))
		}
		s := "[y] allow once  [n] reject  [n WHY] and say why"
		if slices.Contains(f.Options, frames.AllowedAlways) {
			s += "  [a] always, here, for 8 h"
		}
		return s
	case *frames.QuestionRequested:
		return "type a number or an answer; an empty line cancels"
	}
	return ""
}

// howElsewhere says how to answer from another terminal.
func howElsewhere(f frames.Frame) string {
	_, raw := requestOf(f)
	id := term.Line(string(raw))
	if _, ok := f.(*frames.QuestionRequested); ok {
		return fmt.Sprintf("muxhost answer %s ANSWER", id)
	}
	return fmt.Sprintf("muxhost approve %s   or   muxhost reject %s", id, id)
}

func first8(s string) string { s = term.Line(s); return s[:min(8, len(s))] }

// answer gives what was typed as the answer to the oldest card.
func (d *desk) answer(ctx context.Context, line string) error {
	line = strings.TrimSpace(line)
	switch top := d.top().(type) {
	case *frames.ApprovalRequested:
		return d.decide(ctx, top, line)
	case *frames.QuestionRequested:
		if line == "" {
			return d.settle(ctx, rpc.QuestionParams{SessionID: top.SessionID, ID: top.ID, Cancel: true})
		}
		answers, err := answersFrom(top.Questions, []string{line})
		if err != nil {
			return err
		}
		return d.settle(ctx, rpc.QuestionParams{SessionID: top.SessionID, ID: top.ID, Answers: answers})
	}
	return nil
}

func (d *desk) decide(ctx context.Context, a *frames.ApprovalRequested, line string) error {
	p := rpc.ApprovalParams{SessionID: a.SessionID, ID: a.ID, InputHash: &a.InputHash}
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case strings.EqualFold(word, "n") || strings.EqualFold(word, "no"):
		p.Outcome, p.Feedback = frames.Rejected, strings.TrimSpace(rest)
	case a.Truncated != nil && !(word == "yes" && rest == first8(a.InputHash)):
		return fmt.Errorf("only a part of the input was shown: type yes %s to allow all of it, or n", first8(a.InputHash))
	case line == "y" || word == "yes":
		p.Outcome = frames.AllowedOnce
	case line == "a" && a.Truncated == nil:
		p.Outcome = frames.AllowedAlways
	default:
		return fmt.Errorf("%q is no answer: %s", d.a.line(line), keys(a))
	}
	return d.settle(ctx, p)
}

// settle sends an answer; the card leaves with its resolved frame, not now.
func (d *desk) settle(ctx context.Context, params any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	method := "approval.respond"
	if _, ok := params.(rpc.QuestionParams); ok {
		method = "question.respond"
	}
	err := d.c.Call(ctx, method, params, nil)
	return wonBy(err)
}

// answersFrom turns typed words into answers: "id=value" for one question of
// several, a label, an option's number, or free text.
func answersFrom(qs []frames.Question, words []string) ([]frames.Answer, error) {
	var out []frames.Answer
	for i, w := range words {
		q, value, err := questionFor(qs, i, w)
		if err != nil {
			return nil, err
		}
		out = append(out, answerTo(q, value))
	}
	if len(out) < len(qs) {
		return nil, fmt.Errorf("%d questions, %d answers: give one for each, as ID=ANSWER", len(qs), len(out))
	}
	return out, nil
}

func questionFor(qs []frames.Question, i int, w string) (frames.Question, string, error) {
	if id, value, ok := strings.Cut(w, "="); ok {
		for _, q := range qs {
			if q.ID == id {
				return q, value, nil
			}
		}
	}
	if i >= len(qs) {
		return frames.Question{}, "", fmt.Errorf("answer %q has no question: there are %d", w, len(qs))
	}
	return qs[i], w, nil
}

func answerTo(q frames.Question, value string) frames.Answer {
	a := frames.Answer{ID: q.ID}
	for part := range strings.SplitSeq(value, ",") {
		part = strings.TrimSpace(part)
		if n, err := strconv.Atoi(part); err == nil && n >= 1 && n <= len(q.Options) {
			a.Labels = append(a.Labels, q.Options[n-1].Label)
			continue
		}
		for _, o := range q.Options {
			if strings.EqualFold(o.Label, part) {
				a.Labels = append(a.Labels, o.Label)
			}
		}
	}
	if len(a.Labels) == 0 || !q.MultiSelect && len(a.Labels) > 1 {
		return frames.Answer{ID: q.ID, Text: value}
	}
	return a
}
