package mux

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// nibbler reads a few bytes at a time, like a peer behind a small window.
type nibbler struct {
	net.Conn
	r *rand.Rand
}

func (n nibbler) Read(p []byte) (int, error) { return n.Conn.Read(p[:min(len(p), 1+n.r.IntN(7))]) }

// readFrame reads one unmasked frame; n frames of payload are the byte n.
func readFrame(t *testing.T, r *bufio.Reader) (first byte, payload []byte, err error) {
	if first, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	size, err := r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	n := uint64(size)
	var b [8]byte
	switch size {
	case 126:
		_, err = io.ReadFull(r, b[6:])
		n = binary.BigEndian.Uint64(b[:])
	case 127:
		_, err = io.ReadFull(r, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	if err != nil || n > 1<<20 {
		t.Fatalf("frame %x of %d bytes: %v", first, n, err)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return first, payload, err
}

// Frames of the writer and control frames written beside it arrive whole,
// whatever their sizes and however slowly the peer reads.
func TestFramesAreNeverSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		g := newGate(server, time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			o := outbox{gate: g, arm: func() {}, max: 512}
			for i := range 300 {
				msg := bytes.Repeat([]byte{byte(i)}, r.IntN(1200))
				if err := errors.Join(o.message(msg), o.done()); err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			}
		})
		wg.Go(func() {
			for range 300 {
				if _, err := g.Write([]byte{finPong, 4, 9, 9, 9, 9}); err != nil {
					t.Errorf("pong: %v", err)
				}
			}
		})
		wg.Go(func() {
			in := bufio.NewReaderSize(nibbler{client, rand.New(rand.NewPCG(3, 4))}, 16)
			for texts, pongs := 0, 0; texts+pongs < 600; {
				first, p, err := readFrame(t, in)
				if err != nil {
					t.Errorf("after %d texts and %d pongs: %v", texts, pongs, err)
					return
				}
				want := byte(9)
				if first == finText {
					want = byte(texts)
					texts++
				} else {
					pongs++
				}
				if len(bytes.Trim(p, string([]byte{want}))) > 0 && !bytes.Equal(p, bytes.Repeat([]byte{want}, len(p))) {
					t.Errorf("frame %x has foreign bytes", first)
				}
			}
		})
		wg.Wait()
	})
}

// A write cut by a deadline in the middle of a frame is finished before the
// close frame, so that the peer can read the code.
func TestACutFrameIsFinishedBeforeTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		g := newGate(server, time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			arm := func() { _ = g.SetWriteDeadline(time.Now().Add(time.Second)) }
			msg := bytes.Repeat([]byte{7}, 1000)
			o := outbox{gate: g, arm: arm, max: 100}
			if err := o.message(msg); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("message: %v, want a deadline", err)
			}
			if n, err := g.Write([]byte{finPong, 0}); n != 2 || err != nil {
				t.Errorf("a pong behind a cut frame: %d, %v; want it swallowed", n, err)
			}
			g.close(codeSlow, "slow", time.Second)
			_ = server.Close()
		})
		head := make([]byte, 500)
		if _, err := io.ReadFull(client, head); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		in := bufio.NewReader(io.MultiReader(bytes.NewReader(head), client))
		first, p, err := readFrame(t, in)
		if first != finText || len(p) != 1000 || err != nil {
			t.Errorf("first frame %x of %d bytes, %v", first, len(p), err)
		}
		first, p, err = readFrame(t, in)
		if first != finClose || err != nil || binary.BigEndian.Uint16(p) != codeSlow {
			t.Errorf("then frame %x %q, %v; want close 4008", first, p, err)
		}
		wg.Wait()
	})
}
