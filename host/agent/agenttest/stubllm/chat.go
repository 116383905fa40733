package stubllm

import (
	"encoding/json"
	"time"
)

// readChat reads a request of OpenAI Chat Completions.
func readChat(body []byte, c *conversation) error {
	q, err := decode[struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Format   format `json:"response_format"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}](body)
	if err != nil {
		return err
	}
	c.model, c.stream, c.object = q.Model, q.Stream, q.Format.object()
	for _, m := range q.Messages {
		switch m.Role {
		case "user":
			var t texts
			_ = t.UnmarshalJSON(m.Content)
			c.said(string(t))
		case "tool":
			c.result(m.Content)
		}
	}
	for _, t := range q.Tools {
		c.offered(t.Function.Name)
	}
	return nil
}

var chatUsage = object{"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}

// playChat tells s in the form of OpenAI Chat Completions.
func playChat(r *reply, s Step) {
	id, made, finish := r.s.id("chatcmpl"), time.Now().Unix(), "stop"
	if len(s.Tools) > 0 {
		finish = "tool_calls"
	}
	if !r.stream {
		r.json(object{
			"id": id, "object": "chat.completion", "created": made, "model": r.model, "usage": chatUsage,
			"choices": list{object{"index": 0, "message": r.chatMessage(s), "finish_reason": finish}},
		})
		return
	}
	r.begin()
	chunk := func(choices list, usage any) {
		v := object{"id": id, "object": "chat.completion.chunk", "created": made, "model": r.model, "choices": choices}
		if usage != nil {
			v["usage"] = usage
		}
		r.event("", v)
	}
	send := func(delta object, finish any) {
		chunk(list{object{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
	}
	send(object{"role": "assistant", "content": ""}, nil)
	if s.Think != "" {
		send(object{"reasoning_content": s.Think}, nil)
	}
	if !r.speak(s, func(piece string) { send(object{"content": piece}, nil) }) {
		return
	}
	for i, t := range s.Tools {
		call := func(v object) { send(object{"tool_calls": list{v}}, nil) }
		call(object{"index": i, "id": r.s.id("call"), "type": "function", "function": object{"name": t.Name, "arguments": ""}})
		for _, half := range halves(t.arguments()) {
			call(object{"index": i, "function": object{"arguments": half}})
		}
	}
	send(object{}, finish)
	chunk(list{}, chatUsage)
	r.raw("data: [DONE]\n\n")
}

// chatMessage is s as one message.
func (r *reply) chatMessage(s Step) object {
	msg := object{"role": "assistant", "content": s.Text}
	var calls list
	for _, t := range s.Tools {
		calls = append(calls, object{
			"id": r.s.id("call"), "type": "function", "function": object{"name": t.Name, "arguments": t.arguments()},
		})
	}
	if calls != nil {
		msg["tool_calls"] = calls
	}
	return msg
}
