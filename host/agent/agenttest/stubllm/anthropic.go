package stubllm

import "encoding/json"

// readAnthropic reads a request of Anthropic Messages.
func readAnthropic(body []byte, c *conversation) error {
	q, err := decode[struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Format json.RawMessage `json:"output_format"`
		Config struct {
			Format json.RawMessage `json:"format"`
		} `json:"output_config"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}](body)
	if err != nil {
		return err
	}
	c.model, c.stream = q.Model, q.Stream
	c.object = present(q.Format) || present(q.Config.Format)
	for _, m := range q.Messages {
		if m.Role == "user" {
			c.anthropicContent(m.Content)
		}
	}
	for _, t := range q.Tools {
		c.offered(t.Name)
	}
	return nil
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// anthropicContent takes what a message of the user's side holds.
func (c *conversation) anthropicContent(raw json.RawMessage) {
	if whole, err := decode[string](raw); err == nil {
		c.said(whole)
		return
	}
	blocks, _ := decode[[]struct {
		Type    string          `json:"type"`
		Text    string          `json:"text"`
		Content json.RawMessage `json:"content"`
	}](raw)
	for _, b := range blocks {
		switch b.Type {
		case "text":
			c.said(b.Text)
		case "tool_result":
			c.result(b.Content)
		}
	}
}

// playAnthropic tells s in the form of Anthropic Messages.
func playAnthropic(r *reply, s Step) {
	reason := "end_turn"
	if len(s.Tools) > 0 {
		reason = "tool_use"
	}
	usage := func(output int) object {
		return object{"input_tokens": 1000, "output_tokens": output, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	}
	msg := object{
		"id": r.s.id("msg"), "type": "message", "role": "assistant", "model": r.model, "content": list{},
		"stop_reason": nil, "stop_sequence": nil, "usage": usage(1),
	}
	if !r.stream {
		msg["content"], msg["stop_reason"], msg["usage"] = r.anthropicBlocks(s), reason, usage(20)
		r.json(msg)
		return
	}
	r.begin()
	p := &anthropic{reply: r}
	p.send("message_start", object{"message": msg})
	if !p.tell(s) {
		return
	}
	p.send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": usage(20)})
	p.send("message_stop", object{})
}

// anthropicBlocks is s as the blocks of one message.
func (r *reply) anthropicBlocks(s Step) list {
	blocks := list{}
	if s.Text != "" {
		blocks = append(blocks, object{"type": "text", "text": s.Text})
	}
	for _, t := range s.Tools {
		blocks = append(blocks, object{
			"type": "tool_use", "id": r.s.id("toolu"), "name": t.Name, "input": json.RawMessage(t.arguments()),
		})
	}
	return blocks
}

// anthropic is an answer of Anthropic Messages on its way.
type anthropic struct {
	*reply

	n int // blocks so far
}

func (p *anthropic) send(kind string, v object) {
	v["type"] = kind
	p.event(kind, v)
}

func (p *anthropic) start(block object) {
	p.send("content_block_start", object{"index": p.n, "content_block": block})
}

func (p *anthropic) delta(kind, field, value string) {
	p.send("content_block_delta", object{"index": p.n, "delta": object{"type": kind, field: value}})
}

func (p *anthropic) stop() {
	p.send("content_block_stop", object{"index": p.n})
	p.n++
}

// tell streams the blocks of s; it reports whether the client is still there.
func (p *anthropic) tell(s Step) bool {
	if s.Think != "" {
		p.start(object{"type": "thinking", "thinking": "", "signature": ""})
		p.delta("thinking_delta", "thinking", s.Think)
		p.delta("signature_delta", "signature", "c3R1Yg==")
		p.stop()
	}
	if s.Text != "" {
		p.start(object{"type": "text", "text": ""})
	}
	if !p.speak(s, func(piece string) { p.delta("text_delta", "text", piece) }) {
		return false
	}
	if s.Text != "" {
		p.stop()
	}
	for _, t := range s.Tools {
		p.start(object{"type": "tool_use", "id": p.s.id("toolu"), "name": t.Name, "input": object{}})
		for _, half := range halves(t.arguments()) {
			p.delta("input_json_delta", "partial_json", half)
		}
		p.stop()
	}
	return true
}
