package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host"
	"github.com/muxhost/muxhost/store"
	"github.com/muxhost/muxhost/store/bolt"
)

// inspection looks at a database and the blobs beside it. It remembers a few words
// for each session and each blob that one names.
type inspection struct {
	tell     func(finding)
	sums     checkSums
	damage   *finding                           // the first that the store itself found
	sessions map[frames.SessionID]bool          // logs; true once a summary was seen
	needed   map[frames.BlobID]frames.SessionID // named as a blob, and not seen yet
	stray    []finding                          // rows of sessions without a log
	halves   map[frames.SessionID]bool          // what host.Unfinished is true of
}

// checkSums is what --json prints last.
type checkSums struct {
	Findings int `json:"findings"`
	Sessions int `json:"sessions"`
	Events   int `json:"events"`
	Rows     int `json:"rows"`
	Blobs    int `json:"blobs"`
}

func newInspection(tell func(finding)) *inspection {
	return &inspection{
		tell: tell, sessions: map[frames.SessionID]bool{}, needed: map[frames.BlobID]frames.SessionID{},
		halves: map[frames.SessionID]bool{},
	}
}

func (in *inspection) found(f finding) {
	in.sums.Findings++
	in.tell(f)
}

func (in *inspection) foundf(sid frames.SessionID, format string, args ...any) {
	in.found(finding{sid, fmt.Sprintf(format, args...)})
}

// database examines the file of a database.
func (in *inspection) database(ctx context.Context, path string) error {
	err := bolt.Examine(ctx, path, bolt.Visit{
		Finding: func(f bolt.Finding) {
			told := finding{f.Session, f.What}
			if in.damage == nil {
				in.damage = &told
			}
			in.found(told)
		},
		Log: func(sid frames.SessionID, _ store.Head) {
			in.sums.Sessions++
			in.sessions[sid] = false
		},
		Event: in.event,
		Row:   in.row,
	})
	in.match(err == nil && in.damage == nil)
	return err
}

// match compares the rows of sessions with the logs, but for logs that are being
// copied. Only of a database that was seen whole it tells which summaries are missing.
func (in *inspection) match(whole bool) {
	for _, f := range in.stray {
		if !in.halves[f.SessionID] {
			in.found(f)
		}
	}
	for sid, summary := range in.sessions {
		switch {
		case in.halves[sid]:
			in.sums.Sessions--
		case whole && !summary:
			in.foundf(sid, "its log has no summary in the table %q", store.TableSession)
		}
	}
}

// event checks that a stored event is one, and notes the blobs that it names.
func (in *inspection) event(sid frames.SessionID, e store.Event) {
	in.sums.Events++
	got, err := frames.DecodeEvent(e.Data)
	switch {
	case err != nil:
		in.foundf(sid, "event %d: %v", e.Seq, err)
	case got.Seq != e.Seq:
		in.foundf(sid, "event %d says that it is event %d", e.Seq, got.Seq)
	case string(got.Type) != e.Type:
		in.foundf(sid, "event %d is stored as %q and says that it is %q", e.Seq, e.Type, got.Type)
	}
	in.names(sid, e.Data)
}

// row checks that a row of a session belongs to one.
func (in *inspection) row(r store.Row) {
	in.sums.Rows++
	switch r.Table {
	case store.TableSession, store.TablePrompt, store.TableDirty, store.TableBase:
	default:
		return
	}
	owner, _, _ := strings.Cut(r.Key, "/")
	sid := frames.SessionID(owner)
	if host.Unfinished(r) {
		in.halves[sid] = true
	}
	if _, known := in.sessions[sid]; !known {
		in.stray = append(in.stray, finding{sid, fmt.Sprintf("it has a row in the table %q, but no log", r.Table)})
		return
	}
	if r.Table == store.TableSession {
		in.sessions[sid] = true
	}
	in.names(sid, r.Value)
}

// names notes the blobs that a JSON text names in a field "blob".
func (in *inspection) names(sid frames.SessionID, text []byte) {
	for _, id := range host.BlobIDs(nil, text) {
		for rest := text; ; {
			i := bytes.Index(rest, []byte(id))
			if i < 0 {
				break
			}
			if before, ok := bytes.CutSuffix(rest[:i], []byte(`"`)); ok {
				before, ok = bytes.CutSuffix(bytes.TrimRight(before, " \n\r\t"), []byte(":"))
				if ok && bytes.HasSuffix(bytes.TrimRight(before, " \n\r\t"), []byte(`"blob"`)) {
					in.needed[id] = sid
					break
				}
			}
			rest = rest[i+len(id):]
		}
	}
}

// blob takes note of a blob that is there, and of what is wrong with it.
func (in *inspection) blob(id frames.BlobID, err error) {
	in.sums.Blobs++
	sid := in.needed[id]
	delete(in.needed, id)
	if err != nil {
		in.foundf(sid, "%v", err)
	}
}

// end tells which blobs are named and are not there.
func (in *inspection) end() {
	for id, sid := range in.needed {
		in.foundf(sid, "it names blob %s, which is missing", id)
	}
}
