package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

const (
	moduleRoot   = "../.."
	publishedDir = ".."
)

func contract(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := generate(moduleRoot)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// What is committed is what the generator writes, and nothing else.
func TestPublishedFilesAreWhatTheGeneratorWrites(t *testing.T) {
	out := t.TempDir()
	stale := filepath.Join(out, "schema", "events", "gone.json")
	if err := os.MkdirAll(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stale, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(moduleRoot, out); err != nil {
		t.Fatal(err)
	}
	want, got := tree(t, out), tree(t, publishedDir)
	for _, byHand := range []string{"CHANGES.md", "README.md", "demo.md", "fold.md", "protocol.md", "spec.go"} {
		delete(got, byHand)
	}
	for name, text := range want {
		if !bytes.Equal(text, got[name]) {
			t.Errorf("%s differs from what the generator writes; run go generate ./spec", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is written by no one; remove it", name)
	}
}

// tree reads the published files below dir.
func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"gen", "vectors", "conform", "examples"}, name):
			return fs.SkipDir
		case d.IsDir(), strings.HasSuffix(name, "_test.go"):
			return nil
		case strings.HasPrefix(name, "ts/") && name != "ts/src/gen.ts":
			return nil // the client beside its types
		}
		files[name], err = fs.ReadFile(root, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Two runs give the same bytes.
func TestGeneratorIsDeterministic(t *testing.T) {
	if a, b := contract(t), contract(t); !maps.EqualFunc(a, b, bytes.Equal) {
		t.Error("two runs differ")
	}
}

// Every event, frame and method has its schemas, its row and its TypeScript type.
func TestEveryWordIsPublished(t *testing.T) {
	files := contract(t)
	has := func(file, text string) {
		t.Helper()
		if !bytes.Contains(files[file], []byte(text)) {
			t.Errorf("%s: want %q in it", file, text)
		}
	}
	for _, e := range frames.EventTypes() {
		typ := string(e.Type)
		has("schema/events/"+fileName(typ)+".json", `"const": "`+typ+`"`)
		has("events.md", "| `"+typ+"` | "+e.Family)
		has("ts/src/gen.ts", `  "`+typ+`": `)
	}
	for _, f := range frames.FrameTypes() {
		typ := string(f.Type)
		has("schema/frames/"+fileName(typ)+".json", `"const": "`+typ+`"`)
		has("frames.md", "| `"+typ+"` |")
		has("asyncapi.json", `"name": "`+typ+`"`)
		has("ts/src/gen.ts", `  "`+typ+`": `)
	}
	for _, m := range rpc.Methods() {
		has("schema/params/"+m.Name+".json", `"$ref": "../defs.json#/$defs/`)
		has("schema/results/"+m.Name+".json", `"$ref": "../defs.json#/$defs/`)
		has("methods.md", "| `"+m.Name+"` | "+string(m.Scope))
		has("openrpc.json", `"name": "`+m.Name+`"`)
		has("asyncapi.json", `"`+m.Name+`"`)
		has("ts/src/gen.ts", `  "`+m.Name+`": { params: `)
	}
	for _, k := range kinds {
		has("errors.md", "| `"+string(k.kind)+"` |")
		has("openrpc.json", `"kind": "`+string(k.kind)+`"`)
		has("ts/src/gen.ts", `"`+string(k.kind)+`"`)
	}
}

// Every reference leads somewhere.
func TestReferencesResolve(t *testing.T) {
	v := newValidator(t, contract(t))
	count := 0
	for file, doc := range v.files {
		eachRef(doc, func(ref string) {
			count++
			if _, _, err := v.resolve(file, ref); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		})
	}
	if count < 200 {
		t.Errorf("found %d references, want some hundreds", count)
	}
}

func eachRef(doc any, visit func(string)) {
	switch doc := doc.(type) {
	case []any:
		for _, v := range doc {
			eachRef(v, visit)
		}
	case map[string]any:
		for name, v := range doc {
			if ref, ok := v.(string); ok && name == "$ref" {
				visit(ref)
			}
			eachRef(v, visit)
		}
	}
}

// Every definition is used, so that defs.json holds nothing that is no more.
func TestDefinitionsAreUsed(t *testing.T) {
	v := newValidator(t, contract(t))
	used := map[string]bool{}
	for file, doc := range v.files {
		if strings.HasPrefix(file, "schema/") {
			eachRef(doc, func(ref string) { used[ref[strings.LastIndex(ref, "/")+1:]] = true })
		}
	}
	for name := range v.files["schema/defs.json"].(map[string]any)["$defs"].(map[string]any) {
		if !used[name] {
			t.Errorf("no schema refers to %s", name)
		}
	}
}

// Every event as the codec writes it, full or with nothing optional, is valid;
// one that lacks something or has a wrong type is not.
func TestEncodedEventsAreValid(t *testing.T) {
	v := newValidator(t, contract(t))
	for _, info := range frames.EventTypes() {
		file := "schema/events/" + fileName(string(info.Type)) + ".json"
		for _, full := range []bool{true, false} {
			text := maker{t, full}.event(info)
			if err := v.file(file, text); err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
			}
			if err := v.ref(file, "../defs.json#/$defs/Event", text); err != nil {
				t.Errorf("Event: %v\n%s", err, text)
			}
			bad := mutants(t, payloadType(info), text, "data")
			for _, name := range []string{"type", "seq", "after", "ts", "data"} {
				if bytes.Contains(text, []byte(`"`+name+`":`)) && (name != "after" || !info.Class.Durable()) {
					bad["no "+name] = edit(t, text, func(o map[string]any) { delete(o, name) })
				}
			}
			bad["another type"] = edit(t, text, func(o map[string]any) { o["type"] = "no/such" })
			bad["seq 0"] = edit(t, text, func(o map[string]any) { o["seq"] = 0 })
			bad["seq 2^53"] = edit(t, text, func(o map[string]any) { o["seq"] = 1 << 53 })
			refuses(t, v, file, bad)
		}
	}
}

// refuses checks that no text is valid.
func refuses(t *testing.T, v *validator, file string, bad map[string][]byte) {
	t.Helper()
	for _, why := range slices.Sorted(maps.Keys(bad)) {
		if err := v.file(file, bad[why]); err == nil {
			t.Errorf("%s accepts %s: %s", file, why, bad[why])
		}
	}
}

// Reasoning that was withheld is valid, and what is neither is not.
func TestWithheldReasoningIsValid(t *testing.T) {
	v := newValidator(t, contract(t))
	const file = "schema/events/reasoning-message.json"
	for _, info := range frames.EventTypes() {
		if info.Class != frames.ClassDurableReasoning {
			continue
		}
		text, err := frames.Withhold(maker{t, true}.event(info))
		if err != nil {
			t.Fatal(err)
		}
		if err := v.file(file, text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		refuses(t, v, file, map[string][]byte{"empty data": edit(t, text, func(o map[string]any) { o["data"] = map[string]any{} })})
	}
}

// Every frame as the codec writes it is valid; a mutant is not.
func TestEncodedFramesAreValid(t *testing.T) {
	v := newValidator(t, contract(t))
	for _, info := range frames.FrameTypes() {
		file := "schema/frames/" + fileName(string(info.Type)) + ".json"
		for _, full := range []bool{true, false} {
			text := maker{t, full}.frame(info)
			if err := v.file(file, text); err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
			}
			bad := mutants(t, paramsType(info), text, "params")
			bad["another method"] = edit(t, text, func(o map[string]any) { o["method"] = "no/such" })
			bad["no params"] = edit(t, text, func(o map[string]any) { delete(o, "params") })
			refuses(t, v, file, bad)
		}
	}
}

// A session without an open turn says so with null, and may not leave it out.
func TestLiveWithoutATurnIsNull(t *testing.T) {
	v := newValidator(t, contract(t))
	const file = "schema/frames/session-live.json"
	text, err := frames.EncodeFrame(frames.SessionLive{SessionID: "s", Seq: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.file(file, text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	refuses(t, v, file, map[string][]byte{"no turn": edit(t, text, func(o map[string]any) { delete(o, "turn") }, "params")})
}

// Unknown members of events and frames are carried, those of params are refused,
// at any depth.
func TestUnknownMembers(t *testing.T) {
	v := newValidator(t, contract(t))
	full := maker{t, true}
	add := func(o map[string]any) { o["unheardOf"] = 1 }
	created := full.event(frames.EventTypes()[0])
	for _, path := range [][]string{nil, {"data"}, {"data", "policy"}} {
		if err := v.file("schema/events/session-created.json", edit(t, created, add, path...)); err != nil {
			t.Errorf("session/created refuses an unknown member of %v: %v", path, err)
		}
	}
	for _, m := range rpc.Methods() {
		text, err := json.Marshal(full.of(m.Params))
		if err != nil {
			t.Fatal(err)
		}
		file := "schema/params/" + m.Name + ".json"
		bad := map[string][]byte{"an unknown member": edit(t, text, add)}
		for _, inner := range []string{"policy", "budget", "delivery", "grant"} {
			if bytes.Contains(text, []byte(`"`+inner+`":{`)) {
				bad["an unknown member of "+inner] = edit(t, text, add, inner)
			}
		}
		refuses(t, v, file, bad)
	}
}

// Params and results as Go writes them are valid; a mutant is not.
func TestParamsAndResultsAreValid(t *testing.T) {
	v := newValidator(t, contract(t))
	full := maker{t, true}
	for _, m := range rpc.Methods() {
		params, err := json.Marshal(full.of(m.Params))
		if err != nil {
			t.Fatal(err)
		}
		file := "schema/params/" + m.Name + ".json"
		if err := v.file(file, params); err != nil {
			t.Errorf("%s: %v\n%s", file, err, params)
		}
		refuses(t, v, file, mutants(t, m.Params, params))
		result, err := json.Marshal(full.of(m.Result))
		if err != nil {
			t.Fatal(err)
		}
		file = "schema/results/" + m.Name + ".json"
		if err := v.file(file, result); err != nil {
			t.Errorf("%s: %v\n%s", file, err, result)
		}
		if m.Result.Name() == "SubscribeResult" {
			continue // a list
		}
		refuses(t, v, file, mutants(t, m.Result, result))
	}
}

// A view that has seen every event is valid, and all it says is in the schema.
func TestViewIsValid(t *testing.T) {
	v := newValidator(t, contract(t))
	text := exampleView(t)
	if err := v.ref("schema/defs.json", "#/$defs/View", text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	_, schema, err := v.resolve("schema/defs.json", "#/$defs/View/properties")
	if err != nil {
		t.Fatal(err)
	}
	var said map[string]any
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	for name := range said {
		if _, ok := schema.(map[string]any)[name]; !ok {
			t.Errorf("a view has %s, the schema does not", name)
		}
	}
	for _, name := range []string{"items", "pending", "live", "surface", "queue", "tasks", "children"} {
		if said[name] == nil {
			t.Errorf("the example has no %s", name)
		}
	}
}
