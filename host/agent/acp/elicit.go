package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// elicitation asks a person to fill in a form, or to open an address.
type elicitation struct {
	SessionID string          `json:"sessionId"`
	Mode      string          `json:"mode"`
	Message   string          `json:"message"`
	URL       string          `json:"url"`
	Schema    json.RawMessage `json:"requestedSchema"`
	raw       json.RawMessage
}

// form is a form as questions.
type form struct {
	fields    []field
	questions []frames.Question
}

// field is one property of a form.
type field struct {
	key, kind string // of the JSON schema
	required  bool
	choices   []choice
	multi     bool
	// note is the key of the free-text property that belongs to this one.
	note string
	// other is the choice that means none of the others.
	other string
}

type choice struct{ value, label string }

// property is one property of a form's schema.
type property struct {
	Type        string                     `json:"type"`
	Title       string                     `json:"title"`
	Description string                     `json:"description"`
	OneOf       []constant                 `json:"oneOf"`
	AnyOf       []constant                 `json:"anyOf"`
	Enum        []string                   `json:"enum"`
	Items       *property                  `json:"items"`
	Meta        map[string]json.RawMessage `json:"_meta"`
}

type constant struct {
	Const       string `json:"const"`
	Title       string `json:"title"`
	Description string `json:"description"`
}

// flag reports whether any vendor set a flag of the property.
func (p property) flag(name string) bool {
	for _, raw := range p.Meta {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) == nil && string(m[name]) == "true" {
			return true
		}
	}
	return string(p.Meta[name]) == "true"
}

// elicit takes a request for a person's words.
func (l *link) elicit(in acprpc.Inbound, p elicitation) {
	th := l.thread(p.SessionID)
	if th == nil {
		l.hold(func() { l.elicit(in, p) })
		return
	}
	again := func() { l.elicit(in, p) }
	if th.waiting(again) || l.threads[p.SessionID] == nil && l.defers(again) {
		return
	}
	th.vendor("elicitation", p.raw)
	f, why := formOf(p)
	if why != "" {
		if l.reply(in.ID, elicitationAnswer{Action: "decline"}) {
			th.bg.Failed(l.opt.Name + " asked a question that was declined: " + why)
		}
		return
	}
	d := th.desk()
	d.th.settleLoose()
	l.attend(in, d, func(ctx context.Context) {
		a, err := d.question(ctx, f.questions...)
		if err != nil {
			a = agent.Answers{Outcome: frames.Cancelled}
		}
		if l.reply(in.ID, f.answer(a)) && err != nil && d.ts == nil {
			d.th.bg.Failed(fmt.Sprintf("%s asked a question, which was cancelled, because nobody could be asked: %v", l.opt.Name, err))
		}
	})
}

// formOf makes questions of a form. why says what makes that impossible.
func formOf(p elicitation) (f form, why string) {
	if p.Mode == "url" {
		f.fields = []field{{kind: "url"}}
		f.questions = []frames.Question{{
			ID: "url", Question: strings.TrimSpace(p.Message + "\n" + p.URL),
			Options: []frames.QuestionOption{{Label: "Done"}},
		}}
		return f, ""
	}
	var schema struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if json.Unmarshal(p.Schema, &schema) != nil {
		return f, "its form is not as the protocol says"
	}
	keys, props, ok := properties(schema.Properties)
	if !ok || len(keys) == 0 || len(keys) > 64 {
		return f, "its form has no fields that can be asked for"
	}
	for _, key := range keys {
		if props[key].flag("isSecret") || props[key].flag("secret") {
			return f, "it asks for a secret, and answers are kept in the session's log"
		}
		f.add(key, props[key], slices.Contains(schema.Required, key))
	}
	if f.questions[0].Header == "" && p.Message != f.questions[0].Question {
		f.questions[0].Header = frames.ValidText(p.Message)
	}
	return f, ""
}

// properties reads the properties of a schema in the order in which they are
// written, which is the order in which they are asked for.
func properties(raw json.RawMessage) (keys []string, props map[string]property, ok bool) {
	if json.Unmarshal(raw, &props) != nil {
		return nil, nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, nil, false
	}
	for d.More() {
		key, err := d.Token()
		var skipped json.RawMessage
		if err != nil || d.Decode(&skipped) != nil {
			return nil, nil, false
		}
		if name, text := key.(string); text && !slices.Contains(keys, name) {
			keys = append(keys, name)
		}
	}
	return keys, props, true
}

