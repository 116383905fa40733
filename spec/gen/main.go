// Command gen writes the published contract from the registry of frames and the
// method table of rpc: JSON Schemas, the OpenRPC and AsyncAPI documents, the
// tables in Markdown, and the TypeScript types.
//
// What it writes depends on nothing but the Go types and their comments: no
// clock, no network, no order of maps. What Go types cannot say (sets of words,
// bounds, what raw JSON holds) stands in its tables, words.go and kinds.go, which
// tests compare with the sources.
//
// gen imports frames, rpc and the standard library; nothing imports it.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", "..", "the module's root, whose comments are read")
	out := flag.String("out", ".", "the folder to write to")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes the contract into out, and removes schemas of what is no more.
func run(root, out string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(out, "schema")); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns every published file by its slash-separated name.
func generate(root string) (map[string][]byte, error) {
	d, err := readDocs(root, "frames", "rpc")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"openrpc.json":  document(openRPC(d)),
		"asyncapi.json": document(asyncAPI()),
		"events.md":     eventsTable(),
		"frames.md":     framesTable(),
		"methods.md":    methodsTable(),
		"errors.md":     errorsTable(),
		"ts/src/gen.ts": typescript(d),
	}
	schemaFiles(d, files)
	return files, nil
}

// fileName is the name of a type's file: slashes become dashes.
func fileName(word string) string { return strings.ReplaceAll(word, "/", "-") }
