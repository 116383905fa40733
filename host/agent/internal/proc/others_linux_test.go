package proc_test

import (
	"bufio"
	"testing"
)

// Killing a process spares those that are not its own, whatever they left behind
// themselves.
func TestKillSparesOthers(t *testing.T) {
	const script = `setsid sleep 1000 &
env -i /usr/bin/env setsid sh -c '(setsid sleep 1000 >/dev/null 2>&1 </dev/null &)'
echo ready
read x`
	mine, theirs := workplace(t), workplace(t)
	p, other := converse(t, mine, script), converse(t, theirs, script)
	for _, q := range []*bufio.Reader{bufio.NewReader(p.Stdout), bufio.NewReader(other.Stdout)} {
		if _, err := q.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if !within(func() bool { return living(t, mine) == 3 && living(t, theirs) == 3 }) {
		t.Fatalf("%d and %d processes run; want 3 each", living(t, mine), living(t, theirs))
	}
	p.Kill()
	if a, b := living(t, mine), living(t, theirs); a != 0 || b != 3 {
		t.Errorf("%d of its own and %d of others run; want 0 and 3", a, b)
	}
}

// A keeper that is killed by what it keeps does not save that.
func TestKilledKeepers(t *testing.T) {
	dir := workplace(t)
	p := converse(t, dir, "setsid sleep 1000 &\necho ready\nread x\nkill -KILL $PPID\nread x")
	if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdin.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	p.Kill()
	if n := living(t, dir); n > 0 {
		t.Errorf("%d processes survive; want 0", n)
	}
}
