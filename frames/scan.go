package frames

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxScanDepth is how deep the payload of an event may nest; it is the limit of
// encoding/json. Messages of clients are held to [MaxDepth].
const maxScanDepth = 10000

// checkObject reports whether b is one JSON object in valid UTF-8, with nothing
// but white space around it. It allocates nothing when it is.
func checkObject(b []byte) error {
	i := skipSpace(b, 0)
	if i == len(b) || b[i] != '{' {
		return errors.New("want a JSON object")
	}
	c := checker{b: b, maxDepth: maxScanDepth}
	return c.text()
}

// eachField calls f for each member of the object b, with its decoded name and
// the bytes of its value, which alias b; from is where the value begins. The
// whole of b is checked first.
func eachField(b []byte, f func(name string, from int, value []byte) error) error {
	if err := checkObject(b); err != nil {
		return err
	}
	c := checker{b: b, i: skipSpace(b, 0) + 1, maxDepth: maxScanDepth}
	for {
		c.space()
		if c.b[c.i] == ',' {
			c.i++
			c.space()
		}
		if c.b[c.i] == '}' {
			return nil
		}
		name := c.member()
		from := c.i
		c.value(1)
		if err := f(name, from, b[from:c.i]); err != nil {
			return err
		}
	}
}

// member reads a name and its colon, in text that was checked before.
func (c *checker) member() string {
	from := c.i
	escaped := c.str()
	name := string(c.b[from+1 : c.i-1])
	if escaped {
		name = unquote(c.b[from:c.i])
	}
	c.space()
	c.i++ // the colon
	c.space()
	return name
}

// unquote decodes a checked JSON string.
func unquote(b []byte) string {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return string(b)
	}
	return s
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// setString decodes value into dst; null leaves it alone.
func setString[T ~string](dst *T, name string, value []byte) error {
	if isNull(value) {
		return nil
	}
	if value[0] != '"' {
		return fmt.Errorf("%s: want a string, got %s", name, clip(value))
	}
	if raw := value[1 : len(value)-1]; bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		*dst = T(raw)
		return nil
	}
	*dst = T(unquote(value))
	return nil
}

// setSeq decodes value into dst; null leaves it alone.
func setSeq(dst *Seq, name string, value []byte) error {
	if isNull(value) {
		return nil
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil || n >= MaxInteger {
		return fmt.Errorf("%s: want an integer from 0 to 2^53-1, got %s", name, clip(value))
	}
	*dst = Seq(n)
	return nil
}

func isNull(b []byte) bool { return string(b) == "null" }

// clip shortens b for an error message.
func clip(b []byte) string {
	s, cut := Preview(ValidText(string(b[:min(len(b), 64)])), 40)
	if cut || len(b) > 64 {
		s += "…"
	}
	return strconv.Quote(s)
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string with the fewest escapes, without
// HTML escaping. Invalid UTF-8 becomes U+FFFD.
func appendString[T ~string](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:]))
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\uFFFD"...)
				from = i + n
			}
			i += n
			continue
		}
		dst = appendEscape(append(dst, s[from:i]...), c)
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\t':
		return append(dst, `\t`...)
	case '\n':
		return append(dst, `\n`...)
	case '\f':
		return append(dst, `\f`...)
	case '\r':
		return append(dst, `\r`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
