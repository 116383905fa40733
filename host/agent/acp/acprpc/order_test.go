package acprpc_test

import (
	"bufio"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
)

// slow is a result that takes its time to be written down.
type slow struct{ begun, release chan struct{} }

func (s slow) MarshalJSON() ([]byte, error) {
	close(s.begun)
	<-s.release
	return []byte(`{"slow":true}`), nil
}

// What is said once all requests are settled comes after every answer, also one that is
// just being given.
func TestAnswersComeBeforeWhatFollowsThem(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := acprpc.New(inR, outW, acprpc.Options{})
	got := make(chan acprpc.Inbound, 1)
	c.Run(func(in acprpc.Inbound) { got <- in })
	if _, err := io.WriteString(inW, `{"jsonrpc":"2.0","id":0,"method":"ask"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	in, result := <-got, slow{make(chan struct{}), make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { c.Reply(in.ID, result) })
	<-result.begun
	wg.Go(func() {
		c.GiveUpAll(func(acprpc.Inbound) bool { return true })
		c.Notify("over", nil)
	})
	for range 100 {
		runtime.Gosched() // whoever does not wait goes ahead
	}
	close(result.release)
	lines := bufio.NewReader(outR)
	first, err := lines.ReadString('\n')
	if err != nil || !strings.Contains(first, `"slow"`) {
		t.Errorf("first came %q, %v; want the answer", first, err)
	}
	if second, err := lines.ReadString('\n'); err != nil || !strings.Contains(second, `"over"`) {
		t.Errorf("then came %q, %v; want what follows", second, err)
	}
	wg.Wait()
	c.End(nil)
	inW.Close()
	outR.Close()
	c.Wait()
}
