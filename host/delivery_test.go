package host_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent/demo"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
)

// What a subscription does not want is not sent, live or replayed, and everything
// durable comes all the same, in order and once: without text streams whole
// messages only, reasoning withheld or whole, no tool output until its result.
func TestDeliveryOverTheWire(t *testing.T) {
	r := start(t, func(c *host.Config) { c.Drivers = append(c.Drivers, demo.New(demo.Options{})) })
	for _, d := range []rpc.Delivery{
		{},
		{Text: "final"},
		{Reasoning: "off"},
		{Tools: "off"},
		{Text: "final", Reasoning: "final", Tools: "off"},
		{Text: "final", Reasoning: "off", Tools: "off"},
	} {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c := r.client(canary, nil)
			s, err := c.Create(ctx, rpc.CreateParams{
				Agent: "demo", Cwd: r.cwd, Policy: &frames.Policy{Rules: []frames.Rule{{Tool: "*", Decision: "allow"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			sub := rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: s.SessionID, Since: new(frames.Seq(0))}}}
			if d != (rpc.Delivery{}) {
				sub.Delivery = &d
			}
			if _, err := c.Subscribe(ctx, sub); err != nil {
				t.Fatal(err)
			}
			v := frames.NewView()
			for f, err := range c.Frames(ctx) {
				if err == nil {
					err = v.ApplyFrame(f)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, live := f.(*frames.SessionLive); live {
					break
				}
			}
			if _, err := c.Prompt(ctx, rpc.PromptParams{SessionID: s.SessionID, Content: []frames.ContentBlock{frames.Text("show me")}}); err != nil {
				t.Fatal(err)
			}
			checkDelivery(t, d, tour(ctx, t, c, v), v)
		})
	}
}

// tour counts the events of a session's first turn and folds them; its question is
// answered.
func tour(ctx context.Context, t *testing.T, c *client.Client, v *frames.View) map[frames.EventType]int {
	t.Helper()
	got := map[frames.EventType]int{frames.SessionCreatedEvent: 1}
	for f, err := range c.Frames(ctx) {
		if err == nil {
			err = v.ApplyFrame(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		if q, ok := f.(*frames.QuestionRequested); ok {
			if err := c.Answer(ctx, rpc.QuestionParams{SessionID: q.SessionID, ID: q.ID, Answers: []frames.Answer{{ID: q.Questions[0].ID, Labels: []string{"SQLite"}}}}); err != nil {
				t.Fatal(err)
			}
		}
		ev, ok := f.(*frames.SessionEvent)
		if !ok {
			continue
		}
		e, err := frames.DecodeEvent(ev.Event)
		if err != nil {
			t.Fatal(err)
		}
		got[e.Type]++
		if e.Type == frames.TurnEndEvent {
			break
		}
	}
	return got
}

// checkDelivery compares what came with what was asked for.
func checkDelivery(t *testing.T, d rpc.Delivery, got map[frames.EventType]int, v *frames.View) {
	t.Helper()
	for typ, off := range map[frames.EventType]bool{
		frames.AssistantDeltaEvent: d.Text == "final",
		frames.ReasoningDeltaEvent: d.Reasoning != "" && d.Reasoning != "stream",
		frames.ToolProgressEvent:   d.Tools == "off",
	} {
		if off && got[typ] > 0 {
			t.Errorf("%d %s came", got[typ], typ)
		}
		if !off && got[typ] == 0 {
			t.Errorf("no %s came", typ)
		}
	}
	for _, typ := range []frames.EventType{frames.AssistantMessageEvent, frames.ReasoningMessageEvent, frames.ToolResultEvent} {
		if got[typ] == 0 {
			t.Errorf("no %s came", typ)
		}
	}
	if v.Gaps || int(v.Seq) != durable(got) {
		t.Errorf("gaps %t, %d durable events up to %d", v.Gaps, durable(got), v.Seq)
	}
	for _, it := range v.Items {
		if it.Kind == frames.ItemReasoning && it.Withheld != (d.Reasoning == "off") {
			t.Errorf("reasoning withheld: %t", it.Withheld)
		}
		if it.Kind == frames.ItemAssistant && !slices.ContainsFunc(it.Content, func(b frames.ContentBlock) bool { return b.Text != "" }) {
			t.Error("a message has no text")
		}
	}
}

func durable(got map[frames.EventType]int) int {
	n := 0
	for typ, k := range got {
		if frames.ClassOf(typ).Durable() {
			n += k
		}
	}
	return n
}
