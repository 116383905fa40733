package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/store/mem"
)

func marshal(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// void is a publisher that nobody listens to.
type void struct{}

func (void) Add(frames.Session, frames.Seq, bool)           {}
func (void) SetLive(frames.SessionID, bool)                 {}
func (void) Remove(frames.SessionID, string)                {}
func (void) Trimmed(frames.SessionID, frames.Seq)           {}
func (void) Publish(sid frames.SessionID, u session.Update) {}

// BenchmarkEmit is the cost of one event from the agent to the publisher, but
// for the disk.
func BenchmarkEmit(b *testing.B) {
	for name, say := range map[string]func(ctx context.Context, t agent.Turn) error{
		"durable": func(ctx context.Context, t agent.Turn) error { return t.Emit(ctx, frames.TodoWrite{}) },
		"delta":   func(ctx context.Context, t agent.Turn) error { return t.Progress(ctx, "c1", "a few words ") },
	} {
		b.Run(name, func(b *testing.B) {
			done := make(chan error, 1)
			d := newDriver("scripted")
			d.on("go", func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
				err := t.Emit(ctx, frames.ToolCall{CallID: "c1", Name: "sh"})
				for err == nil && b.Loop() {
					err = say(ctx, t)
				}
				done <- err
				return agent.Result{}, err
			})
			m, err := session.New(b.Context(), session.Config{
				Store: mem.New(), Publisher: void{}, Drivers: map[string]agent.Driver{"scripted": d},
				DefaultAgent: "scripted", NewID: (&minter{}).mint,
			})
			if err != nil {
				b.Fatal(err)
			}
			var sid frames.SessionID
			err = m.Create(b.Context(), session.CreateArgs{Cwd: b.TempDir()}, func(s frames.Session) { sid = s.SessionID })
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			p := session.PromptArgs{Session: sid, Content: []frames.ContentBlock{frames.Text("go")}}
			if err := errors.Join(m.Prompt(b.Context(), p, nil), <-done, m.Shutdown(b.Context())); err != nil {
				b.Fatal(err)
			}
		})
	}
}
