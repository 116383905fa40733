package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// official compiles an official schema; with others, what it refers to, by
// address.
func official(t *testing.T, name, address string, others map[string]string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	add := func(address, name string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		doc := parsed(t, b).(map[string]any)
		if !strings.Contains(doc["$schema"].(string), "json-schema.org") {
			delete(doc, "$schema") // of itself, which is draft 7
		}
		if err := c.AddResource(address, doc); err != nil {
			t.Fatal(err)
		}
	}
	add(address, name)
	for address, name := range others {
		add(address, name)
	}
	s, err := c.Compile(address)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parsed(t *testing.T, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func openRPCSchema(t *testing.T) *jsonschema.Schema {
	return official(t, "openrpc-1.14.9.json", "https://meta.open-rpc.org/",
		map[string]string{"https://meta.json-schema.tools/": "json-schema-tools-1.8.0.json", "https://meta.json-schema.tools": "json-schema-tools-1.8.0.json"})
}

func asyncAPISchema(t *testing.T) *jsonschema.Schema {
	return official(t, "asyncapi-3.0.0.json", "http://asyncapi.com/definitions/3.0.0/asyncapi.json", nil)
}

// The OpenRPC document is one by the official schema.
func TestOpenRPCIsValid(t *testing.T) {
	if err := openRPCSchema(t).Validate(parsed(t, contract(t)["openrpc.json"])); err != nil {
		t.Errorf("%#v", err)
	}
}

// The AsyncAPI document is one by the official schema.
func TestAsyncAPIIsValid(t *testing.T) {
	if err := asyncAPISchema(t).Validate(parsed(t, contract(t)["asyncapi.json"])); err != nil {
		t.Errorf("%#v", err)
	}
}

// The official schemas refuse documents that are not quite right.
func TestOfficialSchemasRefuse(t *testing.T) {
	files := contract(t)
	for _, row := range []struct {
		schema      *jsonschema.Schema
		file        string
		old, broken string
	}{
		{openRPCSchema(t), "openrpc.json", `"paramStructure": "by-name"`, `"paramStructure": "by-luck"`},
		{openRPCSchema(t), "openrpc.json", `"required": true`, `"required": "yes"`},
		{openRPCSchema(t), "openrpc.json", `"info": {`, `"infos": {`},
		{asyncAPISchema(t), "asyncapi.json", `"action": "send"`, `"action": "push"`},
		{asyncAPISchema(t), "asyncapi.json", `"address": "/v1/ws"`, `"address": 7`},
		{asyncAPISchema(t), "asyncapi.json", `"asyncapi": "3.0.0"`, `"asyncapi": "2.0.0"`},
	} {
		broken := bytes.Replace(files[row.file], []byte(row.old), []byte(row.broken), 1)
		if bytes.Equal(broken, files[row.file]) || !json.Valid(broken) {
			t.Errorf("%s: there is no %s to break", row.file, row.old)
		}
		if err := row.schema.Validate(parsed(t, broken)); err == nil {
			t.Errorf("%s with %s: want it refused", row.file, row.broken)
		}
	}
}
