package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
	// wants says what free words must be, "" for any; min and max limit a number, or
	// the length of a text.
	wants    string
	min, max *float64
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
	Format      string                     `json:"format"`
	Minimum     *float64                   `json:"minimum"`
	Maximum     *float64                   `json:"maximum"`
	MinLength   *float64                   `json:"minLength"`
	MaxLength   *float64                   `json:"maxLength"`
	Default     json.RawMessage            `json:"default"`
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
		out, why := f.ask(ctx, d)
		failed := why != "" && ctx.Err() == nil // before the answer, which may end the turn
		if l.reply(in.ID, out) && failed {
			d.th.bg.Failed(l.opt.Name + " asked a question that has no answer: " + why)
		}
	})
}

// maxRounds is how often people are asked for what a form needs.
const maxRounds = 3

// ask asks for all that the form needs; what does not fit is asked for again. why says
// why there is no answer, where no person said so.
func (f form) ask(ctx context.Context, d desk) (out elicitationAnswer, why string) {
	have, open := agent.Answers{Outcome: frames.Answered, Cause: frames.CauseReply}, f.questions
	for range maxRounds {
		a, err := d.question(ctx, open...)
		switch {
		case err != nil:
			return elicitationAnswer{Action: "cancel"}, "nobody could be asked: " + err.Error()
		case a.Outcome != frames.Answered && a.Cause == frames.CauseReply:
			return elicitationAnswer{Action: "decline"}, ""
		case a.Outcome != frames.Answered:
			return elicitationAnswer{Action: "cancel"}, ""
		}
		have.Answers = append(a.Answers, have.Answers...) // the newest come first
		if out, open, why = f.answer(have); why == "" {
			return out, ""
		}
	}
	return elicitationAnswer{Action: "decline"}, why
}

// formOf makes questions of a form. why says what makes that impossible.
func formOf(p elicitation) (f form, why string) {
	if p.Mode == "url" {
		if u, err := url.Parse(p.URL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return f, "it names no web address: " + strconv.Quote(p.URL[:min(len(p.URL), 200)])
		}
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
	fd.wants, fd.min, fd.max = p.wants()
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
	q.Question += p.hint(fd)
	f.fields, f.questions = append(f.fields, fd), append(f.questions, q)
}

// wants says what free words for the property must be, and their limits.
func (p property) wants() (words string, lo, hi *float64) {
	unit := ""
	switch p.Type {
	case "integer":
		words, lo, hi = "a whole number", p.Minimum, p.Maximum
	case "number":
		words, lo, hi = "a number", p.Minimum, p.Maximum
	case "string":
		if lo, hi, unit = p.MinLength, p.MaxLength, " characters"; lo != nil || hi != nil {
			words = "text"
		}
	}
	if lo != nil {
		words += fmt.Sprintf(", at least %v%s", *lo, unit)
	}
	if hi != nil {
		words += fmt.Sprintf(", at most %v%s", *hi, unit)
	}
	return words, lo, hi
}

// hint says in brackets what the form says of an answer.
func (p property) hint(fd field) string {
	var parts []string
	if len(fd.choices) == 0 {
		parts = append(parts, fd.wants, p.Format)
	}
	if v := acprpc.Plain(p.Default); !acprpc.IsNull(p.Default) && v != "" {
		parts = append(parts, "default: "+v)
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	if len(parts) == 0 {
		return ""
	}
	return " (" + frames.ValidText(strings.Join(parts, "; ")) + ")"
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

// answer is what a person said in the agent's form. Where something does not fit, open
// are the questions to ask again, and why says what was wrong with the last of them.
func (f form) answer(a agent.Answers) (out elicitationAnswer, open []frames.Question, why string) {
	out = elicitationAnswer{Action: "accept", Content: map[string]any{}}
	for i, fd := range f.fields {
		if fd.kind == "url" {
			return elicitationAnswer{Action: "accept"}, nil, ""
		}
		var said frames.Answer
		if at := slices.IndexFunc(a.Answers, func(x frames.Answer) bool { return x.ID == fd.key }); at >= 0 {
			said = a.Answers[at]
		}
		if wrong := fd.fill(out.Content, said); wrong != "" {
			q := f.questions[i]
			why = fmt.Sprintf("%q needs %s", q.Question, wrong)
			q.Question = "This needs " + wrong + ". " + q.Question
			open = append(open, q)
		}
	}
	return out, open, why
}

// fill puts an answer into the form's content, or says what it needs to be.
func (fd field) fill(content map[string]any, said frames.Answer) (wrong string) {
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
		return ""
	case len(values) == 0 && fd.required:
		return "an answer"
	case len(values) == 0:
		return ""
	}
	v, ok := fd.typed(values[0])
	if !ok {
		return fd.wants
	}
	content[fd.key] = v
	return ""
}

// typed is text as a value of the property's type, if it can be one.
func (fd field) typed(text string) (any, bool) {
	switch fd.kind {
	case "boolean":
		return text == "true", true
	case "integer":
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 53)
		return n, err == nil && fd.within(float64(n))
	case "number":
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		return n, err == nil && fd.within(n)
	}
	return text, len(fd.choices) > 0 || fd.within(float64(utf8.RuneCountInString(text)))
}

// within reports whether n, a number or a length, keeps the property's limits.
func (fd field) within(n float64) bool {
	return (fd.min == nil || n >= *fd.min) && (fd.max == nil || n <= *fd.max)
}
