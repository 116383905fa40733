package host_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"os"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// parrot is an agent that says what it is told.
type parrot struct{}

func (parrot) Info() agent.Info { return agent.Info{Name: "parrot", Kind: "example"} }

func (p parrot) Open(context.Context, agent.Session) (agent.Agent, error) { return p, nil }

func (parrot) Prompt(ctx context.Context, t agent.Turn, p agent.Prompt) (agent.Result, error) {
	return agent.Result{}, t.Emit(ctx, frames.AssistantMessage{Content: p.Content, Blocks: []int{t.NewBlock()}})
}

func (parrot) Steer(context.Context, agent.Prompt) error { return agent.ErrNotTaken }
func (parrot) Close(context.Context) error               { return nil }

// A program embeds a host with an agent of its own, and a client runs a prompt.
func Example() {
	ctx := context.Background()
	token := host.NewToken()
	h, err := host.New(ctx, host.Config{Store: mem.New(), Drivers: []agent.Driver{parrot{}}, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	srv := httptest.NewServer(h.Handler())
	defer srv.Close()
	defer h.Shutdown(ctx)

	c, err := client.Dial(ctx, client.Options{URL: srv.URL, Token: token, Label: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Create(ctx, rpc.CreateParams{Cwd: os.TempDir()})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Subscribe(ctx, rpc.SubscribeParams{Sessions: []rpc.SubscribeSession{{SessionID: s.SessionID}}}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Prompt(ctx, rpc.PromptParams{SessionID: s.SessionID, Content: []frames.ContentBlock{frames.Text("hello")}}); err != nil {
		log.Fatal(err)
	}
	for f, err := range c.Frames(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		ev, ok := f.(*frames.SessionEvent)
		if !ok {
			continue
		}
		e, err := frames.DecodeEvent(ev.Event)
		if err != nil {
			log.Fatal(err)
		}
		if p, _ := e.Payload(); p != nil {
			if m, ok := p.(*frames.AssistantMessage); ok {
				fmt.Println(m.Content[0].Text)
				return
			}
		}
	}
	// Output: hello
}
