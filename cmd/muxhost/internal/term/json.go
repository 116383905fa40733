package term

import (
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns JSON text that says the same and holds no character that a terminal
// would obey or hide: inside strings, the only place for one, it stands as \uXXXX.
// text is returned as it is where nothing is hidden in it.
func JSON(text []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r >= 0x7f && hidden(r) {
			out = append(out, text[from:i]...)
			out = appendEscaped(out, r)
			from = i + n
		}
		i += n
	}
	if out == nil {
		return text
	}
	return append(out, text[from:]...)
}

func appendEscaped(dst []byte, r rune) []byte {
	for _, unit := range utf16.AppendRune(nil, r) {
		dst = append(dst, '\\', 'u')
		for shift := 12; shift >= 0; shift -= 4 {
			dst = append(dst, "0123456789abcdef"[unit>>shift&15])
		}
	}
	return dst
}
