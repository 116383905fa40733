//go:build realagents && linux

package realagents_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// unsoundError says that the host was not correct, whatever the agent did.
type unsoundError struct{ error }

func (e unsoundError) Unwrap() error { return e.error }

// fault is something that is known to be wrong with an agent.
type fault struct {
	agent, scene string
	// sign is a part of the error by which the scene fails then.
	sign string
	// what is wrong, and why the host can do no better.
	what string
}

// cell is the result of one scene with one agent.
type cell struct {
	absent bool // the agent has nothing of the kind
	fault  int  // 1 + index of the known fault, 0: none
	err    error
	took   time.Duration
}

func (c cell) String() string {
	switch {
	case c.absent:
		return "-"
	case c.err != nil:
		return "FAIL"
	case c.fault > 0:
		return fmt.Sprintf("fault %d", c.fault)
	}
	return fmt.Sprintf("pass %.1fs", c.took.Seconds())
}

// judge turns what a scene returned into a cell.
func judge(a *realAgent, scene string, err error) cell {
	if err == nil {
		return cell{}
	}
	if _, unsound := errors.AsType[unsoundError](err); !unsound {
		for i, f := range faults() {
			if f.agent == a.name && f.scene == scene && strings.Contains(err.Error(), f.sign) {
				return cell{fault: i + 1}
			}
		}
	}
	return cell{err: err}
}

// table holds the cells.
type table struct {
	mu      sync.Mutex // guards what follows
	rows    []string
	columns []string
	cells   map[[2]string]cell
}

func (t *table) add(a *realAgent, column string, c cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cells == nil {
		t.cells = map[[2]string]cell{}
	}
	if !slices.Contains(t.rows, a.version) {
		t.rows = append(t.rows, a.version)
	}
	if !slices.Contains(t.columns, column) {
		t.columns = append(t.columns, column)
	}
	t.cells[[2]string{a.version, column}] = c
}

func (t *table) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.cells {
		if c.err != nil {
			return true
		}
	}
	return false
}

// print writes the table, then what its cells say in short.
func (t *table) print(w io.Writer, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.cells) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%-26s", "agent")
	for _, c := range t.columns {
		fmt.Fprintf(w, " %-13s", c)
	}
	fmt.Fprintln(w)
	hit := map[int]bool{}
	var failures []string
	for _, r := range t.rows {
		fmt.Fprintf(w, "%-26s", r)
		for _, col := range t.columns {
			c, ok := t.cells[[2]string{r, col}]
			if !ok {
				fmt.Fprintf(w, " %-13s", "not played")
				continue
			}
			fmt.Fprintf(w, " %-13s", c)
			hit[c.fault] = true
			if c.err != nil {
				failures = append(failures, fmt.Sprintf("FAIL %s, %s: %v", r, col, c.err))
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\n-: the agent has nothing of the kind. Took %v.\n", took.Round(time.Second))
	for i, f := range faults() {
		if hit[i+1] {
			fmt.Fprintf(w, "fault %d: %s; the host stayed correct\n", i+1, f.what)
		}
	}
	for _, f := range failures {
		fmt.Fprintln(w, f)
	}
}
