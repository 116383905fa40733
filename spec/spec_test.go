package spec_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/spec"
)

// The embedded document lists every method with its scope, in order.
func TestOpenRPCListsTheMethods(t *testing.T) {
	var doc struct {
		OpenRPC string
		Info    struct{ Version string }
		Methods []struct {
			Name  string
			Scope string `json:"x-scope"`
		}
	}
	if err := json.Unmarshal(spec.OpenRPC, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenRPC != "1.3.2" || doc.Info.Version != frames.ProtocolVersion {
		t.Errorf("openrpc %q, version %q; want 1.3.2, %q", doc.OpenRPC, doc.Info.Version, frames.ProtocolVersion)
	}
	want := rpc.Methods()
	if len(doc.Methods) != len(want) {
		t.Fatalf("%d methods, want %d", len(doc.Methods), len(want))
	}
	for i, m := range doc.Methods {
		if m.Name != want[i].Name || m.Scope != string(want[i].Scope) {
			t.Errorf("method %d is %s for %s, want %s for %s", i, m.Name, m.Scope, want[i].Name, want[i].Scope)
		}
	}
}

// The embedded document can be handed out alone: it refers to itself only.
func TestOpenRPCStandsAlone(t *testing.T) {
	refs := regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllSubmatch(spec.OpenRPC, -1)
	if len(refs) == 0 {
		t.Fatal("there are no references")
	}
	for _, ref := range refs {
		if ref[1][0] != '#' {
			t.Errorf("%s leads out of the document", ref[1])
		}
	}
}
