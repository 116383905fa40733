package muxhost_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/muxhost/muxhost/"

// rooms lists, for each folder, the folders and modules it may import, beside
// the standard library. A package inherits the row of its nearest listed parent,
// and may import packages of its own room. Tests may import more: only non-test
// files are checked.
var rooms = map[string][]string{
	".":                        {},
	"frames":                   {},
	"store":                    {"frames"},
	"store/storetest":          {"frames", "store"},
	"store/mem":                {"frames", "store"},
	"store/bolt":               {"frames", "store", "go.etcd.io/bbolt", "golang.org/x/sys"},
	"mux":                      {"frames", "github.com/coder/websocket"},
	"mux/muxtest":              {"frames", "mux", "github.com/coder/websocket"},
	"rpc":                      {"frames", "github.com/sourcegraph/jsonrpc2"},
	"rpc/client":               {"frames", "rpc", "github.com/coder/websocket"},
	"host/agent":               {"frames"},
	"host/agent/acp":           {"frames", "host/agent", "host/agent/acp/acprpc", "host/agent/internal/proc"},
	"host/agent/acp/acprpc":    {"frames", "github.com/sourcegraph/jsonrpc2"},
	"host/agent/agenttest":     {"frames", "host/agent"},
	"host/agent/mcp":           {"frames", "host/agent", "github.com/modelcontextprotocol/go-sdk"},
	"host/agent/internal/proc": {"frames", "host/agent"},
	"host/agent/shell":         {"frames", "host/agent", "host/agent/internal/proc"},
	"host/agent/llm":           {"frames", "host/agent", "host/agent/internal/proc"},
	"host/agent/demo":          {"frames", "host/agent"},
	"host/internal/auth":       {},
	"host/internal/blob":       {"frames"},
	"host/internal/pending":    {"frames"},
	"host/internal/session":    {"frames", "store", "host/agent", "host/internal/pending"},
	"host": {
		"frames", "store", "mux", "rpc", "host/agent", "host/internal/auth", "host/internal/blob",
		"host/internal/pending", "host/internal/session", "spec", "github.com/google/uuid",
	},
	"host/hosttest": {"frames", "github.com/coder/websocket"},
	"spec":          {},
	"spec/gen":      {"frames", "rpc"},
	"spec/vectors":  {},
	"spec/conform":  {"github.com/coder/websocket"},
	"cmd":           {"*"},
}

// packageFiles yields the Go files of the module's packages that are not tests.
func packageFiles(t *testing.T, visit func(dir, file string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && otherModule(p):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(p, ".go"), strings.HasSuffix(p, "_test.go"):
			return nil
		}
		visit(filepath.ToSlash(filepath.Dir(p)), p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// otherModule reports whether dir is not part of this module's packages.
func otherModule(dir string) bool {
	name := filepath.Base(dir)
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil || name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// Imports point one way, as the table says.
func TestImportsPointOneWay(t *testing.T) {
	packageFiles(t, func(dir, p string) {
		room, allowed := roomOf(dir)
		if room == "" {
			t.Errorf("%s: its folder is in no room; give it a row in deps_test.go", p)
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, imp := range f.Imports {
			ip, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Error(err)
			} else if !allows(room, allowed, ip) {
				t.Errorf("%s: %s may not import %s", p, room, ip)
			}
		}
	})
}

// roomOf returns the nearest listed parent of dir and its row.
func roomOf(dir string) (string, []string) {
	for d := dir; ; d = path.Dir(d) {
		if row, ok := rooms[d]; ok && (d != "." || dir == ".") {
			return d, row
		}
		if d == "." {
			return "", nil
		}
	}
}

// allows reports whether a file of room, whose row is row, may import imp.
func allows(room string, row []string, imp string) bool {
	own, local := strings.CutPrefix(imp, module)
	switch {
	case !local && !strings.Contains(strings.Split(imp, "/")[0], "."):
		return true // standard library
	case slices.Contains(row, "*"):
		return true
	case !local:
		return slices.ContainsFunc(row, func(r string) bool { return imp == r || strings.HasPrefix(imp, r+"/") })
	}
	to, _ := roomOf(own)
	return to == room || slices.Contains(row, to)
}

// The table itself has teeth: what it must refuse, it refuses.
func TestImportTableRefuses(t *testing.T) {
	for _, row := range [][2]string{
		{"frames", module + "store"},
		{"mux", module + "rpc"},
		{"rpc", module + "mux"},
		{"store", module + "store/bolt"},
		{"host", module + "store/bolt"},
		{"host", module + "host/agent/shell"},
		{"host/internal/auth", module + "frames"},
		{"host/internal/pending", module + "host/internal/session"},
		{"host/agent", module + "host"},
		{"rpc/client", module + "host"},
		{"host", "go.etcd.io/bbolt"},
		{"mux", "github.com/sourcegraph/jsonrpc2"},
		{"spec", module + "frames"},
		{"spec/gen", module + "host"},
		{"frames", module + "spec"},
		{"host", module + "spec/gen"},
		{"spec/conform", module + "rpc"},
		{"host", module + "spec/conform"},
	} {
		if allows(row[0], rooms[row[0]], row[1]) {
			t.Errorf("%s may import %s", row[0], row[1])
		}
	}
}

// Every package says what it owns.
func TestEveryPackageHasADoc(t *testing.T) {
	docs := map[string]string{}
	packageFiles(t, func(dir, p string) {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		docs[dir] += f.Doc.Text()
	})
	for dir, doc := range docs {
		if !strings.HasPrefix(doc, "Package ") && !strings.HasPrefix(doc, "Command ") {
			t.Errorf("%s: its package has no doc comment that starts with Package or Command", dir)
		}
	}
}

// go.mod replaces nothing, so that the module builds for those who import it.
func TestGoModHasNoReplace(t *testing.T) {
	b, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "replace") {
			t.Errorf("go.mod:%d: %s", i+1, line)
		}
	}
}
