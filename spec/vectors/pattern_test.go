package vectors_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// binds are the values that patterns bound by name: strings and numbers.
type binds map[string]any

// fill replaces ${name} in a message that is sent.
func (b binds) fill(text string) string {
	for name, v := range b {
		s, ok := v.(string)
		if !ok {
			s = strconv.FormatFloat(v.(float64), 'f', -1, 64)
		}
		text = strings.ReplaceAll(text, "${"+name+"}", s)
	}
	return text
}

// match reports how v differs from a pattern; what it binds is bound only where
// all of it matches.
func (b binds) match(pattern, v any) error {
	try := maps.Clone(b)
	if err := try.value("", pattern, v); err != nil {
		return err
	}
	maps.Copy(b, try)
	return nil
}

func (b binds) value(at string, pattern, v any) error {
	switch p := pattern.(type) {
	case string:
		return b.text(at, p, v)
	case []any:
		list, ok := v.([]any)
		if !ok || len(list) != len(p) {
			return fmt.Errorf("%s: want a list of %d, got %s", at, len(p), clip(v))
		}
		for i := range p {
			if err := b.value(fmt.Sprintf("%s[%d]", at, i), p[i], list[i]); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		if name, ok := p["$bind"].(string); ok {
			return b.bind(at, name, v)
		}
		if some, ok := p["$has"].([]any); ok {
			return b.has(at, some, v)
		}
		return b.object(at, p, v)
	}
	if !reflect.DeepEqual(pattern, v) {
		return fmt.Errorf("%s: want %s, got %s", at, clip(pattern), clip(v))
	}
	return nil
}

// text matches a pattern that is a string.
func (b binds) text(at, p string, v any) error {
	s, isText := v.(string)
	n, isNumber := v.(float64)
	ok := false
	switch p {
	case "$any":
		ok = true
	case "$string":
		ok = isText
	case "$int":
		ok = isNumber && n == math.Trunc(n) && n >= 0 && n < 1<<53
	case "$uuid":
		ok = isText && uuid.MatchString(s)
	default:
		if name, is := strings.CutPrefix(p, "${"); is && strings.HasSuffix(name, "}") {
			bound, known := b[strings.TrimSuffix(name, "}")]
			ok = known && bound == v
			break
		}
		ok = isText && s == p
	}
	if !ok {
		return fmt.Errorf("%s: want %s, got %s", at, b.fill(p), clip(v))
	}
	return nil
}

func (b binds) bind(at, name string, v any) error {
	switch v.(type) {
	case string, float64:
		b[name] = v
		return nil
	}
	return fmt.Errorf("%s: want a string or a number for %s, got %s", at, name, clip(v))
}

func (b binds) has(at string, some []any, v any) error {
	list, _ := v.([]any)
	for _, p := range some {
		found := false
		for _, element := range list {
			found = found || b.match(p, element) == nil
		}
		if !found {
			return fmt.Errorf("%s: want %s in it, got %s", at, clip(p), clip(v))
		}
	}
	return nil
}

func (b binds) object(at string, p map[string]any, v any) error {
	o, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want an object, got %s", at, clip(v))
	}
	for name, pattern := range p {
		member, there := o[name]
		switch {
		case pattern == "$absent" && there:
			return fmt.Errorf("%s.%s: want it absent, got %s", at, name, clip(member))
		case pattern == "$absent":
		case !there:
			return fmt.Errorf("%s.%s: want it, got none in %s", at, name, clip(v))
		default:
			if err := b.value(at+"."+name, pattern, member); err != nil {
				return err
			}
		}
	}
	return nil
}

// The pattern language matches what it says and nothing else.
func TestPatterns(t *testing.T) {
	for _, row := range []struct {
		pattern, value string
		want           bool
	}{
		{`"$any"`, `null`, true},
		{`"$string"`, `1`, false},
		{`"$int"`, `1.5`, false},
		{`"$int"`, `9007199254740992`, false},
		{`"$int"`, `9007199254740991`, true},
		{`"$uuid"`, `"01890000-0000-7000-8000-00000000000a"`, true},
		{`"$uuid"`, `"01890000-0000-7000-8000-00000000000A"`, false},
		{`{"a":"$absent"}`, `{}`, true},
		{`{"a":"$absent"}`, `{"a":null}`, false},
		{`{"a":null}`, `{}`, false},
		{`{"a":1}`, `{"a":1,"b":2}`, true},
		{`[1]`, `[1,2]`, false},
		{`{"$has":[2,{"x":1}]}`, `[{"x":1,"y":1},2]`, true},
		{`{"$has":[3]}`, `[1]`, false},
		{`[{"$bind":"n"},"${n}"]`, `[7,7]`, true},
		{`[{"$bind":"n"},"${n}"]`, `[7,8]`, false},
		{`"${m}"`, `"x"`, false},
		{`{"$bind":"n"}`, `null`, false},
		{`"a"`, `"b"`, false},
	} {
		var pattern, value any
		if json.Unmarshal([]byte(row.pattern), &pattern) != nil || json.Unmarshal([]byte(row.value), &value) != nil {
			t.Fatalf("%s, %s: not JSON", row.pattern, row.value)
		}
		if err := (binds{}).match(pattern, value); (err == nil) != row.want {
			t.Errorf("%s against %s: %v, want a match: %v", row.pattern, row.value, err, row.want)
		}
	}
}
