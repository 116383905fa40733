package pending

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// MaxAnswerText bounds the feedback of an answer, and the texts and labels of
// all its answers together, in bytes: the audit event must hold them.
const MaxAnswerText = 32 << 10

// admit returns why a may not settle r, nil if it may.
func (t *Table) admit(r *Request, a Answer) error {
	if len(a.Feedback) > MaxAnswerText {
		return &InvalidAnswerError{"feedback", fmt.Sprintf("at most %d bytes", MaxAnswerText)}
	}
	if r.Kind == KindQuestion {
		return admitQuestion(r.Questions, a)
	}
	return t.admitApproval(r, a)
}

// admitApproval holds an answer against what the approval offers.
func (t *Table) admitApproval(r *Request, a Answer) error {
	ap := r.Approval
	settles := a.Outcome.Allows() || a.Outcome == frames.Rejected
	switch {
	case a.Answers != nil || a.Cancel:
		return &InvalidAnswerError{"outcome", "an outcome: this is an approval, not a question"}
	case !settles || !slices.Contains(ap.Options, a.Outcome):
		return &InvalidAnswerError{"outcome", "one of " + words(ap.Options)}
	case a.InputHash != "" && a.InputHash != ap.Hash:
		return &HashMismatchError{ID: r.ID, Want: ap.Hash, Got: a.InputHash}
	case a.Grant != nil && a.Outcome != frames.AllowedAlways:
		return &InvalidAnswerError{"grant", "a grant with the outcome allowed-always only"}
	case ap.Truncated && a.Outcome == frames.AllowedAlways:
		return &InvalidAnswerError{"outcome", "allowed-once or rejected: the input is too large to be shown whole"}
	case ap.Truncated && a.Outcome == frames.AllowedOnce && a.InputHash == "":
		return &InvalidAnswerError{"inputHash", "the hash of the whole input, which is shown truncated"}
	case a.Outcome == frames.AllowedAlways:
		return t.grants.admit(a.Grant, ap.Canonical)
	}
	return nil
}

func words(os []frames.Outcome) string {
	ss := make([]string, len(os))
	for i, o := range os {
		ss[i] = string(o)
	}
	return strings.Join(ss, ", ")
}

// admitQuestion holds an answer against the questions. Questions may be left
// out; at least one must be answered.
func admitQuestion(qs []frames.Question, a Answer) error {
	switch {
	case a.Outcome != "" || a.InputHash != "" || a.Grant != nil:
		return &InvalidAnswerError{"outcome", "answers or cancel: this is a question, not an approval"}
	case a.Cancel && len(a.Answers) > 0:
		return &InvalidAnswerError{"cancel", "either cancel or answers"}
	case a.Cancel:
		return nil
	case len(a.Answers) == 0:
		return &InvalidAnswerError{"answers", "at least one answer, or cancel"}
	case len(a.Answers) > len(qs):
		return &InvalidAnswerError{"answers", fmt.Sprintf("at most %d answers, one for each question", len(qs))}
	}
	seen := make(map[string]bool, len(a.Answers))
	size := 0
	for i, ans := range a.Answers {
		field := fmt.Sprintf("answers[%d]", i)
		q := slices.IndexFunc(qs, func(q frames.Question) bool { return q.ID == ans.ID })
		if q < 0 || seen[ans.ID] {
			return &InvalidAnswerError{field + ".id", "the id of a question that is asked, each at most once"}
		}
		seen[ans.ID] = true
		if err := admitOne(&qs[q], ans, field); err != nil {
			return err
		}
		size += len(ans.Text)
		for _, l := range ans.Labels {
			size += len(l)
		}
	}
	if size > MaxAnswerText {
		return &InvalidAnswerError{"answers", fmt.Sprintf("at most %d bytes of text", MaxAnswerText)}
	}
	return nil
}

// admitOne holds one answer against its question.
func admitOne(q *frames.Question, a frames.Answer, field string) error {
	for i, l := range a.Labels {
		offered := slices.ContainsFunc(q.Options, func(o frames.QuestionOption) bool { return o.Label == l })
		if !offered || slices.Contains(a.Labels[:i], l) {
			return &InvalidAnswerError{field + ".labels", "labels that are offered, each at most once"}
		}
	}
	switch {
	case len(a.Labels) > 1 && !q.MultiSelect:
		return &InvalidAnswerError{field + ".labels", "one label"}
	case a.Text != "" && !q.AllowText && len(q.Options) > 0:
		return &InvalidAnswerError{field + ".text", "no text: choose among the labels"}
	case a.Text == "" && len(a.Labels) == 0:
		return &InvalidAnswerError{field, "a label or a text"}
	}
	return nil
}
