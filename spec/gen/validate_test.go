package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// validator checks values against the schemas of a set of files. It knows the
// keywords that the generator uses, and refuses a schema with any other.
type validator struct{ files map[string]any }

// annotations are the keywords that say nothing about a value.
var annotations = []string{"$schema", "$defs", "title", "description", "format", "contentEncoding"}

func newValidator(t *testing.T, files map[string][]byte) *validator {
	t.Helper()
	v := &validator{map[string]any{}}
	for name, b := range files {
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		var doc any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v.files[name] = doc
	}
	return v
}

// resolve follows ref, as written in file.
func (v *validator) resolve(file, ref string) (string, any, error) {
	name, pointer, _ := strings.Cut(ref, "#")
	if name != "" {
		file = path.Join(path.Dir(file), name)
	}
	doc, ok := v.files[file]
	if !ok {
		return "", nil, fmt.Errorf("$ref %s: there is no file %s", ref, file)
	}
	for key := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if key == "" {
			continue
		}
		o, _ := doc.(map[string]any)
		if doc, ok = o[key]; !ok {
			return "", nil, fmt.Errorf("$ref %s: there is no %s", ref, key)
		}
	}
	return file, doc, nil
}

// file checks JSON text against a whole schema file.
func (v *validator) file(name string, text []byte) error {
	return v.ref(name, "", text)
}

// ref checks JSON text against what ref means in a file.
func (v *validator) ref(name, ref string, text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	file, schema, err := v.resolve(name, ref)
	if err != nil {
		return err
	}
	return v.check(file, schema, value)
}

// check checks value against a schema that stands in file.
func (v *validator) check(file string, schema, value any) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want a schema, got %v", file, schema)
	}
	for keyword, want := range s {
		if err := v.keyword(file, s, keyword, want, value); err != nil {
			return fmt.Errorf("%s: %w", keyword, err)
		}
	}
	return nil
}

func (v *validator) keyword(file string, s map[string]any, keyword string, want, value any) error {
	switch keyword {
	case "$ref":
		target, schema, err := v.resolve(file, want.(string))
		if err != nil {
			return err
		}
		return v.check(target, schema, value)
	case "type":
		return checkType(want, value)
	case "const":
		return checkIn([]any{want}, value)
	case "enum":
		return checkIn(want.([]any), value)
	case "pattern":
		if text, ok := value.(string); ok && !regexp.MustCompile(want.(string)).MatchString(text) {
			return fmt.Errorf("%q does not match %s", text, want)
		}
	case "minimum", "maximum":
		n, ok := value.(float64)
		if ok && (keyword == "minimum" && n < want.(float64) || keyword == "maximum" && n > want.(float64)) {
			return fmt.Errorf("%v is beyond %v", n, want)
		}
	case "anyOf":
		return v.anyOf(file, want.([]any), value)
	case "required", "properties", "additionalProperties", "items":
		return v.children(file, s, keyword, want, value)
	default:
		if !slices.Contains(annotations, keyword) && !strings.HasPrefix(keyword, "x-") {
			return errors.New("the validator does not know this keyword")
		}
	}
	return nil
}

func (v *validator) children(file string, s map[string]any, keyword string, want, value any) error {
	list, _ := value.([]any)
	o, _ := value.(map[string]any)
	props, _ := s["properties"].(map[string]any)
	switch keyword {
	case "items":
		for i, item := range list {
			if err := v.check(file, want, item); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
	case "required":
		for _, name := range want.([]any) {
			if _, ok := o[name.(string)]; value != nil && o != nil && !ok {
				return fmt.Errorf("%s is missing", name)
			}
		}
	}
	for name, member := range o {
		schema, known := props[name]
		var err error
		switch {
		case keyword == "properties" && known:
			err = v.check(file, schema, member)
		case keyword != "additionalProperties" || known || want == true:
		case want == false:
			err = errors.New("is not allowed")
		default:
			err = v.check(file, want, member)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (v *validator) anyOf(file string, schemas []any, value any) error {
	var all []error
	for _, s := range schemas {
		err := v.check(file, s, value)
		if err == nil {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

func checkIn(list []any, value any) error {
	if slices.ContainsFunc(list, func(w any) bool { return reflect.DeepEqual(w, value) }) {
		return nil
	}
	return fmt.Errorf("%v is none of %v", value, list)
}

func checkType(want, value any) error {
	got := ""
	switch value := value.(type) {
	case nil:
		got = "null"
	case bool:
		got = "boolean"
	case string:
		got = "string"
	case float64:
		got = "number"
		if value == math.Trunc(value) {
			got = "integer"
		}
	case []any:
		got = "array"
	case map[string]any:
		got = "object"
	}
	if got != want {
		return fmt.Errorf("want %v, got %s", want, got)
	}
	return nil
}

// The validator refuses what each keyword forbids.
func TestValidatorRefuses(t *testing.T) {
	for _, row := range [][2]string{
		{`{"type":"string"}`, `1`},
		{`{"type":"integer"}`, `1.5`},
		{`{"const":"a"}`, `"b"`},
		{`{"enum":["a"]}`, `"b"`},
		{`{"pattern":"^a$"}`, `"b"`},
		{`{"minimum":1}`, `0`},
		{`{"maximum":1}`, `2`},
		{`{"required":["a"]}`, `{}`},
		{`{"properties":{"a":{"type":"string"}}}`, `{"a":1}`},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{"b":1}`},
		{`{"additionalProperties":{"type":"string"}}`, `{"b":1}`},
		{`{"items":{"type":"string"}}`, `["a",1]`},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `1`},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`, `1`},
		{`{"$ref":"#/$defs/b"}`, `1`},
		{`{"minLength":1}`, `""`},
	} {
		v := newValidator(t, map[string][]byte{"s.json": []byte(row[0])})
		if err := v.file("s.json", []byte(row[1])); err == nil {
			t.Errorf("%s accepts %s", row[0], row[1])
		}
	}
}
