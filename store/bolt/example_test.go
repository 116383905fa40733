package bolt_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/bolt"
)

// An event is durable when Append returns, and is there at the next opening.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "muxhost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := bolt.Open(filepath.Join(dir, "db"), bolt.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	head, err := s.Append(ctx, "a-session", store.Head{}, []store.Event{
		{ID: "1", Type: "user/message", Time: time.Now(), Data: []byte(`{"text":"hello"}`)},
	})
	if err != nil {
		log.Fatal(err)
	}
	evs, err := s.Read(ctx, "a-session", 0, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(head.Seq, evs[0].Seq, string(evs[0].Data))
	// Output: 1 1 {"text":"hello"}
}
