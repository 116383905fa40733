package frames

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// JSONLimits bounds what [CheckJSON] accepts. A zero field does not limit, but
// for Depth.
type JSONLimits struct {
	// Depth is the deepest nesting of arrays and objects; 0 means [MaxDepth].
	Depth int
	// Tokens counts member names and values.
	Tokens int
	// Bytes is the length of the whole text.
	Bytes int
	// IJSON also refuses what RFC 7493 does: lone surrogates, and numbers that
	// a double does not hold.
	IJSON bool
}

// JSONErrorKind says what is wrong with a JSON text.
type JSONErrorKind string

// The kinds of [JSONError].
const (
	JSONSyntax       JSONErrorKind = "syntax"
	JSONUTF8         JSONErrorKind = "utf8"
	JSONDepth        JSONErrorKind = "depth"
	JSONDuplicateKey JSONErrorKind = "duplicate-key"
	JSONTooMany      JSONErrorKind = "too-many-tokens"
	JSONTooLarge     JSONErrorKind = "too-large"
	// JSONNumber (I-JSON only) is an integer of magnitude 2^53 or more, in
	// whatever notation below 1e21, or a number that overflows a double.
	JSONNumber JSONErrorKind = "number"
	// JSONSurrogate (I-JSON only) is half of a surrogate pair alone.
	JSONSurrogate JSONErrorKind = "surrogate"
)

// JSONError reports why a text was refused, and the byte where it shows.
type JSONError struct {
	Kind   JSONErrorKind
	Offset int
}

// Error names the kind and the place.
func (e *JSONError) Error() string {
	return fmt.Sprintf("json: %s at byte %d: want one JSON value (RFC 8259, UTF-8) within the limits", e.Kind, e.Offset)
}

// CheckJSON reports whether b is exactly one JSON value within lim, as a
// *[JSONError]. Duplicate names, compared after decoding, and invalid UTF-8 are
// always refused. A syntax error anywhere in the text wins over these, so that
// "not JSON" and "JSON that we refuse" can be told apart; limits stop the scan
// at once. Time is linear in len(b).
func CheckJSON(b []byte, lim JSONLimits) error {
	if lim.Bytes > 0 && len(b) > lim.Bytes {
		return &JSONError{JSONTooLarge, lim.Bytes}
	}
	c := checker{b: b, maxDepth: lim.Depth, maxTokens: lim.Tokens, ijson: lim.IJSON, dups: true}
	if c.maxDepth <= 0 {
		c.maxDepth = MaxDepth
	}
	return c.text()
}

// checker scans JSON text once. fatal ends the scan; the first flaw is kept
// while the scan looks for worse.
type checker struct {
	b         []byte
	i         int
	maxDepth  int
	maxTokens int
	tokens    int
	ijson     bool
	dups      bool
	fatal     JSONErrorKind
	fatalAt   int
	flaw      JSONErrorKind
	flawAt    int
}

// text checks the whole text.
func (c *checker) text() error {
	c.space()
	if c.value(0) {
		c.space()
		if c.i < len(c.b) {
			c.fail(JSONSyntax, c.i)
		}
	}
	switch {
	case c.fatal != "":
		return &JSONError{c.fatal, c.fatalAt}
	case c.flaw != "":
		return &JSONError{c.flaw, c.flawAt}
	}
	return nil
}

func (c *checker) space() { c.i = skipSpace(c.b, c.i) }

// fail ends the scan; it returns false.
func (c *checker) fail(kind JSONErrorKind, at int) bool {
	if c.fatal == "" {
		c.fatal, c.fatalAt = kind, at
	}
	return false
}

// note keeps the first flaw.
func (c *checker) note(kind JSONErrorKind, at int) {
	if c.flaw == "" {
		c.flaw, c.flawAt = kind, at
	}
}

// token counts one name or value.
func (c *checker) token() bool {
	c.tokens++
	if c.maxTokens > 0 && c.tokens > c.maxTokens {
		return c.fail(JSONTooMany, c.i)
	}
	return true
}

// value scans one value inside depth containers.
func (c *checker) value(depth int) bool {
	if c.i >= len(c.b) {
		return c.fail(JSONSyntax, c.i)
	}
	if !c.token() {
		return false
	}
	switch ch := c.b[c.i]; {
	case ch == '{' || ch == '[':
		if depth >= c.maxDepth {
			return c.fail(JSONDepth, c.i)
		}
		if ch == '{' {
			return c.object(depth + 1)
		}
		return c.array(depth + 1)
	case ch == '"':
		c.str()
		return c.fatal == ""
	case ch == '-' || ch >= '0' && ch <= '9':
		return c.number()
	case ch == 't':
		return c.literal("true")
	case ch == 'f':
		return c.literal("false")
	case ch == 'n':
		return c.literal("null")
	}
	return c.fail(JSONSyntax, c.i)
}

func (c *checker) literal(word string) bool {
	for j := range len(word) {
		if c.i+j >= len(c.b) || c.b[c.i+j] != word[j] {
			return c.fail(JSONSyntax, c.i+j)
		}
	}
	c.i += len(word)
	return true
}

func (c *checker) array(depth int) bool {
	c.i++
	c.space()
	if c.peek() == ']' {
		c.i++
		return true
	}
	for {
		c.space()
		if !c.value(depth) {
			return false
		}
		c.space()
		switch c.peek() {
		case ',':
			c.i++
		case ']':
			c.i++
			return true
		default:
			return c.fail(JSONSyntax, c.i)
		}
	}
}

