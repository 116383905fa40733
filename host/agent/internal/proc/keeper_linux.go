package proc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// This variable and this name make this program a keeper.
	keeperEnv, keeperName = "MUXHOST_KEEPER", "muxhost-keeper"
	// keeperWait is how long a keeper may take to end what it keeps.
	keeperWait = 5 * time.Second
	// prSetChildSubreaper is of prctl(2), the others of close_range(2); package syscall
	// does not name them.
	prSetChildSubreaper = 36
	sysCloseRange       = 436
	closeRangeCloexec   = 4
)

// order is what a keeper is told to run.
type order struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// keeper is the host's end of a small process between the host and what it runs: this
// program again. The kernel makes every orphan below it its child, whatever group,
// session or environment the orphan has, so it finds them all.
type keeper struct {
	control *os.File // its end is the order to kill; 'T' asks for an orderly end
	report  *bufio.Reader
	file    *os.File // under report
	theirs  []*os.File
}

// command returns the keeper's own command.
func (k *keeper) command() (*exec.Cmd, error) {
	cr, cw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	rr, rw, err := os.Pipe()
	if err != nil {
		closeAll([]*os.File{cr, cw})
		return nil, err
	}
	k.control, k.file, k.report, k.theirs = cw, rr, bufio.NewReader(rr), []*os.File{cr, rw}
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // ended by its pipe
	cmd.Args = []string{keeperName}
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{keeperEnv + "=1"}, k.theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}

// begin tells a keeper that was started what to run, and whether that runs.
func (k *keeper) begin(o order) error {
	closeAll(k.theirs)
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if _, err := k.control.Write(append(b, '\n')); err != nil {
		return err
	}
	line, err := k.report.ReadString('\n')
	switch line = strings.TrimSpace(line); {
	case err != nil:
		return fmt.Errorf("its keeper ended: %w", err)
	case line != "":
		return errors.New(line)
	}
	return nil
}

// abandon frees a keeper that was not started.
func (k *keeper) abandon() { closeAll(k.theirs, []*os.File{k.control, k.file}) }

// terminate asks for an orderly end.
func (k *keeper) terminate() { _, _ = k.control.Write([]byte("T")) }

// release makes the keeper kill what it keeps, if that has not ended.
func (k *keeper) release() { k.control.Close() }

// ending reads how what it kept has ended; the keeper must have ended.
func (k *keeper) ending() (e Ending, ok bool) {
	defer k.file.Close()
	_ = k.file.SetReadDeadline(time.Now().Add(time.Second)) // nobody writes any more
	var st syscall.WaitStatus
	if _, err := fmt.Fscan(k.report, &st, &e.Survivors); err != nil {
		return e, false
	}
	e.Code = st.ExitStatus()
	if st.Signaled() {
		e.Code, e.Signal = 128+int(st.Signal()), st.Signal().String()
	}
	return e, true
}

// init makes this program a keeper where the host started it as one. It is here, and
// not in main, so that every program that embeds the host can be one.
func init() { //nolint:gochecknoinits // see above
	if os.Getenv(keeperEnv) != "" && os.Args[0] == keeperName {
		_ = syscall.SetNonblock(3, true) // so that reading it can be ended
		keep(os.NewFile(3, "control"), os.NewFile(4, "report"))
		os.Exit(0)
	}
}

// kept is what a keeper keeps. One goroutine kills and collects, so that no pid is
// used after it was given back.
type kept struct {
	pid    int // of the leader
	over   bool
	status syscall.WaitStatus
}

// keep is the keeper: it runs what it is told, until that has ended or the host is
// gone, and kills whatever is left.
func keep(control, report *os.File) {
	// Nothing that the host has open, or inherited itself, is for what runs here.
	if _, _, e := syscall.RawSyscall(sysCloseRange, 3, ^uintptr(0)>>33, closeRangeCloexec); e != 0 {
		syscall.CloseOnExec(3)
		syscall.CloseOnExec(4)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	in := bufio.NewReader(control)
	k, err := start(in)
	if err != nil {
		fmt.Fprintln(report, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	silence()
	fmt.Fprintln(report)
	orders, done := make(chan byte), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { listen(in, orders, done) })
	k.watch(signals, orders)
	left := k.clear()
	fmt.Fprintln(report, uint32(k.status), left)
	close(done)
	_ = control.SetReadDeadline(time.Now())
	wg.Wait()
}

// listen hands on orders until there are no more.
func listen(in *bufio.Reader, orders chan<- byte, done <-chan struct{}) {
	defer close(orders)
	for {
		b, err := in.ReadByte()
		if err != nil {
			return
		}
		select {
		case orders <- b:
		case <-done:
			return
		}
	}
}

// start reads the order and starts what it says, in its own group. It is killed by the
// kernel if the keeper is.
func start(in *bufio.Reader) (*kept, error) {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); e != 0 {
		return nil, fmt.Errorf("orphans cannot be caught: %w", e)
	}
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, err
	}
	pid, err := syscall.ForkExec(o.Argv[0], o.Argv, &syscall.ProcAttr{
		Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, &os.PathError{Op: "fork/exec", Path: o.Argv[0], Err: err}
	}
	return &kept{pid: pid}, nil
}

// silence lets go of the pipes of what is kept.
func silence() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = syscall.Dup3(int(null.Fd()), fd, 0)
	}
}

// watch waits for the leader's end, or the order to kill it.
func (k *kept) watch(signals <-chan os.Signal, orders <-chan byte) {
	for !k.over {
		select {
		case s := <-signals:
			if s != syscall.SIGCHLD {
				return
			}
			k.collect()
		case _, ok := <-orders:
			if !ok {
				return
			}
			_ = syscall.Kill(-k.pid, syscall.SIGTERM)
		}
	}
}

// collect takes the status of every child that has ended, and reports whether there
// are others.
func (k *kept) collect() (more bool) {
	for {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR: //nolint:errorlint // an errno
			continue
		case err != nil:
			return false
		case pid == 0:
			return true
		case pid == k.pid:
			k.over, k.status = true, st
		}
	}
}

// clear kills every child, those that become children meanwhile too, and returns how
// many are left in the end.
func (k *kept) clear() (left int) {
	for deadline := time.Now().Add(keeperWait * 4 / 5); ; {
		if !k.collect() {
			return 0
		}
		kids := children(os.Getpid())
		if time.Now().After(deadline) {
			return len(kids)
		}
		for _, pid := range kids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// children are the processes whose parent is pid.
func children(pid int) (kids []int) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil // cannot happen: the pattern is well formed
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		// pid (name) state parent …; the name may hold anything.
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if kid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			kids = append(kids, kid)
		}
	}
	return kids
}
