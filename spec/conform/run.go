package conform

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say which server is checked, and how. URL and Token are required.
type Options struct {
	// URL is the server's address: http://127.0.0.1:7717, without a path.
	URL string
	// Token grants the scope admin.
	Token string
	// Agent is the test agent: "demo". See the package's doc.
	Agent string
	// Cwd is a directory that exists on the server's machine: the one for
	// temporary files.
	Cwd string
	// Families to check, and Checks by their ids; none means all.
	Families, Checks []string
	// Wait is how long silence is waited out for one message: 10 s. Limit is how long one
	// check may take: a minute.
	Wait, Limit time.Duration
	// Parallel is how many checks run at a time: 8.
	Parallel int
	// Brief leaves out the checks that wait for many seconds.
	Brief bool
	// TLS is used for https; nil is the default.
	TLS *tls.Config
}

// ErrOptions is wrapped by errors that other options mend.
var ErrOptions = errors.New("conform: the options do not do")

func (o Options) withDefaults() (Options, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return o, fmt.Errorf("%w: the URL is %q; want http://HOST:PORT or https://HOST:PORT", ErrOptions, o.URL)
	}
	o.URL = u.Scheme + "://" + u.Host
	if o.Token == "" {
		return o, fmt.Errorf("%w: there is no token; give one of the scope admin", ErrOptions)
	}
	for _, f := range o.Families {
		if !slices.Contains(Families(), f) {
			return o, fmt.Errorf("%w: no family %q; want one of %s", ErrOptions, f, strings.Join(Families(), ", "))
		}
	}
	for _, id := range o.Checks {
		if !slices.ContainsFunc(Checks(o.Families...), func(c Check) bool { return c.ID == id }) {
			return o, fmt.Errorf("%w: no check %q in the families that are chosen; a report names those there are", ErrOptions, id)
		}
	}
	if len(o.chosen()) == 0 {
		return o, fmt.Errorf("%w: nothing is left to check: all that is chosen waits for many seconds, and the run is to be brief", ErrOptions)
	}
	o.Agent, o.Cwd = cmp.Or(o.Agent, "demo"), cmp.Or(o.Cwd, os.TempDir())
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	if o.Limit <= 0 {
		o.Limit = time.Minute
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	return o, nil
}

// chosen are the checks that the options choose.
func (o Options) chosen() []Check {
	return slices.DeleteFunc(Checks(o.Families...), func(c Check) bool {
		return c.slow && o.Brief || len(o.Checks) > 0 && !slices.Contains(o.Checks, c.ID)
	})
}

// runner is one run of the kit.
type runner struct {
	opt    Options
	cwd    string
	doc    obj // the OpenRPC document, nil if the server has none
	janit  *T  // owns the connection that cleans up
	broom  *peer
	brooms sync.Mutex // one cleaning at a time; the connection is its alone

	tokens tokens
}

// Run plays the checks and returns the report. It fails only where nothing could
// be checked: wrong options, or no connection. It blocks until every check has
// ended; when ctx is done, those under way fail and the others are not begun.
func Run(ctx context.Context, opt Options) (*Report, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &runner{opt: opt, cwd: opt.Cwd}
	began := time.Now()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.end()
	rep := &Report{URL: opt.URL}
	for _, c := range opt.chosen() {
		rep.Results = append(rep.Results, Result{Check: c})
	}
	r.play(ctx, rep.Results)
	rep.Took = time.Since(began)
	return rep, nil
}

// begin connects, and reads what checks are made from.
func (r *runner) begin(ctx context.Context) error {
	r.janit = &T{r: r, ctx: context.WithoutCancel(ctx), check: &Check{}}
	res := r.one(ctx, r.janit, func(t *T) {
		r.broom = t.dial()
		if d := r.broom.call("rpc.discover", obj{}); d.err == nil {
			r.doc = d.obj()
		}
	})
	if res.State != Passed {
		r.end()
		return fmt.Errorf("conform: %s: no connection: %s", r.opt.URL, res.Came)
	}
	return nil
}

// end revokes what the run made and hangs up.
func (r *runner) end() {
	r.one(context.Background(), r.janit, func(*T) { r.tokens.revoke(r) })
	for _, p := range r.janit.peers {
		p.close()
	}
}

// play runs the checks: slow ones first, then the others, at last those that run
// alone.
func (r *runner) play(ctx context.Context, results []Result) {
	var slow, most, alone []*Result
	for i := range results {
		switch c := &results[i]; {
		case c.alone:
			alone = append(alone, c)
		case c.slow:
			slow = append(slow, c)
		default:
			most = append(most, c)
		}
	}
	r.side(ctx, append(slow, most...), r.opt.Parallel)
	r.side(ctx, alone, 1)
}

// side runs checks n at a time.
func (r *runner) side(ctx context.Context, results []*Result, n int) {
	work := make(chan *Result)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for res := range work {
				r.run(ctx, res)
			}
		})
	}
	for _, res := range results {
		work <- res
	}
	close(work)
	wg.Wait()
}

// run plays one check.
func (r *runner) run(ctx context.Context, res *Result) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Limit)
	defer cancel()
	t := &T{r: r, check: &res.Check, ctx: ctx}
	began := time.Now()
	out := r.one(ctx, t, res.run)
	t.finish()
	out.Check, out.Took = res.Check, time.Since(began)
	*res = out
}

// one runs f and says how it ended.
func (r *runner) one(ctx context.Context, t *T, f func(*T)) (res Result) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			res = Result{State: Failed, Sent: e.sent, Came: e.came, Want: e.want}
		case skipped:
			res = Result{State: Skipped, Came: e.why}
		default:
			res = Result{State: Failed, Sent: t.sent, Came: fmt.Sprintf("the kit itself failed: %v", e)}
		}
	}()
	if ctx.Err() != nil {
		return Result{State: Failed, Came: "the run was ended before this check"}
	}
	f(t)
	return Result{State: Passed}
}

// sweep deletes sessions with their trees. What cannot be deleted stays.
func (r *runner) sweep(sids []string) {
	for _, sid := range sids {
		r.clean(func() { r.broom.call("session.delete", obj{"sessionId": sid, "tree": true}) })
	}
}

// clean does one thing on the connection that cleans up; its failure is nobody's.
func (r *runner) clean(f func()) {
	r.brooms.Lock()
	defer r.brooms.Unlock()
	r.one(context.Background(), r.janit, func(*T) { f() })
}
