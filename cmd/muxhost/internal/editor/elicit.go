package editor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc"
)

// noteKey is the field for free text beside the options of another.
func noteKey(id string) string { return id + "_note" }

// question asks a person. An editor without forms is told how to answer elsewhere: a
// permission request for each option could be answered by an editor's own rules.
func (c *card) question() {
	at := c.th.shownIn()
	if !c.th.b.editor.forms() {
		at.tell("warning", fmt.Sprintf("The agent asks:%s\nTo answer: muxhost answer %s%s", asked(c.p.Questions), c.p.ID, c.th.b.o.Hint))
		return
	}
	at.announce()
	params := obj{
		"sessionId": at.id, "mode": "form", "message": message(c.p.Questions), "requestedSchema": form(c.p.Questions),
		"_meta": obj{"muxhost": c.meta()},
	}
	if at == c.th {
		set(params, "toolCallId", string(c.p.CallID))
	}
	c.request("elicitation/create", params, c.elicited)
}

// asked is questions as text.
func asked(questions []frames.Question) string {
	var b strings.Builder
	for _, q := range questions {
		b.WriteString("\n  " + q.Question)
		for _, o := range q.Options {
			b.WriteString("\n    - " + o.Label)
		}
	}
	return b.String()
}

// message is what a form says above its fields.
func message(questions []frames.Question) string {
	for _, q := range questions {
		if q.Header != "" {
			return q.Header
		}
	}
	if len(questions) == 1 {
		return questions[0].Question
	}
	return "The agent asks"
}

// form is questions as a form's schema, one field each. It is written in order,
// because editors ask in that order.
func form(questions []frames.Question) json.RawMessage {
	var b strings.Builder
	required := []string{}
	add := func(key string, field obj) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.Write(acprpc.Marshal(key))
		b.WriteByte(':')
		b.Write(acprpc.Marshal(field))
	}
	for _, q := range questions {
		add(q.ID, field(q))
		switch {
		case len(q.Options) > 0 && q.AllowText:
			add(noteKey(q.ID), obj{"type": "string", "title": "Other"})
		default:
			required = append(required, q.ID)
		}
	}
	return acprpc.Marshal(obj{"type": "object", "properties": json.RawMessage("{" + b.String() + "}"), "required": required})
}

// field is the field of one question.
func field(q frames.Question) obj {
	f := obj{"type": "string", "title": q.Question}
	set(f, "description", q.Header)
	if len(q.Options) == 0 {
		return f
	}
	options := []obj{}
	for _, o := range q.Options {
		choice := obj{"const": o.Label, "title": o.Label}
		set(choice, "description", o.Description)
		options = append(options, choice)
	}
	if q.MultiSelect {
		f["type"], f["items"] = "array", obj{"anyOf": options}
		return f
	}
	f["oneOf"] = options
	return f
}

// elicited takes the editor's answer to a form: accepted, it answers; declined, it
// cancels the question; all else leaves it to others.
func (c *card) elicited(r acprpc.Response) {
	var a struct {
		Action  string                     `json:"action"`
		Content map[string]json.RawMessage `json:"content"`
	}
	answer := rpc.QuestionParams{SessionID: c.th.id, ID: c.p.ID}
	if r.Err == nil {
		_ = json.Unmarshal(r.Result, &a) // one that does not read is none
	}
	switch a.Action {
	case "accept":
		answer.Answers = answers(c.p.Questions, a.Content)
	case "decline":
		answer.Cancel = true
	default:
		c.th.b.log.Info("the editor did not answer a question; it stays open for others", slog.String("id", string(c.p.ID)))
		return
	}
	c.respond(func(ctx context.Context) error { return c.th.b.host.Answer(ctx, answer) })
}

// answers reads a form's content.
func answers(questions []frames.Question, content map[string]json.RawMessage) []frames.Answer {
	var out []frames.Answer
	for _, q := range questions {
		a := frames.Answer{ID: q.ID}
		for _, v := range values(content[q.ID]) {
			if slices.ContainsFunc(q.Options, func(o frames.QuestionOption) bool { return o.Label == v }) {
				a.Labels = append(a.Labels, v)
			} else {
				a.Text = v
			}
		}
		if note := values(content[noteKey(q.ID)]); len(q.Options) > 0 && len(note) > 0 && note[0] != "" {
			a.Text = note[0]
		}
		out = append(out, a)
	}
	return out
}

// values are a value, or those of a list, as text.
func values(raw json.RawMessage) []string {
	var list []json.RawMessage
	if acprpc.IsNull(raw) {
		return nil
	}
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var out []string
	for _, v := range list {
		out = append(out, acprpc.Plain(v))
	}
	return out
}
