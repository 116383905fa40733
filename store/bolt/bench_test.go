package bolt

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
)

// fileGroup is the physical bound: one file, group commit, one sync per group.
type fileGroup struct {
	f     *os.File
	queue chan fileWrite
	wg    sync.WaitGroup
}

type fileWrite struct {
	data []byte
	done chan error
}

func newFileGroup(b *testing.B) *fileGroup {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	g := &fileGroup{f: f, queue: make(chan fileWrite, queueLen)}
	g.wg.Go(g.run)
	return g
}

func (g *fileGroup) run() {
	for w := range g.queue {
		group, buf := []fileWrite{w}, append([]byte{}, w.data...)
	fill:
		for {
			select {
			case w, ok := <-g.queue:
				if !ok {
					break fill
				}
				group, buf = append(group, w), append(buf, w.data...)
			default:
				break fill
			}
		}
		_, err := g.f.Write(buf)
		if err == nil {
			err = g.f.Sync()
		}
		for _, w := range group {
			w.done <- err
		}
	}
}

func (g *fileGroup) close() { close(g.queue); g.wg.Wait(); _ = g.f.Close() }

// each runs n appends spread over the sessions, each of which waits for its own.
func each(b *testing.B, sessions int, fn func(session int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range sessions {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := fn(w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkAppend appends 300-byte events, each waited for, in so many sessions
// at once; engine=file is what the disk allows.
func BenchmarkAppend(b *testing.B) {
	for _, sessions := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("sessions=%d/engine=file", sessions), func(b *testing.B) {
			g := newFileGroup(b)
			defer g.close()
			data := make([]byte, 340)
			each(b, sessions, func(int) error {
				w := fileWrite{data, make(chan error, 1)}
				g.queue <- w
				return <-w.done
			})
		})
		b.Run(fmt.Sprintf("sessions=%d/engine=bolt", sessions), func(b *testing.B) {
			s := benchStore(b)
			heads := make([]store.Head, sessions)
			data := make([]byte, 300)
			each(b, sessions, func(w int) (err error) {
				ev := store.Event{ID: fmt.Sprint(heads[w].Seq), Type: "assistant/message", Data: data}
				heads[w], err = s.Append(b.Context(), frames.SessionID(fmt.Sprintf("session-%04d", w)), heads[w], []store.Event{ev})
				return err
			})
		})
	}
}

func benchStore(b *testing.B) *Store {
	s, err := Open(filepath.Join(b.TempDir(), "db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkReplay reads one log of 10,000 events of 300 bytes from its start, from
// the tail and from chunks.
func BenchmarkReplay(b *testing.B) {
	const events = 10_000
	for name, bd := range map[string]bounds{"tail": {}, "chunks": {events: 1, bytes: 1, commits: 1}} {
		b.Run("from="+name, func(b *testing.B) {
			s, err := Open(filepath.Join(b.TempDir(), "db"), Options{bounds: bd})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var head store.Head
			for head.Seq < events {
				evs := make([]store.Event, 100)
				for i := range evs {
					evs[i] = store.Event{ID: "x", Type: "assistant/message", Data: make([]byte, 300)}
				}
				if head, err = s.Append(b.Context(), "replay", head, evs); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				n := 0
				for after := frames.Seq(0); after < events; {
					page, err := s.Read(b.Context(), "replay", after, 256, 256<<10)
					if err != nil {
						b.Fatal(err)
					}
					n += len(page)
					after = page[len(page)-1].Seq
				}
				if n != events {
					b.Fatalf("read %d events, want %d", n, events)
				}
			}
			b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
