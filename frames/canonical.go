package frames

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Canonical returns the RFC 8785 form of b: names sorted by UTF-16 code units,
// numbers as ECMAScript writes them, the fewest escapes, no white space. b must
// be I-JSON no deeper than [MaxDepth]; else the error is a *[JSONError]. b is not
// kept.
func Canonical(b []byte) ([]byte, error) {
	if err := CheckJSON(b, JSONLimits{IJSON: true}); err != nil {
		return nil, err
	}
	c := checker{b: b, maxDepth: MaxDepth}
	c.space()
	return c.tree().appendTo(make([]byte, 0, len(b))), nil
}

// InputHash returns the canonical form of a tool's input and its SHA-256 as
// lowercase hex: what an approval is bound to.
func InputHash(b []byte) (canonical []byte, hash string, err error) {
	canonical, err = Canonical(b)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(canonical)
	return canonical, hex.EncodeToString(sum[:]), nil
}

// node is one checked JSON value; names is set on objects only.
type node struct {
	raw   []byte // the value as written
	names []string
	kids  []node
}

// tree reads the value at c.i, in text that was checked before.
func (c *checker) tree() node {
	from := c.i
	n := node{}
	switch c.b[c.i] {
	case '{', '[':
		object := c.b[c.i] == '{'
		c.i++
		for c.more() {
			if object {
				n.names = append(n.names, c.member())
			}
			n.kids = append(n.kids, c.tree())
		}
	default:
		c.value(0)
	}
	n.raw = c.b[from:c.i]
	return n
}

// more moves to the next element, or past the end of the container.
func (c *checker) more() bool {
	c.space()
	switch c.b[c.i] {
	case ']', '}':
		c.i++
		return false
	case ',':
		c.i++
		c.space()
	}
	return true
}

func (n node) appendTo(dst []byte) []byte {
	switch n.raw[0] {
	case '{':
		return n.appendObject(dst)
	case '[':
		dst = append(dst, '[')
		for i, kid := range n.kids {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = kid.appendTo(dst)
		}
		return append(dst, ']')
	case '"':
		return appendString(dst, unquote(n.raw))
	case 't', 'f', 'n':
		return append(dst, n.raw...)
	}
	return appendNumber(dst, n.raw)
}

func (n node) appendObject(dst []byte) []byte {
	order := make([]int, len(n.kids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareUTF16(n.names[a], n.names[b]) })
	dst = append(dst, '{')
	for i, at := range order {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, n.names[at]), ':')
		dst = n.kids[at].appendTo(dst)
	}
	return append(dst, '}')
}

// compareUTF16 orders a and b as their UTF-16 forms. It differs from the order
// of bytes only between U+E000..U+FFFF and what is written as surrogates.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			high := func(r rune) bool { return r > 0xFFFF }
			if high(ra) != high(rb) {
				return cmp.Compare(firstUnit(ra), firstUnit(rb))
			}
			return cmp.Compare(ra, rb)
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// firstUnit is the first UTF-16 code unit of r.
func firstUnit(r rune) rune {
	if r > 0xFFFF {
		return 0xD800 + (r-0x10000)>>10
	}
	return r
}

// appendNumber writes a checked number as ECMAScript's Number::toString does.
func appendNumber(dst, raw []byte) []byte {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f == 0 {
		return append(dst, '0') // also -0
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes at least two digits of exponent, ECMAScript does not.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
