package rpc

import (
	"fmt"
	"iter"
)

// scanner walks JSON text that frames.CheckJSON has accepted; it checks nothing.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r') {
		s.i++
	}
}

func (s *scanner) peek() byte { return s.b[s.i] }

// kind names the value that starts here.
func (s *scanner) kind() string { return kindOf(s.b[s.i:]) }

// members yields the raw names of the object that starts here; the body of the
// loop takes the value each time, from its first byte.
func (s *scanner) members() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s.i++
		for {
			s.space()
			switch s.peek() {
			case '}':
				s.i++
				return
			case ',':
				s.i++
				continue
			}
			key := s.value()
			s.space()
			s.i++ // the colon
			s.space()
			if !yield(key) {
				return
			}
		}
	}
}

// elements yields the index of each element of the array that starts here; the
// body of the loop takes the value, from its first byte.
func (s *scanner) elements() iter.Seq[int] {
	return func(yield func(int) bool) {
		s.i++
		for n := 0; ; {
			s.space()
			switch s.peek() {
			case ']':
				s.i++
				return
			case ',':
				s.i++
				continue
			}
			if !yield(n) {
				return
			}
			n++
		}
	}
}

// value skips the value that starts here and returns its bytes.
func (s *scanner) value() []byte {
	start := s.i
	switch s.peek() {
	case '"':
		s.str()
	case '{', '[':
		s.nested()
	default:
		s.word()
	}
	return s.b[start:s.i:s.i]
}

func (s *scanner) str() {
	for s.i++; s.b[s.i] != '"'; s.i++ {
		if s.b[s.i] == '\\' {
			s.i++
		}
	}
	s.i++
}

func (s *scanner) nested() {
	for depth := 0; ; s.i++ {
		switch s.b[s.i] {
		case '"':
			s.str()
			s.i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return
			}
		}
	}
}

// word skips a number or a literal.
func (s *scanner) word() {
	for s.i < len(s.b) && s.b[s.i] > ' ' && s.b[s.i] != ',' && s.b[s.i] != '}' && s.b[s.i] != ']' {
		s.i++
	}
}

// kindOf names the JSON type of a value.
func kindOf(raw []byte) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// quoted shows a peer's name, given as JSON, in a message.
func quoted(rawName []byte) string { return show(string(plain(rawName))) }

// show quotes a peer's word for a message, cut where it is long.
func show(word string) string {
	if len(word) > 64 {
		return fmt.Sprintf("%q…", word[:64])
	}
	return fmt.Sprintf("%q", word)
}
