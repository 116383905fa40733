package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Bounds of one answer.
const (
	maxReply = 4 << 20 // bytes of text, reasoning and arguments together
	maxCalls = 64
)

// reply is what a model answered, as far as it came.
type reply struct {
	text, reasoning strings.Builder
	calls           []*call
	finish          string
	refused         bool
	usage           *wireUsage

	started bool // something of the answer came
	done    bool // the stream said that it is over
	size    int
	said    said
}

// call is one tool call of an answer, whole once the answer is.
type call struct {
	index int
	id    string // the server's
	name  string
	args  strings.Builder
}

// said takes the pieces of an answer as they come.
type said interface {
	text(s string) error
	reasoning(s string) error
}

// errCut means that a stream ended before the answer was whole.
var errCut = errors.New("the connection was cut before the answer was whole")

// take takes the data of one event.
func (r *reply) take(data string) error {
	switch data = strings.TrimSpace(data); data {
	case "": // keeps the connection alive
		return nil
	case "[DONE]":
		r.done = true
		return nil
	}
	var c chunk
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return r.end(fmt.Errorf("an event is no JSON: %w", err))
	}
	switch {
	case len(c.Error) > 0 && !bytes.Equal(c.Error, []byte("null")):
		return streamError(c.Error)
	case c.Object == "error":
		return streamError(json.RawMessage(data))
	}
	if c.Usage != nil {
		r.usage = c.Usage
	}
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue // one answer was asked for
		}
		if err := r.choice(ch); err != nil {
			return err
		}
	}
	return nil
}

func (r *reply) choice(ch choice) error {
	for _, d := range []*delta{ch.Delta, ch.Message} {
		if d == nil {
			continue
		}
		if err := r.delta(d); err != nil {
			return err
		}
	}
	if ch.FinishReason == "error" {
		return &serverError{message: "the answer ended with an error"}
	}
	if ch.FinishReason != "" {
		r.finish = ch.FinishReason
	}
	return nil
}

func (r *reply) delta(d *delta) error {
	thought := string(d.ReasoningContent)
	if thought == "" {
		thought = string(d.Reasoning)
	}
	r.size += len(thought) + len(d.Content) + len(d.Refusal)
	if thought != "" {
		r.started = true
		r.reasoning.WriteString(thought)
		if err := r.said.reasoning(thought); err != nil {
			return err
		}
	}
	if d.Refusal != "" {
		r.refused = true
	}
	for _, s := range []loose{d.Content, d.Refusal} {
		if s == "" {
			continue
		}
		r.started = true
		r.text.WriteString(string(s))
		if err := r.said.text(string(s)); err != nil {
			return err
		}
	}
	for _, c := range d.ToolCalls {
		r.callDelta(c)
	}
	switch {
	case r.size > maxReply:
		return fmt.Errorf("the model's answer passed %d bytes and was given up", maxReply)
	case len(r.calls) > maxCalls:
		return fmt.Errorf("the model made more than %d tool calls at once and was given up", maxCalls)
	}
	return nil
}

// callDelta adds a piece to the call that it belongs to.
func (r *reply) callDelta(d callDelta) {
	r.started = true
	r.size += len(d.Function.Name) + len(d.Function.Arguments)
	c := r.callFor(d)
	if c == nil {
		c = &call{id: string(d.ID)}
		if d.Index != nil {
			c.index = *d.Index
		}
		r.calls = append(r.calls, c)
	}
	if c.id == "" {
		c.id = string(d.ID)
	}
	if c.name == "" {
		c.name = string(d.Function.Name)
	}
	c.args.WriteString(string(d.Function.Arguments))
}

// callFor finds the call that a piece belongs to; nil where it begins a new one.
func (r *reply) callFor(d callDelta) *call {
	for i := len(r.calls) - 1; i >= 0; i-- {
		c := r.calls[i]
		switch {
		case d.Index != nil && c.index != *d.Index,
			d.Index == nil && d.ID != "" && d.Function.Name == "" && c.id != "" && c.id != string(d.ID):
			continue
		case c.endedBy(d):
			return nil
		}
		return c
	}
	return nil
}

// endedBy reports whether d begins another call. Servers that give no index, or the
// same one to every call, tell it by a new id; those that give no ids either, by a
// name behind a name. With an index a name may also be repeated in every piece: there
// a call begins once the arguments before it are whole. A piece without a name begins
// nothing.
func (c *call) endedBy(d callDelta) bool {
	switch {
	case d.Function.Name == "" || c.name == "":
		return false
	case d.ID != "" && c.id != "":
		return string(d.ID) != c.id
	case d.ID == "" && d.Index == nil:
		return true
	}
	return json.Valid([]byte(c.args.String()))
}

// end says how the stream ended that err ended; nil if the answer is whole.
func (r *reply) end(err error) error {
	switch {
	case r.finish != "" || r.done && r.started:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errCut, err)
	case r.done:
		return fmt.Errorf("%w: it ended without an answer", errCut)
	}
	return errCut
}
