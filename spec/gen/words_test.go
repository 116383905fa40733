package main

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/rpc"
)

// constants returns the string constants of each named type, by "frames.Origin".
func constants(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, pkg := range []string{"frames", "rpc"} {
		files, err := parseDir(filepath.Join(moduleRoot, pkg))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for _, decl := range f.Decls {
				if decl, ok := decl.(*ast.GenDecl); ok && decl.Tok == token.CONST {
					addConstants(t, found, pkg, decl)
				}
			}
		}
	}
	return found
}

func addConstants(t *testing.T, found map[string][]string, pkg string, decl *ast.GenDecl) {
	t.Helper()
	for _, spec := range decl.Specs {
		c := spec.(*ast.ValueSpec)
		typ, ok := c.Type.(*ast.Ident)
		if !ok {
			continue
		}
		for _, value := range c.Values {
			lit, ok := value.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				continue
			}
			word, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			found[pkg+"."+typ.Name] = append(found[pkg+"."+typ.Name], word)
		}
	}
}

// The words of every type are those of its constants in the sources, in order:
// one that is added there must be published.
func TestWordsAreTheConstants(t *testing.T) {
	published := map[string][]string{}
	for typ, list := range enums {
		published[typ.String()] = list
	}
	for _, k := range kinds {
		published["rpc.Kind"] = append(published["rpc.Kind"], string(k.kind))
	}
	for _, e := range frames.EventTypes() {
		published["frames.EventType"] = append(published["frames.EventType"], string(e.Type))
	}
	for _, f := range frames.FrameTypes() {
		published["frames.FrameType"] = append(published["frames.FrameType"], string(f.Type))
	}
	found := constants(t)
	delete(found, "frames.JSONErrorKind") // never travels
	for typ, want := range found {
		if got := published[typ]; !slices.Equal(got, want) {
			t.Errorf("%s: published %q, the sources have %q; mend words.go or kinds.go", typ, got, want)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(published)) {
		if found[typ] == nil {
			t.Errorf("%s: the sources have no constants of it", typ)
		}
	}
}

// Every rule names a field that travels.
func TestRulesNameFields(t *testing.T) {
	fields := map[string]bool{}
	for typ := range reachable() {
		if typ.Kind() != reflect.Struct || typ == timeType {
			continue
		}
		for f := range fieldsOf(typ) {
			fields[f.owner.String()+"."+f.goName] = true
		}
	}
	for name := range rules {
		if !fields[name] {
			t.Errorf("words.go has a rule for %s, which is no field", name)
		}
	}
}

// Every method that an error names is one.
func TestKindsNameMethods(t *testing.T) {
	known := []string{"*", "sessionId"}
	for _, m := range rpc.Methods() {
		known = append(known, m.Name)
	}
	for _, k := range kinds {
		for name := range strings.FieldsSeq(k.methods) {
			if !slices.Contains(known, name) {
				t.Errorf("%s names %s, which is no method", k.kind, name)
			}
		}
	}
}

// Two types never share a published name, or one would hide the other.
func TestPublishedNamesAreUnique(t *testing.T) {
	byName := map[string]reflect.Type{}
	for typ := range reachable() {
		if typ.PkgPath() == "" || typ == rawType {
			continue
		}
		for _, m := range []mode{open, strict} {
			name := defName(typ, m)
			if other, ok := byName[name]; ok && other != typ {
				t.Errorf("%s and %s are both called %s; give one another name in words.go", typ, other, name)
			}
			byName[name] = typ
		}
	}
}

// reachable returns every type that travels.
func reachable() map[reflect.Type]bool {
	seen := map[reflect.Type]bool{}
	walkTypes(reflect.TypeFor[view](), seen)
	for _, e := range frames.EventTypes() {
		walkTypes(payloadType(e), seen)
	}
	for _, f := range frames.FrameTypes() {
		walkTypes(paramsType(f), seen)
	}
	for _, m := range rpc.Methods() {
		walkTypes(m.Params, seen)
		walkTypes(m.Result, seen)
	}
	return seen
}

func walkTypes(typ reflect.Type, seen map[reflect.Type]bool) {
	if seen[typ] {
		return
	}
	seen[typ] = true
	switch {
	case typ == timeType:
	case typ.Kind() == reflect.Pointer, typ.Kind() == reflect.Slice, typ.Kind() == reflect.Map:
		walkTypes(typ.Elem(), seen)
	case typ.Kind() == reflect.Struct:
		for f := range fieldsOf(typ) {
			walkTypes(f.typ, seen)
		}
	}
}
