package llm

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// The words of the chat-completions format that are used here.
type (
	// request is the body of a request.
	request struct {
		Model         string         `json:"model"`
		Messages      []message      `json:"messages"`
		Tools         []toolDef      `json:"tools,omitempty"`
		Temperature   *float64       `json:"temperature,omitempty"`
		MaxTokens     int64          `json:"max_tokens,omitempty"`
		Effort        string         `json:"reasoning_effort,omitempty"`
		Stream        bool           `json:"stream"`
		StreamOptions *streamOptions `json:"stream_options,omitempty"`
		// MaxCompletionTokens is what newer models want in place of MaxTokens.
		MaxCompletionTokens int64 `json:"max_completion_tokens,omitempty"`
	}
	streamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	// message is one message to the model.
	message struct {
		Role       string     `json:"role"`
		Content    content    `json:"content"`
		ToolCalls  []toolCall `json:"tool_calls,omitempty"`
		ToolCallID string     `json:"tool_call_id,omitempty"`
	}
	// part is one piece of a message's content: text, or an image.
	part struct {
		Type     string    `json:"type"`
		Text     string    `json:"text,omitempty"`
		ImageURL *imageURL `json:"image_url,omitempty"`
		// from is the block that the part is still to be filled from.
		from *frames.ContentBlock
	}
	imageURL struct {
		URL string `json:"url"`
	}
	toolCall struct {
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function functionCall `json:"function"`
	}
	functionCall struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	toolDef struct {
		Type     string      `json:"type"`
		Function functionDef `json:"function"`
	}
	functionDef struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
)

// content is a message's content; without images it is written as a string, which
// every server understands.
type content []part

func text(s string) content { return content{{Type: "text", Text: s}} }

// MarshalJSON writes a string, or the parts where one is an image.
func (c content) MarshalJSON() ([]byte, error) {
	for _, p := range c {
		if p.ImageURL != nil {
			return marshal([]part(c))
		}
	}
	return marshal(c.text())
}

func (c content) text() string {
	var all []string
	for _, p := range c {
		if p.Text != "" {
			all = append(all, p.Text)
		}
	}
	return strings.Join(all, "\n\n")
}

// size is about how many bytes the content is to a model.
func (c content) size() int {
	n := 0
	for _, p := range c {
		n += len(p.Text)
		if p.ImageURL != nil {
			n += imageBytes
		}
	}
	return n
}

// imageBytes is what an image counts in estimates.
const imageBytes = 6000

// chunk is one event of a stream, or a whole answer of a server that does not
// stream.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *wireUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  loose           `json:"object"` // "error" where the chunk itself is one
}

type choice struct {
	Index        int    `json:"index"`
	Delta        *delta `json:"delta"`
	Message      *delta `json:"message"`
	FinishReason string `json:"finish_reason"`
}

type delta struct {
	Content          loose       `json:"content"`
	ReasoningContent loose       `json:"reasoning_content"`
	Reasoning        loose       `json:"reasoning"`
	Refusal          loose       `json:"refusal"`
	ToolCalls        []callDelta `json:"tool_calls"`
}

type callDelta struct {
	Index    *int  `json:"index"`
	ID       loose `json:"id"`
	Function struct {
		Name      loose     `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

type wireUsage struct {
	PromptTokens        int64 `json:"prompt_tokens"`
	CompletionTokens    int64 `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// loose is text that may come as null, as a string, as a number, or as a list of
// text parts. What is none of these says nothing.
type loose string

// UnmarshalJSON never fails.
func (l *loose) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*l = loose(s)
		return nil
	}
	var n json.Number
	if json.Unmarshal(b, &n) == nil {
		*l = loose(n)
		return nil
	}
	var parts []part
	if json.Unmarshal(b, &parts) == nil {
		for _, p := range parts {
			s += p.Text
		}
		*l = loose(s)
	}
	return nil
}

// arguments are those of a call, or a piece of them: a string, or from some
// servers the JSON object itself.
type arguments string

// UnmarshalJSON never fails.
func (a *arguments) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err == nil {
		*a = arguments(s)
	} else {
		*a = arguments(b)
	}
	return nil
}

// marshal is json.Marshal without escapes for HTML: models and people read it.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
