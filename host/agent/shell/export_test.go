package shell

// What the tests see of the repair of text.
type Repairer struct{ r repairer }

func (r *Repairer) Text(b []byte) string { return r.r.text(b) }
func (r *Repairer) Flush() string        { return r.r.flush() }

// Repair is repair.
func Repair(b []byte) string { return repair(b) }
