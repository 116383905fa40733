package pending_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Settlements get their outcome in literals only, and none but the function
// allow puts anything there that is not one of the outcomes that refuse.
func TestOneProducerOfAllowingSettlements(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	var producers []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && mayAllow(fn) {
				producers = append(producers, fn.Name.Name)
			}
		}
	}
	if !slices.Equal(producers, []string{"allow"}) {
		t.Errorf("settlements that may allow are made in %v, want only allow", producers)
	}
}

// mayAllow reports whether a function gives an Outcome field a value that is not
// known to refuse.
func mayAllow(fn *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if id, ok := n.Type.(*ast.Ident); !ok || id.Name != "Settlement" {
				return true
			}
			for _, el := range n.Elts {
				kv, ok := el.(*ast.KeyValueExpr)
				found = found || !ok || isOutcome(kv.Key) && !refuses(kv.Value)
			}
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if sel, ok := l.(*ast.SelectorExpr); ok && isOutcome(sel.Sel) {
					found = found || len(n.Lhs) != len(n.Rhs) || !refuses(n.Rhs[i])
				}
			}
		}
		return true
	})
	return found
}

func isOutcome(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "Outcome"
}

func refuses(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Rejected", "Cancelled", "Unavailable", "Answered"}, sel.Sel.Name)
}
