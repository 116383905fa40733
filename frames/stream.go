package frames

// stream is append-only text that arrives in numbered chunks. Bytes before
// len(text) are never written again, so that a snapshot may share them.
type stream struct {
	text []byte
	to   int // chunks so far
}

// verdict is what the chunk rule says of a delta.
type verdict uint8

const (
	added  verdict = iota // it was appended
	had                   // its chunks were there before
	missed                // chunks before it are missing
)

// add appends chunks [from, to) by the contract's rule.
func (s *stream) add(from, to int, text string) verdict {
	switch {
	case to <= s.to:
		return had
	case from != s.to:
		return missed
	}
	s.text = append(s.text, text...)
	s.to = to
	return added
}

// keepTail forgets text that is out of reach of the last [MaxProgress] bytes. It
// copies, so that what snapshots share stays as it is, and only once in a while,
// so that the cost per byte is constant.
func (s *stream) keepTail() {
	if len(s.text) > 2*MaxProgress {
		s.text = append(make([]byte, 0, 2*MaxProgress), s.tail()...)
	}
}

// tail is the last [MaxProgress] bytes, from a character boundary.
func (s *stream) tail() []byte { return share(s.text[tailStart(s.text, MaxProgress):]) }

// share returns b such that appending to it copies.
func share(b []byte) []byte { return b[:len(b):len(b)] }
