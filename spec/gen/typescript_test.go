package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
)

// The table of shapes is whole: every word in it is a kind or a shape, and every
// event and frame has one.
func TestShapesResolve(t *testing.T) {
	var b bytes.Buffer
	shapeTables(&b)
	known := map[string]bool{"string": true, "int": true, "uint": true, "bool": true, "time": true, "raw": true}
	rows := regexp.MustCompile(`(?m)^  (\w+): \{(.*)\},$`).FindAllStringSubmatch(b.String(), -1)
	for _, row := range rows {
		known[row[1]] = true
	}
	if len(rows) < len(frames.FrameTypes()) || !known["View"] || !known["ContentBlock"] {
		t.Fatalf("%d shapes in the table:\n%s", len(rows), b.String())
	}
	for _, row := range rows {
		for _, m := range regexp.MustCompile(`(\w+): "([^"]*)"`).FindAllStringSubmatch(row[2], -1) {
			if word := strings.NewReplacer("*", "", "[]", "", "{}", "", "?", "").Replace(m[2]); !known[word] {
				t.Errorf("%s.%s is %q, which is no kind and no shape", row[1], m[1], m[2])
			}
		}
	}
	for _, e := range frames.EventTypes() {
		if !known[published(payloadType(e))] {
			t.Errorf("%s has no shape", e.Type)
		}
	}
	for _, f := range frames.FrameTypes() {
		if name := published(paramsType(f)); !known[name] {
			t.Errorf("%s has no shape %s", f.Type, name)
		}
	}
}
