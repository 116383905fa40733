package stubllm

import (
	"encoding/json"
	"path"
	"strings"
)

// readGemini reads a request of Gemini. That it streams is told by its path.
func readGemini(body []byte, c *conversation) error {
	q, err := decode[struct {
		Contents []struct {
			Role  string `json:"role"`
			Parts []struct {
				Text   string          `json:"text"`
				Result json.RawMessage `json:"functionResponse"`
			} `json:"parts"`
		} `json:"contents"`
		Config struct {
			MIME string `json:"responseMimeType"`
		} `json:"generationConfig"`
		Tools []struct {
			Functions []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}](body)
	if err != nil {
		return err
	}
	c.object = q.Config.MIME == "application/json"
	for _, m := range q.Contents {
		if m.Role == "model" {
			continue
		}
		for _, p := range m.Parts {
			c.said(p.Text)
			if len(p.Result) > 0 {
				c.result(p.Result)
			}
		}
	}
	for _, t := range q.Tools {
		for _, f := range t.Functions {
			c.offered(f.Name)
		}
	}
	return nil
}

// playGemini tells s in the form of Gemini.
func playGemini(r *reply, s Step) {
	r.model, _, _ = strings.Cut(path.Base(r.r.URL.Path), ":")
	answer := func(parts list, finish string) object {
		c := object{"index": 0, "content": object{"role": "model", "parts": parts}}
		if finish != "" {
			c["finishReason"] = finish
		}
		return object{
			"candidates": list{c}, "modelVersion": r.model, "responseId": "stub",
			"usageMetadata": object{"promptTokenCount": 1000, "candidatesTokenCount": 20, "totalTokenCount": 1020},
		}
	}
	calls := list{}
	for _, t := range s.Tools {
		calls = append(calls, object{"functionCall": object{
			"id": r.s.id("call"), "name": t.Name, "args": json.RawMessage(t.arguments()),
		}})
	}
	if !strings.HasSuffix(r.r.URL.Path, ":streamGenerateContent") {
		parts := list{}
		if s.Text != "" {
			parts = append(parts, object{"text": s.Text})
		}
		r.json(answer(append(parts, calls...), "STOP"))
		return
	}
	r.begin()
	if s.Think != "" {
		r.event("", answer(list{object{"text": s.Think, "thought": true}}, ""))
	}
	if !r.speak(s, func(piece string) { r.event("", answer(list{object{"text": piece}}, "")) }) {
		return
	}
	if len(calls) == 0 {
		calls = list{object{"text": ""}}
	}
	r.event("", answer(calls, "STOP"))
}
