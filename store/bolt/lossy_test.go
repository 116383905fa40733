package bolt

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"unsafe"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// disk simulates what a loss of power leaves of a database file: what was
// synced, and of everything written since, any 512-byte sector or not.
//
// It sees every write of bbolt. It does not see the system call fdatasync: it
// takes it that bbolt syncs where its source says so (before and after the meta
// page, and when the file grows), if it is told to sync. So it tests that this
// package lets bbolt sync and acknowledges nothing earlier; that the call is
// really made, TestAcknowledgedIsClean sees from the kernel.
type disk struct {
	db    *bbolt.DB
	write func([]byte, int64) (int, error)
	rnd   *rand.Rand
	path  string

	mu     sync.Mutex // guards below
	synced []byte
	since  []sector
	writes int
	acked  map[frames.SessionID]int
	shots  []shot
}

type sector struct {
	off  int64
	data []byte
}

// shot is a moment at which the power could have gone.
type shot struct {
	image []byte
	acked map[frames.SessionID]int
}

// attach puts the disk under an open database.
func (d *disk) attach(db *bbolt.DB) {
	db.AllocSize = 64 << 10
	d.db, d.path = db, db.Path()
	image, err := os.ReadFile(d.path)
	if err != nil {
		panic(err)
	}
	d.synced = image
	field := reflect.ValueOf(db).Elem().FieldByName("ops").FieldByName("writeAt")
	hook := (*func([]byte, int64) (int, error))(unsafe.Pointer(field.UnsafeAddr()))
	d.write = *hook
	*hook = d.writeAt
}

func (d *disk) writeAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	d.grown()
	if off < 2*4096 && !d.db.NoSync {
		d.sync() // bbolt syncs the data before it writes a meta page
	}
	for at := 0; at < len(b); at += 512 {
		d.since = append(d.since, sector{off + int64(at), append([]byte{}, b[at:min(at+512, len(b))]...)})
	}
	if d.writes++; d.rnd.IntN(12) == 0 {
		d.shoot()
	}
	d.mu.Unlock()
	return d.write(b, off)
}

// grown notices that the file was enlarged, which bbolt always syncs.
func (d *disk) grown() {
	info, err := os.Stat(d.path)
	if err != nil {
		panic(err)
	}
	if n := int(info.Size()) - len(d.synced); n > 0 {
		d.sync()
		d.synced = append(d.synced, make([]byte, n)...)
	}
}

// sync makes what was written durable.
func (d *disk) sync() {
	for _, s := range d.since {
		copy(d.synced[s.off:], s.data)
	}
	d.since = nil
}

// shoot keeps an image of what the disk would hold without power from now on.
func (d *disk) shoot() {
	image := append([]byte{}, d.synced...)
	keep := d.rnd.IntN(5) // of four sectors
	if d.db.NoSync {
		keep = 0 // a torn page graph can send bbolt round in circles
	}
	for _, s := range d.since {
		if d.rnd.IntN(4) < keep {
			copy(image[s.off:], s.data)
		}
	}
	acked := map[frames.SessionID]int{}
	maps.Copy(acked, d.acked)
	d.shots = append(d.shots, shot{image, acked})
}

func (d *disk) ack(sid frames.SessionID, seq frames.Seq) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acked[sid] = int(seq)
}

// commit commits and, if bbolt was told to sync, takes the meta page as synced.
func (d *disk) commit(tx *bbolt.Tx) error {
	err := tx.Commit()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && !d.db.NoSync {
		d.sync()
	}
	return err
}

// load appends to a few sessions at once and returns the moments shot.
func (d *disk) load(t *testing.T, dir string, noSync bool) []shot {
	t.Helper()
	s, err := Open(filepath.Join(dir, "db"), Options{bounds: small, hooks: hooks{commit: d.commit, opened: func(db *bbolt.DB) {
		d.attach(db)
		db.NoSync = noSync
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			sid := frames.SessionID(fmt.Sprint("lossy-", w))
			var head store.Head
			for range 40 {
				var err error
				if head, err = appendOne(t, s, sid, head); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				d.ack(sid, head.Seq)
			}
		})
	}
	wg.Wait()
	d.mu.Lock()
	d.shoot()
	d.mu.Unlock()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return d.shots
}

// appendOne appends one event whose content follows from its place.
func appendOne(t *testing.T, s *Store, sid frames.SessionID, at store.Head) (store.Head, error) {
	return s.Append(t.Context(), sid, at, []store.Event{placed(sid, at.Seq+1)})
}

func placed(sid frames.SessionID, seq frames.Seq) store.Event {
	id := fmt.Sprintf("%s#%d", sid, seq)
	return store.Event{ID: id, Type: "t", Data: fmt.Appendf(nil, "%s%0*d", id, int(seq)%700, 7)}
}

// verify opens an image and returns what of the acknowledged is wrong with it.
func (sh shot) verify(t *testing.T, id []byte) error {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	for name, data := range map[string][]byte{path: sh.image, path + ".id": id} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Check(path); err != nil {
		return err
	}
	s, err := Open(path, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	return verifyAcked(t, s, sh.acked)
}

// verifyAcked checks that every acknowledged event is there, and right.
func verifyAcked(t *testing.T, s *Store, acked map[frames.SessionID]int) error {
	t.Helper()
	for sid, n := range acked {
		h, err := s.Head(t.Context(), sid)
		if err != nil {
			return err
		}
		if int(h.Seq) < n {
			return fmt.Errorf("session %s: head %d, but %d was acknowledged", sid, h.Seq, n)
		}
		evs, err := s.Read(t.Context(), sid, 0, int(h.Seq)+1, 1<<30)
		if err != nil || len(evs) != int(h.Seq) {
			return fmt.Errorf("session %s: %d events of %d: %w", sid, len(evs), h.Seq, err)
		}
		for i, e := range evs {
			if want := placed(sid, frames.Seq(i+1)); e.ID != want.ID || string(e.Data) != string(want.Data) {
				return fmt.Errorf("session %s seq %d: got %q, want %q", sid, i+1, e.ID, want.ID)
			}
		}
	}
	return nil
}

// powerLoss runs one load and counts the moments at which something would have
// been lost.
func powerLoss(t *testing.T, seed uint64, noSync bool) (lost, shots int, first error) {
	t.Helper()
	dir := t.TempDir()
	d := &disk{rnd: rand.New(rand.NewPCG(seed, 7)), acked: map[frames.SessionID]int{}}
	all := d.load(t, dir, noSync)
	id, err := os.ReadFile(filepath.Join(dir, "db.id"))
	if err != nil {
		t.Fatal(err)
	}
	for _, sh := range all {
		if err := sh.verify(t, id); err != nil {
			lost++
			first = err
		}
	}
	return lost, len(all), first
}

// Whenever the power goes, every acknowledged event is there afterwards.
func TestPowerLossLosesNothingAcknowledged(t *testing.T) {
	total := 0
	for seed := range uint64(4) {
		lost, shots, err := powerLoss(t, seed, false)
		if lost > 0 {
			t.Errorf("seed %d: %d of %d moments lost something, such as: %v", seed, lost, shots, err)
		}
		total += shots
	}
	if total < 40 {
		t.Errorf("only %d moments were tried", total)
	}
}

// The test above has teeth: without the syncs it finds losses.
func TestPowerLossWithoutSyncIsNoticed(t *testing.T) {
	lost, shots, _ := powerLoss(t, 1, true)
	if lost*2 < shots {
		t.Errorf("without syncs only %d of %d moments lost something; the simulation has no teeth", lost, shots)
	}
}
