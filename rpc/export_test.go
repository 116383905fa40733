package rpc

import (
	"encoding/json"
	"reflect"
)

// DecodeParams decodes raw as a call would, into a value of type P.
func DecodeParams[P any](raw []byte) (P, error) {
	var p P
	return p, decodeInto(raw, &p, planOf(reflect.TypeFor[P]()))
}

// DecodeFields is DecodeParams without the rules beyond those of the fields.
func DecodeFields[P any](raw []byte) (P, error) {
	v, err := DecodeParams[struct {
		P P `json:"p,omitempty"`
	}](append(append([]byte(`{"p":`), raw...), '}'))
	return v.P, err
}

// Decodable reports whether raw gets as far as the decoder of params.
func Decodable(raw []byte) bool {
	msg := append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":`), raw...), '}')
	_, f := parseRequest(msg)
	return f == nil && json.Valid(raw)
}