// add adds one property: as a question, or as the free text of the one before.
func (f *form) add(key string, p property, required bool) {
	fd := field{key: key, kind: p.Type, required: required, choices: p.choices()}
	if n := len(f.fields) - 1; n >= 0 && len(fd.choices) == 0 && p.Type == "string" && !required &&
		len(f.fields[n].choices) > 0 && strings.HasPrefix(key, f.fields[n].key+"_") {
		f.fields[n].note, f.questions[n].AllowText = key, true
		return
	}
	if p.Type == "array" && p.Items != nil {
		fd.choices, fd.multi = p.Items.choices(), true
	}
	if p.flag("isOther") && len(fd.choices) > 0 {
		fd.other = fd.choices[len(fd.choices)-1].value
	}
	q := frames.Question{ID: key, Question: frames.ValidText(p.Title), Header: frames.ValidText(p.Description), MultiSelect: fd.multi}
	if q.Question == "" {
		q.Question, q.Header = q.Header, ""
	}
	if q.Question == "" {
		q.Question = key
	}
	for _, c := range fd.choices {
		q.Options = append(q.Options, frames.QuestionOption{Label: c.label, Description: p.described(c.value)})
	}
	q.AllowText = len(fd.choices) == 0
	f.fields, f.questions = append(f.fields, fd), append(f.questions, q)
}

// choices are the values that a property may have.
func (p property) choices() []choice {
	var out []choice
	for _, c := range slices.Concat(p.OneOf, p.AnyOf) {
		label := c.Title
		if label == "" {
			label = c.Const
		}
		out = append(out, choice{c.Const, frames.ValidText(label)})
	}
	for _, v := range p.Enum {
		out = append(out, choice{v, frames.ValidText(v)})
	}
	if p.Type == "boolean" {
		out = []choice{{"true", "Yes"}, {"false", "No"}}
	}
	return out
}

// described is the description of a choice.
func (p property) described(value string) string {
	if p.Items != nil {
		return p.Items.described(value)
	}
	for _, c := range slices.Concat(p.OneOf, p.AnyOf) {
		if c.Const == value {
			return frames.ValidText(c.Description)
		}
	}
	return ""
}

// answer is a person's answer in the agent's form. What a required field needs and
// a person did not say makes it a refusal.
func (f form) answer(a agent.Answers) elicitationAnswer {
	switch {
	case a.Outcome != frames.Answered && a.Cause == frames.CauseReply:
		return elicitationAnswer{Action: "decline"}
	case a.Outcome != frames.Answered:
		return elicitationAnswer{Action: "cancel"}
	}
	out := elicitationAnswer{Action: "accept", Content: map[string]any{}}
	for _, fd := range f.fields {
		if fd.kind == "url" {
			return elicitationAnswer{Action: "accept"}
		}
		i := slices.IndexFunc(a.Answers, func(x frames.Answer) bool { return x.ID == fd.key })
		var said frames.Answer
		if i >= 0 {
			said = a.Answers[i]
		}
		if !fd.fill(out.Content, said) {
			return elicitationAnswer{Action: "decline"}
		}
	}
	return out
}

// fill puts an answer into the form's content.
func (fd field) fill(content map[string]any, said frames.Answer) bool {
	values := []string{}
	for _, label := range said.Labels {
		for _, c := range fd.choices {
			if c.label == label {
				values = append(values, c.value)
				break
			}
		}
	}
	if said.Text != "" && fd.note != "" {
		content[fd.note] = said.Text
		if len(values) == 0 && fd.other != "" {
			values = append(values, fd.other)
		}
	}
	if len(fd.choices) == 0 && said.Text != "" {
		values = append(values, said.Text)
	}
	switch {
	case fd.multi && (len(values) > 0 || fd.required):
		content[fd.key] = values
		return true
	case len(values) == 0:
		return !fd.required
	}
	v, ok := typed(fd.kind, values[0])
	if ok {
		content[fd.key] = v
	}
	return ok
}

// typed is text as a value of a JSON schema's type.
func typed(kind, text string) (any, bool) {
	switch kind {
	case "boolean":
		return text == "true", true
	case "integer":
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 53)
		return n, err == nil
	case "number":
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		return n, err == nil
	}
	return text, true
}
