package stubllm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
)

// Step is one answer of the model. The zero Step says nothing and ends the turn.
type Step struct {
	// Text is said in Chunks pieces, 3 if zero, with DelayMS milliseconds after each.
	Text    string `json:"text,omitempty"`
	Chunks  int    `json:"chunks,omitempty"`
	DelayMS int    `json:"delay_ms,omitempty"`
	// Think is reasoning that comes before the text.
	Think string `json:"think,omitempty"`
	// Tools are called after the text, all of them at once.
	Tools []Tool `json:"tools,omitempty"`
	// Status, of 400 and more, answers with that HTTP status and an error.
	Status int `json:"status,omitempty"`
	// HangMS is how long the stream is silent between the text and the tools.
	HangMS int `json:"hang_ms,omitempty"`
	// Cut breaks the connection after the text, where the tools would be.
	Cut bool `json:"cut,omitempty"`
}

// Tool is a call of a tool. [Call] makes the usual kind.
type Tool struct {
	// Space is the namespace of the tool; only OpenAI Responses have one.
	Space string `json:"ns,omitempty"`
	Name  string `json:"name"`
	// Args is a JSON object; absent means an empty one. "{{field}}" in it becomes
	// the text of that field in the newest tool result.
	Args json.RawMessage `json:"args,omitempty"`
	// Custom, of an OpenAI Responses custom tool, is free text in place of Args.
	Custom string `json:"custom,omitempty"`
}

// Call is a call of the tool name. Args is what encodes as a JSON object; what
// does not encode panics.
func Call(name string, args any) Tool { return Tool{Name: name, Args: encode(args)} }

// Script is a word that makes the model play the steps, one after the other, when
// it stands in a prompt: as the rest of a line, or before a space. The last step
// repeats.
func Script(steps ...Step) string {
	return marker + base64.StdEncoding.EncodeToString(encode(steps))
}

const marker = "STUB64:"

var (
	script = regexp.MustCompile(marker + `([A-Za-z0-9+/=]+)`)
	slot   = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// scriptIn finds the last script in text.
func scriptIn(text string) ([]Step, bool) {
	all := script.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return nil, false
	}
	b, err := base64.StdEncoding.DecodeString(all[len(all)-1][1])
	var steps []Step
	if err != nil || json.Unmarshal(b, &steps) != nil {
		return nil, false
	}
	return steps, true
}

// arguments is the JSON text of the tool's arguments.
func (t Tool) arguments() string {
	if len(t.Args) == 0 {
		return "{}"
	}
	return string(t.Args)
}

// fill puts fields of result, the text of a tool's result, into the arguments.
func (t Tool) fill(result string) Tool {
	t.Args = slot.ReplaceAllFunc(t.Args, func(b []byte) []byte {
		field := regexp.MustCompile(`"` + string(b[2:len(b)-2]) + `\\?"\s*:\s*\\?"([^"\\]+)`)
		if m := field.FindStringSubmatch(result); m != nil {
			return []byte(m[1])
		}
		return b
	})
	return t
}

// pieces cuts the text at character boundaries.
func (s Step) pieces() []string {
	r := []rune(s.Text)
	n := s.Chunks
	if n < 1 {
		n = 3
	}
	n = min(n, len(r))
	out := make([]string, 0, n)
	for i := range n {
		out = append(out, string(r[i*len(r)/n:(i+1)*len(r)/n]))
	}
	return out
}

// encode is v as JSON, as models write it: < and & are no escapes.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("stubllm: %v", err)) // a script that a test wrote
	}
	return bytes.TrimSpace(b.Bytes())
}
