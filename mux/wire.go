package mux

import "encoding/binary"

// The first byte of a final WebSocket frame, by opcode (RFC 6455, 5.2).
const (
	finText  = 0x80 | 0x1
	finClose = 0x80 | 0x8
	finPing  = 0x80 | 0x9
	finPong  = 0x80 | 0xA
)

// maxHeader is the longest header of an unmasked frame.
const maxHeader = 10

// maxReason is the longest close reason, in bytes.
const maxReason = 123

// appendHeader appends the header of an unmasked frame of n payload bytes.
func appendHeader(dst []byte, first byte, n int) []byte {
	switch {
	case n < 126:
		return append(dst, first, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, first, 126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, first, 127), uint64(n))
	}
}

// payloadOf returns the payload of one unmasked frame.
func payloadOf(frame []byte) []byte {
	switch frame[1] {
	case 126:
		return frame[4:]
	case 127:
		return frame[10:]
	default:
		return frame[2:]
	}
}

// payloadLen returns the length of the first unmasked frame's payload in b.
func payloadLen(b []byte) int {
	switch b[1] {
	case 126:
		return int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		return int(binary.BigEndian.Uint64(b[2:]))
	default:
		return int(b[1])
	}
}

// closeFrame returns a whole close frame.
func closeFrame(code int, reason string) []byte {
	reason = reason[:min(len(reason), maxReason)]
	b := appendHeader(nil, finClose, 2+len(reason))
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	return append(b, reason...)
}
