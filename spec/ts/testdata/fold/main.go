// Command fold writes random frames, and what frames.View makes of them, for folds
// in other languages to compare with: a line of JSON for each frame, with the view
// after it. The same seeds give the same lines.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/muxhost/muxhost/frames"
)

// step is one line. Issue is "", "gap" or "malformed"; Durable is there now and then.
type step struct {
	Seed    uint64          `json:"seed"`
	Frame   json.RawMessage `json:"frame"`
	Issue   string          `json:"issue"`
	View    *frames.View    `json:"view"`
	Durable *frames.View    `json:"durable,omitempty"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fold: usage: fold FIRST-SEED SEEDS FRAMES:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var n [3]int
	for i := range n {
		if i >= len(args) {
			return errors.New("want three numbers")
		}
		var err error
		if n[i], err = strconv.Atoi(args[i]); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(out)
	for seed := range n[1] {
		if err := story(enc, uint64(n[0]+seed), n[2]); err != nil {
			return err
		}
	}
	return out.Flush()
}

// story writes the lines of one seed.
func story(enc *json.Encoder, seed uint64, length int) error {
	g, v := newGenerator(seed), frames.NewView()
	for range length {
		msg, err := g.frame(v)
		if err != nil {
			return err
		}
		s := step{Seed: seed, Frame: msg, Issue: issue(v, msg), View: v}
		if g.one(5) {
			s.Durable = v.Durable()
		}
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// issue folds a frame and names what was wrong with it.
func issue(v *frames.View, msg []byte) string {
	f, err := frames.DecodeFrame(msg)
	if err == nil {
		err = v.ApplyFrame(f)
	}
	switch {
	case errors.Is(err, frames.ErrGap):
		return "gap"
	case err != nil:
		return "malformed"
	}
	return ""
}
