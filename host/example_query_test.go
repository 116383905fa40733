package host_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/agent/shell"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/rpc/client"
	"github.com/muxhost/muxhost/store/mem"
)

// One question and its result, without a socket: the host lives in this program,
// and the tool call is allowed by this program.
func Example_query() {
	ctx := context.Background()
	token := host.NewToken()
	h, err := host.New(ctx, host.Config{Store: mem.New(), Drivers: []agent.Driver{shell.New(shell.Options{})}, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Shutdown(ctx)

	options := client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: token}
	res, err := client.Query(ctx, options, client.Question{
		Cwd: os.TempDir(), Text: "echo 6 times 7 is $((6*7))",
		Approve: func(_ context.Context, a *frames.ApprovalRequested) rpc.ApprovalParams {
			return rpc.ApprovalParams{Outcome: frames.AllowedOnce, InputHash: &a.InputHash}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range res.View.Items {
		if item.Tool != nil {
			fmt.Print(item.Tool.Content[0].Text)
		}
	}
	fmt.Println(res.Reason)
	// Output:
	// 6 times 7 is 42
	// completed
}

// A session that goes on: its view is kept from the frames, turn by turn.
func Example_session() {
	ctx := context.Background()
	token := host.NewToken()
	h, err := host.New(ctx, host.Config{Store: mem.New(), Drivers: []agent.Driver{parrot{}}, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Shutdown(ctx)

	c, err := client.Dial(ctx, client.Options{URL: host.LocalURL, HTTPClient: h.Local(), Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Open(ctx, rpc.CreateParams{Cwd: os.TempDir()})
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		turn, err := s.Prompt(ctx, text)
		if err != nil {
			log.Fatal(err)
		}
		view, err := s.Wait(ctx, turn, nil)
		if err != nil {
			log.Fatal(err)
		}
		last := view.Items[len(view.Items)-1]
		fmt.Println(len(view.Turns), last.Kind, last.Content[0].Text)
	}
	// Output:
	// 1 assistant one
	// 2 assistant two
}
