package llm

import (
	"io"
	"os"
	"strings"
)

// Events returns the events of a stream, and its error.
func Events(r io.Reader) (all []string, err error) {
	for data, err := range events(r) {
		if err != nil {
			return all, err
		}
		all = append(all, data)
	}
	return all, nil
}

// Answer is what an answer says in the end.
type Answer struct {
	Text, Reasoning, Finish string
	Calls                   [][2]string
	Started                 bool
}

// Read reads a whole stream as an answer.
func Read(stream string) (Answer, error) {
	r := &reply{said: quiet{}}
	err := func() error {
		for data, err := range events(strings.NewReader(stream)) {
			if err != nil {
				return r.end(err)
			}
			if err := r.take(data); err != nil {
				return err
			}
			if r.done {
				break
			}
		}
		return r.end(nil)
	}()
	a := Answer{Text: r.text.String(), Reasoning: r.reasoning.String(), Finish: r.finish, Started: r.started}
	for _, c := range r.calls {
		a.Calls = append(a.Calls, [2]string{c.name, c.args.String()})
	}
	return a, err
}

// OpenFile opens a file as the tools do, and closes it.
func OpenFile(root *os.Root, name string) error {
	f, _, err := regular(root, name)
	if err == nil {
		err = f.Close()
	}
	return err
}
