package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// docs holds the comments of the types and fields of the rooms whose words are
// published, by "frames.Policy" and "frames.Policy.Mode".
type docs map[string]string

// readDocs reads the comments of the packages in dirs below root.
func readDocs(root string, dirs ...string) (docs, error) {
	d := docs{}
	for _, dir := range dirs {
		files, err := parseDir(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			for _, decl := range f.Decls {
				if decl, ok := decl.(*ast.GenDecl); ok && decl.Tok == token.TYPE {
					d.addTypes(dir, decl)
				}
			}
		}
	}
	return d, nil
}

// parseDir parses the Go files of one folder that are not tests, in the order of
// their names.
func parseDir(dir string) ([]*ast.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read sources: %w; run the generator from spec/, or name the module's root with -root", err)
	}
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func (d docs) addTypes(pkg string, decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		t := spec.(*ast.TypeSpec)
		name := pkg + "." + t.Name.Name
		comment := t.Doc
		if comment == nil && !decl.Lparen.IsValid() {
			comment = decl.Doc
		}
		fields, ok := t.Type.(*ast.StructType)
		if !ok {
			d[name] = sentence(comment)
			continue
		}
		wire := wireNames(fields, t.Name.Name)
		d[name] = wire.in(sentence(comment))
		for _, f := range fields.Fields.List {
			comment := f.Doc
			if comment == nil {
				comment = f.Comment
			}
			for _, id := range f.Names {
				d[name+"."+id.Name] = wire.in(sentence(comment))
			}
		}
	}
}

// wire maps the Go names of a struct's fields to those on the wire.
type wire map[string]string

// wireNames reads the tags of a struct. A field that is called as its type keeps
// its name, so that the comment still begins with the type's.
func wireNames(fields *ast.StructType, typeName string) wire {
	w := wire{}
	for _, f := range fields.Fields.List {
		if f.Tag == nil {
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		for _, id := range f.Names {
			if id.Name != typeName && name != "" {
				w[id.Name] = name
			}
		}
	}
	return w
}

// word is a name as Go exports it.
var word = regexp.MustCompile(`\b[A-Z][A-Za-z]*\b`)

// in replaces the fields that a comment names.
func (w wire) in(doc string) string {
	return word.ReplaceAllStringFunc(doc, func(s string) string {
		if name, ok := w[s]; ok {
			return "`" + name + "`"
		}
		return s
	})
}

// link is a reference of a Go comment, such as [View.Live].
var link = regexp.MustCompile(`\[([A-Z][A-Za-z.]*)\]`)

// sentence makes one line of a comment.
func sentence(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return link.ReplaceAllString(strings.Join(strings.Fields(c.Text()), " "), "$1")
}

// texts stand in for comments that speak to Go programmers.
var texts = docs{
	"frames.Time": "An instant: RFC 3339, UTC, milliseconds.",
	"main.view":   "The fold: the state of one session as a pure function of its events and, for a client, of the frames that it was pushed.",
	"rpc.Empty":   "Params or a result without members.",
	"rpc.Pending": "One thing that waits for a person: the params of its `*/requested` frame, and what it is.",

	"frames.LiveBlock": "An open text or reasoning block: all of its text, and the number of chunks that make it up. Where a block is split over parts, " +
		"`offset` is the byte offset of `text` in the block's text, and `to` counts only on the last part.",
	"frames.Pending.Kind": "\"approval\" or \"question\".",
}

// typ returns the comment of t.
func (d docs) typ(t reflect.Type) string { return d.of(t.String()) }

// field returns the comment of a field of t.
func (d docs) field(t reflect.Type, name string) string { return d.of(t.String() + "." + name) }

func (d docs) of(name string) string {
	if text, ok := texts[name]; ok {
		return text
	}
	return d[name]
}
