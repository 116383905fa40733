package rpc_test

import (
	"testing"

	"github.com/muxhost/muxhost/rpc"
)

// Every method of the table answers a proper call with a result under its id.
func TestEveryMethodAnswers(t *testing.T) {
	api := &placingAPI{}
	p, _ := serve(t, api, rpc.Options{})
	api.stream = p
	for i, m := range rpc.Methods() {
		params, ok := goodParams[m.Name]
		if !ok {
			t.Fatalf("%s has no params in goodParams", m.Name)
		}
		a := p.ask(t, call(i, m.Name, params))
		if a.Error != nil || string(a.ID) != string(mustJSON(t, i)) {
			t.Errorf("%s: id %s error %+v, want a result for id %d", m.Name, a.ID, a.Error, i)
		}
	}
}
