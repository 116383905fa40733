package stubllm

import (
	"encoding/json"
	"slices"
	"strings"
)

// conversation is what a request tells of a talk.
type conversation struct {
	steps   []Step
	results int    // tool results behind the last script
	last    string // the newest tool result
	object  bool   // a JSON object is asked for
	stream  bool
	model   string
	tools   []string // names of those that are offered
}

// said takes what a person said; a script in it starts anew.
func (c *conversation) said(text string) {
	if steps, ok := scriptIn(text); ok {
		c.steps, c.results = steps, 0
	}
}

// result takes the result of a tool.
func (c *conversation) result(raw json.RawMessage) {
	c.results++
	c.last = string(raw)
	var s string
	if json.Unmarshal(raw, &s) == nil {
		c.last = s
	}
}

// offered takes the name of a tool.
func (c *conversation) offered(name string) { c.tools = append(c.tools, name) }

const (
	aside       = "Stub title"
	asideObject = `{"next_speaker":"user","reasoning":"stub","title":"Stub title","model_choice":"flash"}`
)

// next is the step to play now.
func (c *conversation) next() Step {
	switch {
	case c.object:
		return Step{Text: asideObject, Chunks: 1}
	case len(c.steps) == 0 || len(c.tools) == 0:
		return Step{Text: aside, Chunks: 1}
	}
	s, left := c.steps[len(c.steps)-1], c.results
	for _, step := range c.steps {
		if len(step.Tools) == 0 || left < len(step.Tools) {
			s = step
			break
		}
		left -= len(step.Tools)
	}
	s.Tools = slices.Clone(s.Tools)
	for i, t := range s.Tools {
		s.Tools[i] = t.fill(c.last)
	}
	return s
}

// texts is the text of a JSON string, or of an array of blocks.
type texts string

// UnmarshalJSON never fails: what has another form has no text.
func (t *texts) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = texts(s)
		return nil
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &blocks) != nil {
		return nil
	}
	var b strings.Builder
	for _, block := range blocks {
		b.WriteString(block.Text + "\n")
	}
	*t = texts(b.String())
	return nil
}

// format is what the answer must look like.
type format struct {
	Type string `json:"type"`
}

func (f format) object() bool { return f.Type != "" && f.Type != "text" }
