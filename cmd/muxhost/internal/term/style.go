package term

import "os"

// Style colours text, or not. The zero Style does not.
type Style struct{ on bool }

// NewStyle decides once whether f gets colours. mode is auto, always or never;
// in auto mode f must be a terminal and getenv must name neither NO_COLOR nor
// TERM=dumb (CLICOLOR_FORCE turns colours on).
func NewStyle(f *os.File, mode string, getenv func(string) string) Style {
	switch mode {
	case "always":
		return Style{on: true}
	case "never":
		return Style{}
	}
	if getenv("NO_COLOR") != "" {
		return Style{}
	}
	if v := getenv("CLICOLOR_FORCE"); v != "" && v != "0" {
		return Style{on: true}
	}
	return Style{on: IsTerminal(f) && getenv("TERM") != "dumb"}
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	return !os.SameFile(st, devNull())
}

func devNull() os.FileInfo {
	st, _ := os.Stat(os.DevNull)
	return st
}

func (s Style) wrap(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold, Dim, Red, Green, Yellow and Cyan return text in that style.
func (s Style) Bold(t string) string   { return s.wrap("1", t) }
func (s Style) Dim(t string) string    { return s.wrap("2", t) }
func (s Style) Red(t string) string    { return s.wrap("31", t) }
func (s Style) Green(t string) string  { return s.wrap("32", t) }
func (s Style) Yellow(t string) string { return s.wrap("33", t) }
func (s Style) Cyan(t string) string   { return s.wrap("36", t) }
