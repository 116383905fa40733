package frames

import (
	"errors"
	"fmt"
	"strconv"
)

// Renumber returns the stored event as it stands in a log whose numbers are by
// larger, as in a fork: its seq, and the seqs in its payload that mean this log,
// are by larger. Every other byte stays, so that vendor types and unknown fields
// go through. event is not changed.
func Renumber(event []byte, by Seq) ([]byte, error) {
	out := make([]byte, 0, len(event)+2*len("9007199254740991"))
	var typ EventType
	kept, numbered := 0, false
	err := eachField(event, func(name string, from int, v []byte) (err error) {
		switch name {
		case "type":
			return setString(&typ, name, v)
		case "seq":
			numbered = true
			out = append(out, event[kept:from]...)
			out, err = appendShifted(out, name, v, by)
			kept = from + len(v)
		}
		return err
	})
	if err == nil && !numbered {
		err = errors.New("want an event with a seq, got none")
	}
	if err != nil {
		return nil, fmt.Errorf("renumber: %w", err)
	}
	out = append(out, event[kept:]...)
	if typ == SessionCompactedEvent {
		return renumberCompaction(out, by)
	}
	return out, nil
}

// renumberCompaction shifts the seq up to which a compaction went. A payload that
// does not fit the contract stays as it is.
func renumberCompaction(event []byte, by Seq) ([]byte, error) {
	out := make([]byte, 0, len(event)+len("9007199254740991"))
	kept := 0
	err := eachField(event, func(name string, at int, data []byte) error {
		if name != "data" || len(data) == 0 || data[0] != '{' {
			return nil
		}
		return eachField(data, func(name string, from int, v []byte) error {
			if name != "upTo" {
				return nil
			}
			shifted, err := appendShifted(append(out, event[kept:at+from]...), name, v, by)
			if err != nil {
				return nil //nolint:nilerr // not a seq: the fold does not read it either
			}
			out, kept = shifted, at+from+len(v)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("renumber: %w", err)
	}
	return append(out, event[kept:]...), nil
}

// appendShifted appends the seq in v, by larger; 0 stays 0, which means none.
func appendShifted(dst []byte, name string, v []byte, by Seq) ([]byte, error) {
	var s Seq
	if err := setSeq(&s, name, v); err != nil {
		return nil, err
	}
	return strconv.AppendUint(dst, uint64(s.shifted(by)), 10), nil
}

func (s Seq) shifted(by Seq) Seq {
	if s == 0 {
		return 0
	}
	return s + by
}

// Fork makes v, the view of a session, that of its fork: every seq is one larger,
// and what created says, the fork's own first event, takes the place of what the
// source's said.
func (v *View) Fork(created SessionCreated, at Time) {
	v.shift(1)
	v.foldSession(Event{Type: SessionCreatedEvent, Seq: 1, Time: at}, &created)
	v.settle()
}

// shift makes every seq of this log by larger.
func (v *View) shift(by Seq) {
	v.Seq = v.Seq.shifted(by)
	v.compacted.UpTo = v.compacted.UpTo.shifted(by)
	for i := range v.Turns {
		t := &v.Turns[i]
		t.StartSeq, t.EndSeq = t.StartSeq.shifted(by), t.EndSeq.shifted(by)
	}
	for _, it := range v.Items {
		it.shift(by)
	}
	for _, p := range v.pending.all() {
		if p.Seq > 0 {
			v.pending.get(p.ID).Seq = p.Seq + by
		}
	}
}

func (it *Item) shift(by Seq) {
	it.Seq, it.UpTo = it.Seq.shifted(by), it.UpTo.shifted(by)
	it.Decision.shift(by)
	if c := it.Tool; c != nil {
		c.ResultSeq = c.ResultSeq.shifted(by)
		for _, d := range c.Decisions {
			d.shift(by)
		}
	}
	if c := it.Agent; c != nil {
		c.EndSeq = c.EndSeq.shifted(by)
	}
}

func (d *Decision) shift(by Seq) {
	if d != nil {
		d.AskedSeq, d.Seq = d.AskedSeq.shifted(by), d.Seq.shifted(by)
	}
}
