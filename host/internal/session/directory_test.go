package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
	"github.com/muxhost/muxhost/host/internal/session"
)

// Pages hold every session once, newest first, also where sessions are made and
// deleted between them.
func TestListPagesNewestFirst(t *testing.T) {
	bubble(t, func(r *rig) {
		var want []frames.SessionID
		for range 25 {
			want = append(want, r.create(session.CreateArgs{}))
			time.Sleep(time.Millisecond)
		}
		slices.Reverse(want)
		var got []frames.SessionID
		f := session.Filter{Limit: 10}
		for {
			ss, next, err := r.m.List(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range ss {
				got = append(got, s.SessionID)
			}
			if next == "" {
				break
			}
			f.Cursor = next
			r.create(session.CreateArgs{})
			if err := r.m.Delete(r.t.Context(), nil, got[len(got)-1], false, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages hold %v, want %v", got, want)
		}
		if _, _, err := r.m.List(session.Filter{Cursor: "nonsense"}); err == nil {
			t.Error("a cursor that is none was taken")
		}
	})
}

// Filters select by lineage, state, text, directory and what a client may see.
func TestListFilters(t *testing.T) {
	bubble(t, func(r *rig) {
		r.agent.on("go", hang)
		a := r.create(session.CreateArgs{Title: "Alpha", Labels: map[string]string{"team": "Blue"}})
		b := r.create(session.CreateArgs{Parent: a})
		c := r.create(session.CreateArgs{Parent: b})
		d := r.create(session.CreateArgs{Title: "delta"})
		r.prompt(c, "go")
		r.wait()
		for _, tt := range []struct {
			name string
			f    session.Filter
			want []frames.SessionID
		}{
			{"roots", session.Filter{Roots: true}, []frames.SessionID{d, a}},
			{"parent", session.Filter{Parent: a}, []frames.SessionID{b}},
			{"tree", session.Filter{Tree: a}, []frames.SessionID{c, b, a}},
			{"state", session.Filter{State: frames.StateRunning}, []frames.SessionID{c}},
			{"title", session.Filter{Text: "ALPHA"}, []frames.SessionID{a}},
			{"label", session.Filter{Text: "team=blue"}, []frames.SessionID{a}},
			{"cwd", session.Filter{Cwd: "/nowhere"}, nil},
			{"within", session.Filter{Within: []frames.SessionID{b, d}}, []frames.SessionID{d, c, b}},
			{"within nothing", session.Filter{Within: []frames.SessionID{}}, nil},
		} {
			ss, _, err := r.m.List(tt.f)
			var got []frames.SessionID
			for _, s := range ss {
				got = append(got, s.SessionID)
			}
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
			}
		}
		if got := r.m.Ancestors(c); !slices.Equal(got, []frames.SessionID{b, a}) {
			t.Errorf("ancestors %v", got)
		}
	})
}

// History pages through a long log in both directions, without gaps, within its
// limits.
func TestHistoryPages(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			for i := range 500 {
				if err := t.Emit(ctx, frames.TodoWrite{Todos: []frames.Todo{{Content: fmt.Sprint(i)}}}); err != nil {
					return agent.Result{}, err
				}
			}
			return agent.Result{}, nil
		})
		head := frames.Seq(len(r.log(sid)))
		at := frames.Seq(0)
		for more := true; more; {
			p, err := r.m.History(r.t.Context(), sid, &at, nil, 64, 0)
			if err != nil || p.Head != head || p.First != 1 || len(p.Events) > 64 {
				t.Fatalf("page after %d: %d events, %+v, %v", at, len(p.Events), p.Head, err)
			}
			for _, e := range p.Events {
				if at++; e.Seq != at {
					t.Fatalf("seq %d, want %d", e.Seq, at)
				}
			}
			more = p.More
		}
		if at != head {
			t.Errorf("pages end at %d, want %d", at, head)
		}
		end := head + 1
		for more := true; more; {
			p, err := r.m.History(r.t.Context(), sid, nil, &end, 64, 2000)
			if err != nil || len(p.Events) == 0 {
				t.Fatalf("page before %d: %v", end, err)
			}
			size := 0
			for _, e := range slices.Backward(p.Events) {
				if end--; e.Seq != end {
					t.Fatalf("seq %d, want %d", e.Seq, end)
				}
				size += len(e.Data)
			}
			if size > 2000 {
				t.Errorf("a page of %d bytes, want at most 2000", size)
			}
			more = p.More
		}
		if end != 1 {
			t.Errorf("pages end at %d, want 1", end)
		}
	})
}

// The fold of the log is what a client has that was there from the start.
func TestViewIsTheFoldOfTheLog(t *testing.T) {
	bubble(t, func(r *rig) {
		sid := r.play(func(ctx context.Context, t agent.Turn, _ agent.Prompt) (agent.Result, error) {
			b := t.NewBlock()
			_ = t.Text(ctx, b, "hel")
			_ = t.Emit(ctx, frames.ToolCall{CallID: "c1", Name: "sh"})
			_ = t.Progress(ctx, "c1", "working")
			_ = t.Text(ctx, b, "lo")
			return agent.Result{}, t.Emit(ctx, frames.ToolResult{CallID: "c1"})
		})
		view, seq, err := r.m.View(r.t.Context(), sid)
		if err != nil || seq != frames.Seq(len(r.log(sid))) {
			t.Fatalf("view at %d: %v", seq, err)
		}
		want, err := marshal(r.fold(sid).Durable())
		if err != nil || string(view) != want {
			t.Errorf("view:\n got %s\nwant %s", view, want)
		}
	})
}

// A session is listed under every name of its directory that it can be created
// with; one that is gone is still found under its own.
func TestListFindsADirectoryByAnyOfItsNames(t *testing.T) {
	bubble(t, func(r *rig) {
		real := filepath.Join(r.dir, "real")
		link := filepath.Join(r.dir, "link")
		if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, link)); err != nil {
			t.Fatal(err)
		}
		sid := r.create(session.CreateArgs{Cwd: link})
		finds := func(cwd string) {
			t.Helper()
			ss, _, err := r.m.List(session.Filter{Cwd: cwd})
			if err != nil || len(ss) != 1 || ss[0].SessionID != sid {
				t.Errorf("cwd %s: %v, %v; want %s", cwd, ss, err, sid)
			}
		}
		for _, cwd := range []string{real, link, real + "/", r.dir + "/./link/."} {
			finds(cwd)
		}
		if err := os.Remove(real); err != nil {
			t.Fatal(err)
		}
		finds(real + "/")
		var bad *session.ParamError
		if _, _, err := r.m.List(session.Filter{Cwd: "real"}); !errors.As(err, &bad) {
			t.Errorf("a relative path: %v, want a ParamError", err)
		}
	})
}

// A start with thousands of sessions, and a list of them, read no log.
func TestListReadsNoLog(t *testing.T) {
	bubble(t, func(r *rig) {
		const n = 3_000
		for range n {
			r.create(session.CreateArgs{})
		}
		r.restart()
		ss, next, err := r.m.List(session.Filter{Text: "scripted"})
		if err != nil || len(ss) != session.DefaultList || next == "" {
			t.Errorf("%d sessions, next %q, %v", len(ss), next, err)
		}
		r.disk.set(func(d *disk) {
			if d.reads != 0 {
				t.Errorf("logs were read %d times", d.reads)
			}
		})
	})
}
