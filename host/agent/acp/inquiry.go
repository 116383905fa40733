package acp

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// maxInquiry is the largest number of questions in one permission request.
const maxInquiry = 16

// inquiry reads the questions of a permission request that asks for nothing else: a call
// of the kind "think" whose input is a list of questions alone, beside a way to submit
// them once and one to refuse. Everything else stays a request for permission.
func (p permission) inquiry(t *tool) (f form, ok bool) {
	var in map[string]json.RawMessage
	if t.text("kind") != "think" || json.Unmarshal(t.fields["rawInput"], &in) != nil || len(in) != 1 {
		return f, false
	}
	var asked []struct {
		Header      string `json:"header"`
		Question    string `json:"question"`
		MultiSelect bool   `json:"multiSelect"`
		Options     []struct {
			Label       string `json:"label"`
			Description string `json:"description"`
		} `json:"options"`
	}
	if json.Unmarshal(in["questions"], &asked) != nil || len(asked) == 0 || len(asked) > maxInquiry {
		return f, false
	}
	if pick(p.Options, "allow_once").OptionID == "" || reject(p.Options).OptionID == "" {
		return f, false
	}
	for i, a := range asked {
		fd := field{key: strconv.Itoa(i), kind: "string", required: true, multi: a.MultiSelect}
		q := frames.Question{
			ID: fd.key, Header: frames.ValidText(a.Header), Question: frames.ValidText(a.Question),
			MultiSelect: a.MultiSelect, AllowText: true,
		}
		for _, o := range a.Options {
			label := frames.ValidText(o.Label)
			fd.choices = append(fd.choices, choice{o.Label, label})
			q.Options = append(q.Options, frames.QuestionOption{Label: label, Description: frames.ValidText(o.Description)})
		}
		if q.Question == "" {
			return f, false
		}
		f.fields, f.questions = append(f.fields, fd), append(f.questions, q)
	}
	return f, true
}

// inquire asks the questions of a permission request. What a person says is sent beside
// the option that submits it.
func (l *link) inquire(ctx context.Context, d desk, in acprpc.Inbound, options []permissionOption, f form) {
	a, err := d.question(ctx, f.questions...)
	out := permissionAnswer{Outcome: outcome{Outcome: "cancelled"}}
	switch {
	case err != nil || a.Outcome != frames.Answered && a.Cause != frames.CauseReply:
	case a.Outcome != frames.Answered:
		out.Outcome = reject(options)
	default:
		out.Outcome, out.Answers = pick(options, "allow_once"), map[string]string{}
		for _, said := range a.Answers {
			words := strings.Join(append(said.Labels, said.Text), ", ")
			out.Answers[said.ID] = strings.TrimSuffix(words, ", ")
		}
	}
	if out.Answers == nil && d.ts != nil {
		d.ts.rejected.Store(true)
	}
	failed := err != nil && ctx.Err() == nil
	if l.reply(in.ID, out) && failed {
		d.th.bg.Failed(l.opt.Name + " asked a question that has no answer: nobody could be asked: " + err.Error())
	}
}
