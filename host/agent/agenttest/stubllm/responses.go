package stubllm

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"
	"time"
)

// readResponses reads a request of OpenAI Responses.
func readResponses(body []byte, c *conversation) error {
	q, err := decode[struct {
		Model string          `json:"model"`
		Input json.RawMessage `json:"input"`
		Text  struct {
			Format format `json:"format"`
		} `json:"text"`
		Tools []struct {
			Name string `json:"name"`
			Type string `json:"type"`
		} `json:"tools"`
	}](body)
	if err != nil {
		return err
	}
	c.model, c.stream, c.object = q.Model, true, q.Text.Format.object()
	for _, t := range q.Tools {
		c.offered(cmp.Or(t.Name, t.Type))
	}
	var whole string
	if json.Unmarshal(q.Input, &whole) == nil {
		c.said(whole)
		return nil
	}
	items, err := decode[[]struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content texts           `json:"content"`
		Output  json.RawMessage `json:"output"`
	}](q.Input)
	for _, it := range items {
		switch {
		case (it.Type == "message" || it.Type == "") && it.Role == "user":
			c.said(string(it.Content))
		case strings.HasSuffix(it.Type, "_call_output"):
			c.result(it.Output)
		}
	}
	return err
}

// responses is an answer of OpenAI Responses on its way.
type responses struct {
	*reply

	n   int  // events so far
	out list // items so far
}

// playResponses tells s in the form of OpenAI Responses.
func playResponses(r *reply, s Step) {
	p := &responses{reply: r, out: list{}}
	r.begin()
	whole := object{
		"id": r.s.id("resp"), "object": "response", "created_at": time.Now().Unix(), "model": r.model,
		"status": "in_progress", "output": list{},
	}
	p.send("response.created", object{"response": whole})
	if s.Think != "" {
		p.think(s.Think)
	}
	if !p.text(s) {
		return
	}
	for _, t := range s.Tools {
		p.call(t)
	}
	whole = maps.Clone(whole)
	whole["status"], whole["output"] = "completed", p.out
	whole["usage"] = object{
		"input_tokens": 1000, "input_tokens_details": object{"cached_tokens": 0},
		"output_tokens": 20, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 1020,
	}
	p.send("response.completed", object{"response": whole})
}

func (p *responses) send(kind string, v object) {
	v["type"], v["sequence_number"] = kind, p.n
	p.n++
	p.event(kind, v)
}

// part sends an event about a part of the item that is being told.
func (p *responses) part(kind string, id any, v object) {
	v["item_id"], v["output_index"] = id, len(p.out)
	p.send(kind, v)
}

// begun and done enclose an item.
func (p *responses) begun(item object, empty object) {
	item = maps.Clone(item)
	maps.Copy(item, empty)
	p.send("response.output_item.added", object{"output_index": len(p.out), "item": item})
}

func (p *responses) done(item object) {
	p.send("response.output_item.done", object{"output_index": len(p.out), "item": item})
	p.out = append(p.out, item)
}

func (p *responses) think(text string) {
	id := p.s.id("rs")
	item := object{"type": "reasoning", "id": id, "summary": list{object{"type": "summary_text", "text": text}}}
	p.begun(item, object{"summary": list{}})
	p.part("response.reasoning_summary_part.added", id, object{"summary_index": 0, "part": object{"type": "summary_text", "text": ""}})
	p.part("response.reasoning_summary_text.delta", id, object{"summary_index": 0, "delta": text})
	p.part("response.reasoning_summary_text.done", id, object{"summary_index": 0, "text": text})
	p.done(item)
}

// text tells the text; it reports whether the client is still there.
func (p *responses) text(s Step) bool {
	if s.Text == "" {
		return p.idle(s)
	}
	id := p.s.id("msg")
	body := func(text string) object {
		return object{"type": "output_text", "text": text, "annotations": list{}}
	}
	item := object{"type": "message", "id": id, "role": "assistant", "status": "completed", "content": list{body(s.Text)}}
	p.begun(item, object{"status": "in_progress", "content": list{}})
	p.part("response.content_part.added", id, object{"content_index": 0, "part": body("")})
	there := p.speak(s, func(piece string) {
		p.part("response.output_text.delta", id, object{"content_index": 0, "delta": piece})
	})
	if !there {
		return false
	}
	p.part("response.output_text.done", id, object{"content_index": 0, "text": s.Text})
	p.done(item)
	return true
}

func (p *responses) call(t Tool) {
	item := object{"call_id": p.s.id("call"), "name": t.Name, "status": "completed"}
	if t.Space != "" {
		item["namespace"] = t.Space
	}
	if t.Custom != "" {
		item["type"], item["id"], item["input"] = "custom_tool_call", p.s.id("ctc"), t.Custom
		p.begun(item, object{"status": "in_progress", "input": ""})
		p.done(item)
		return
	}
	item["type"], item["id"], item["arguments"] = "function_call", p.s.id("fc"), t.arguments()
	p.begun(item, object{"status": "in_progress", "arguments": ""})
	p.part("response.function_call_arguments.delta", item["id"], object{"delta": t.arguments()})
	p.part("response.function_call_arguments.done", item["id"], object{"arguments": t.arguments()})
	p.done(item)
}
