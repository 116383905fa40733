package acp_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
)

// show is events as text, one a line.
func show(events []frames.Payload) string {
	var b strings.Builder
	for _, e := range events {
		data, err := json.Marshal(e)
		fmt.Fprintln(&b, e.EventType(), string(data), err)
	}
	return b.String()
}

// raws are JSON values.
func raws(list ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, one := range list {
		out = append(out, json.RawMessage(one))
	}
	return out
}
