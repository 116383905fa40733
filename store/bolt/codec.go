package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/store"
	"go.etcd.io/bbolt"
)

// A record is one event: u32 length of the body, u32 CRC32C over the session id
// and the body, the body. A body is seq, fence, time, id, type, data.
const recordHeader = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sidSum starts the checksum of a session's records.
func sidSum(sid frames.SessionID) uint32 { return crc32.Checksum([]byte(sid), castagnoli) }

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrCorrupt, fmt.Sprintf(format, args...))
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendRecord appends e's record; e.Seq and e.Fence are set.
func appendRecord(b []byte, sum uint32, e *store.Event) []byte {
	start := len(b)
	b = append(b, make([]byte, recordHeader)...)
	b = binary.AppendUvarint(b, uint64(e.Seq))
	b = binary.AppendUvarint(b, e.Fence)
	b = binary.AppendVarint(b, e.Time.Unix())
	b = binary.AppendUvarint(b, uint64(e.Time.Nanosecond()))
	b = appendString(b, e.ID)
	b = appendString(b, e.Type)
	b = append(b, e.Data...)
	body := b[start+recordHeader:]
	binary.LittleEndian.PutUint32(b[start:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Update(sum, castagnoli, body))
	return b
}

// recordLen returns the length of the record that b starts with, or 0 if b does
// not hold one.
func recordLen(b []byte) int {
	if len(b) < recordHeader {
		return 0
	}
	n := uint64(binary.LittleEndian.Uint32(b)) + recordHeader
	if n > uint64(len(b)) {
		return 0
	}
	return int(n)
}

// recordSeq peeks at the seq of a whole record, unverified.
func recordSeq(rec []byte) frames.Seq {
	seq, _ := binary.Uvarint(rec[recordHeader:])
	return frames.Seq(seq)
}

// recordData peeks at the size of a whole record's data, unverified.
func recordData(rec []byte) int {
	d := decoder{b: rec[recordHeader:]}
	d.uvarint()
	d.uvarint()
	d.varint()
	d.uvarint()
	d.bytes(d.uvarint())
	d.bytes(d.uvarint())
	return len(d.b)
}

// decodeRecord verifies and decodes one whole record. Everything it returns is
// a copy.
func decodeRecord(rec []byte, sum uint32) (store.Event, error) {
	if len(rec) < recordHeader || recordLen(rec) != len(rec) {
		return store.Event{}, corrupt("a record is cut short")
	}
	body := rec[recordHeader:]
	if crc32.Update(sum, castagnoli, body) != binary.LittleEndian.Uint32(rec[4:]) {
		return store.Event{}, corrupt("a record's checksum does not match")
	}
	d := decoder{b: body}
	e := store.Event{Seq: frames.Seq(d.uvarint()), Fence: d.uvarint()}
	sec := d.varint()
	e.Time = time.Unix(sec, int64(d.uvarint())).UTC()
	e.ID, e.Type = d.string(), d.string()
	e.Data = append([]byte{}, d.b...)
	if d.bad {
		return store.Event{}, corrupt("a record does not parse")
	}
	return e, nil
}

// decoder takes values off b; bad says that one was missing.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) string() string { return string(d.bytes(d.uvarint())) }

// seal puts a CRC32C over name and value before the value. Rows, heads and whole
// commits are stored so.
func seal(name string, value []byte) []byte {
	b := make([]byte, 4, 4+len(value))
	binary.LittleEndian.PutUint32(b, crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, value))
	return append(b, value...)
}

// unseal verifies b and returns the value within it, not a copy.
func unseal(name string, b []byte) ([]byte, error) {
	if len(b) < 4 || crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, b[4:]) != binary.LittleEndian.Uint32(b) {
		return nil, corrupt("the checksum of %q does not match", name)
	}
	return b[4:], nil
}

