package frames

// list is an ordered set of rows by key. Every operation is amortised O(1).
type list[K comparable, V any] struct {
	rows []listRow[K, V]
	at   map[K]int
}

type listRow[K comparable, V any] struct {
	key K
	val *V // nil: deleted
}

// put adds a row at the end, or replaces the one with that key in its place.
func (l *list[K, V]) put(k K, v V) *V {
	if i, ok := l.at[k]; ok {
		*l.rows[i].val = v
		return l.rows[i].val
	}
	if l.at == nil {
		l.at = make(map[K]int)
	}
	l.at[k] = len(l.rows)
	l.rows = append(l.rows, listRow[K, V]{k, &v})
	return &v
}

// get returns the row, nil if there is none.
func (l *list[K, V]) get(k K) *V {
	if i, ok := l.at[k]; ok {
		return l.rows[i].val
	}
	return nil
}

// del removes the row, if it is there.
func (l *list[K, V]) del(k K) {
	i, ok := l.at[k]
	if !ok {
		return
	}
	l.rows[i].val = nil
	delete(l.at, k)
	if len(l.rows) > 2*len(l.at)+8 {
		l.compact()
	}
}

func (l *list[K, V]) compact() {
	kept := l.rows[:0]
	for _, r := range l.rows {
		if r.val != nil {
			l.at[r.key] = len(kept)
			kept = append(kept, r)
		}
	}
	clear(l.rows[len(kept):])
	l.rows = kept
}

// all copies the rows in order; never nil.
func (l *list[K, V]) all() []V {
	out := make([]V, 0, len(l.at))
	for _, r := range l.rows {
		if r.val != nil {
			out = append(out, *r.val)
		}
	}
	return out
}
