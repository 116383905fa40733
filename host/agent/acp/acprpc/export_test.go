package acprpc

// DecodeLine decodes one line as the stream does.
func DecodeLine(line []byte) (shown []byte, method string, why string) {
	var s stream
	shown, why = s.decode(line)
	return shown, s.current.Method, why
}