// encodeHead encodes what is known of a log without its tail: its head as of
// the last folded event.
func encodeHead(sid frames.SessionID, h store.Head, folded frames.Seq, lastID string) []byte {
	var b []byte
	deleted := byte(0)
	if h.Deleted {
		deleted = 1
	}
	b = append(b, deleted)
	b = binary.AppendUvarint(b, uint64(h.First))
	b = binary.AppendUvarint(b, uint64(folded))
	b = binary.AppendUvarint(b, h.Fence)
	b = appendString(b, string(h.Epoch))
	b = appendString(b, lastID)
	return seal("head/"+string(sid), b)
}

// decodeHead is the inverse; Seq and LastID are those of the last folded event.
func decodeHead(sid frames.SessionID, b []byte) (store.Head, error) {
	b, err := unseal("head/"+string(sid), b)
	if err != nil {
		return store.Head{}, err
	}
	d := decoder{b: b}
	var h store.Head
	if flag := d.bytes(1); !d.bad {
		h.Deleted = flag[0] == 1
	}
	h.First, h.Seq, h.Fence = frames.Seq(d.uvarint()), frames.Seq(d.uvarint()), d.uvarint()
	h.Epoch, h.LastID = frames.Epoch(d.string()), d.string()
	h.Rev = uint64(h.Seq)
	if d.bad {
		return store.Head{}, corrupt("the head of %q does not parse", sid)
	}
	return h, nil
}

// chunkKey is sid, NUL, first seq.
func chunkKey(sid frames.SessionID, first frames.Seq) []byte {
	b := append(make([]byte, 0, len(sid)+9), sid...)
	return binary.BigEndian.AppendUint64(append(b, 0), uint64(first))
}

// commitKey is the commit's number.
func commitKey(no uint64) []byte { return binary.BigEndian.AppendUint64(nil, no) }

// bigCommit is the size from which a commit gets a page of its own, as the only
// value of a bucket within the bucket of commits. bbolt keeps at least two values
// on a page and rewrites all of a page's, so that beside its neighbours a large
// one would be written four times.
const bigCommit = 1 << 10

var bigKey = []byte("v")

// putCommit stores a commit's value.
func putCommit(b *bbolt.Bucket, no uint64, value []byte) error {
	if len(value) < bigCommit {
		return b.Put(commitKey(no), value)
	}
	own, err := b.CreateBucket(commitKey(no))
	if err != nil {
		return err
	}
	return own.Put(bigKey, value)
}

// getCommit returns a commit's value, nil if it is gone.
func getCommit(b *bbolt.Bucket, no uint64) []byte {
	key := commitKey(no)
	if v := b.Get(key); v != nil {
		return v
	}
	if own := b.Bucket(key); own != nil {
		return own.Get(bigKey)
	}
	return nil
}

// deleteCommit removes a commit's value.
func deleteCommit(b *bbolt.Bucket, no uint64) error {
	key := commitKey(no)
	if b.Get(key) != nil {
		return b.Delete(key)
	}
	return b.DeleteBucket(key)
}

// A commit value is a sealed list of groups: session id, number of records,
// their length in bytes, the records.
type group struct {
	sid  frames.SessionID
	n    int
	off  int // of the records, within the stored value
	recs []byte
}

func appendGroup(b []byte, sid frames.SessionID, n int, recs []byte) []byte {
	b = appendString(b, string(sid))
	b = binary.AppendUvarint(b, uint64(n))
	b = binary.AppendUvarint(b, uint64(len(recs)))
	return append(b, recs...)
}

// groups returns the groups of a whole commit value without copying.
func groups(no uint64, value []byte, verify bool) ([]group, error) {
	if verify {
		if _, err := unseal(commitName(no), value); err != nil {
			return nil, err
		}
	}
	var out []group
	d := decoder{b: value[min(4, len(value)):]}
	for len(d.b) > 0 {
		sid := frames.SessionID(d.string())
		n := d.uvarint()
		size := d.uvarint()
		off := len(value) - len(d.b)
		recs := d.bytes(size)
		if d.bad {
			return nil, corrupt("commit %d does not parse", no)
		}
		out = append(out, group{sid: sid, n: int(n), off: off, recs: recs})
	}
	return out, nil
}

func commitName(no uint64) string { return fmt.Sprintf("commit/%d", no) }