func (c *checker) object(depth int) bool {
	c.i++
	c.space()
	if c.peek() == '}' {
		c.i++
		return true
	}
	var seen keySet
	for {
		c.space()
		if !c.name(&seen) {
			return false
		}
		if !c.value(depth) {
			return false
		}
		c.space()
		switch c.peek() {
		case ',':
			c.i++
		case '}':
			c.i++
			return true
		default:
			return c.fail(JSONSyntax, c.i)
		}
	}
}

// name scans a member's name up to its value.
func (c *checker) name(seen *keySet) bool {
	from := c.i
	if c.peek() != '"' {
		return c.fail(JSONSyntax, c.i)
	}
	if !c.token() {
		return false
	}
	escaped := c.str()
	if c.fatal != "" {
		return false
	}
	if c.dups {
		key := c.b[from+1 : c.i-1]
		if escaped {
			key = []byte(unquote(c.b[from:c.i]))
		}
		if !seen.add(key) {
			c.note(JSONDuplicateKey, from)
		}
	}
	c.space()
	if c.peek() != ':' {
		return c.fail(JSONSyntax, c.i)
	}
	c.i++
	c.space()
	return true
}

// peek returns the next byte, or 0 at the end.
func (c *checker) peek() byte {
	if c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

// str scans a string and reports whether it has escapes.
func (c *checker) str() (escaped bool) {
	c.i++
	for c.i < len(c.b) {
		switch ch := c.b[c.i]; {
		case ch == '"':
			c.i++
			return escaped
		case ch == '\\':
			escaped = true
			if !c.escape() {
				return escaped
			}
		case ch < 0x20:
			c.fail(JSONSyntax, c.i)
			return escaped
		case ch < utf8.RuneSelf:
			c.i++
		default:
			r, n := utf8.DecodeRune(c.b[c.i:])
			if r == utf8.RuneError && n == 1 {
				c.note(JSONUTF8, c.i)
			}
			c.i += n
		}
	}
	c.fail(JSONSyntax, c.i)
	return escaped
}

// escape scans one escape sequence, or both halves of a surrogate pair.
func (c *checker) escape() bool {
	at := c.i
	c.i++
	switch c.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.i++
		return true
	case 'u':
	default:
		return c.fail(JSONSyntax, c.i)
	}
	r, ok := c.hex4()
	if !ok {
		return false
	}
	if r < 0xD800 || r > 0xDFFF {
		return true
	}
	if r <= 0xDBFF && c.i+6 <= len(c.b) && c.b[c.i] == '\\' && c.b[c.i+1] == 'u' {
		mark := c.i
		c.i++
		low, ok := c.hex4()
		if !ok {
			return false
		}
		if low >= 0xDC00 && low <= 0xDFFF {
			return true
		}
		c.i = mark
	}
	if c.ijson {
		c.note(JSONSurrogate, at)
	}
	return true
}

// hex4 reads the u and four hex digits after a backslash.
func (c *checker) hex4() (r rune, ok bool) {
	c.i++
	for range 4 {
		ch := c.peek()
		switch {
		case ch >= '0' && ch <= '9':
			r = r<<4 | rune(ch-'0')
		case ch >= 'a' && ch <= 'f':
			r = r<<4 | rune(ch-'a'+10)
		case ch >= 'A' && ch <= 'F':
			r = r<<4 | rune(ch-'A'+10)
		default:
			return 0, c.fail(JSONSyntax, c.i)
		}
		c.i++
	}
	return r, true
}

// number scans a number.
func (c *checker) number() bool {
	from := c.i
	if c.peek() == '-' {
		c.i++
	}
	digits := c.i
	if c.peek() == '0' {
		c.i++
	} else if !c.digits() {
		return false
	}
	whole := c.i - digits
	integer := true
	if c.peek() == '.' {
		integer = false
		c.i++
		if !c.digits() {
			return false
		}
	}
	if ch := c.peek(); ch == 'e' || ch == 'E' {
		integer = false
		c.i++
		if ch := c.peek(); ch == '+' || ch == '-' {
			c.i++
		}
		if !c.digits() {
			return false
		}
	}
	if c.ijson && !(integer && whole <= 15) && !exactNumber(c.b[from:c.i], integer) {
		c.note(JSONNumber, from)
	}
	return true
}

// digits scans one or more digits.
func (c *checker) digits() bool {
	if ch := c.peek(); ch < '0' || ch > '9' {
		return c.fail(JSONSyntax, c.i)
	}
	for c.i < len(c.b) && c.b[c.i] >= '0' && c.b[c.i] <= '9' {
		c.i++
	}
	return true
}

// exactNumber reports whether the number is one that every I-JSON reader takes
// for the same value. Below 1e21 canonical JSON writes a number without an
// exponent, so there a float of 2^53 or more is an integer too.
func exactNumber(b []byte, integer bool) bool {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return false
	}
	f = math.Abs(f)
	return f < MaxInteger || !integer && f >= 1e21
}

// keySet holds the names of one object: a few in place, more in a map.
type keySet struct {
	few  [8][]byte
	n    int
	many map[string]struct{}
}

// add reports whether key is new.
func (s *keySet) add(key []byte) bool {
	if s.many != nil {
		if _, ok := s.many[string(key)]; ok {
			return false
		}
		s.many[string(key)] = struct{}{}
		return true
	}
	for _, k := range s.few[:s.n] {
		if bytes.Equal(k, key) {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = key
		s.n++
		return true
	}
	s.many = make(map[string]struct{}, 4*len(s.few))
	for _, k := range s.few {
		s.many[string(k)] = struct{}{}
	}
	s.many[string(key)] = struct{}{}
	return true
}
