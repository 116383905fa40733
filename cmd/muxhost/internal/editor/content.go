package editor

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent/acp/acprpc"
	"github.com/muxhost/muxhost/rpc/client"
)

const (
	// maxInline is the largest part of a prompt, in bytes, that is no blob.
	maxInline = 64 << 10
	// maxPrompt bounds the text of a prompt, in bytes, as the host does.
	maxPrompt = 192 << 10
	// maxParts bounds a prompt as JSON: parts that would pass it are blobs.
	maxParts = 160 << 10
)

// contentOf is a prompt of the editor in the contract's form. Large parts become blobs. An
// error of the type badPrompt is the editor's fault.
func contentOf(ctx context.Context, c *client.Client, prompt []block) ([]frames.ContentBlock, error) {
	var out []frames.ContentBlock
	text, size := 0, 0
	for _, in := range prompt {
		if in.Type == "text" {
			text += len(in.Text)
			size += len(acprpc.Marshal(in.Text))
		}
	}
	if text > maxPrompt {
		return nil, badPrompt(fmt.Sprintf("the text of the prompt has %d bytes, at most %d are taken; send the rest as resources", text, maxPrompt))
	}
	for i, in := range prompt {
		b, data, err := in.contract()
		part := len(acprpc.Marshal(b))
		if err == nil && data != "" && (len(data) > maxInline || size+part > maxParts) {
			b.Data, b.Text = "", ""
			b.Blob, _, err = c.WriteBlob(ctx, strings.NewReader(data))
		}
		if err != nil {
			return nil, fmt.Errorf("part %d of the prompt: %w", i, err)
		}
		if b.Blob == "" && in.Type != "text" {
			size += part
		}
		out = append(out, b)
	}
	return out, nil
}

type badPrompt string

func (e badPrompt) Error() string { return string(e) }

// contract is a block in the contract's form, and the bytes of it that may become a
// blob.
func (in block) contract() (b frames.ContentBlock, data string, err error) {
	b = frames.ContentBlock{Type: in.Type, MimeType: frames.ValidText(in.MimeType), URI: frames.ValidText(in.URI), Name: frames.ValidText(in.Name)}
	switch in.Type {
	case "text":
		return frames.Text(frames.ValidText(in.Text)), "", nil
	case "image":
		b.Data = in.Data
		data, err = decoded(in.Data)
	case "resource_link":
	case "resource":
		r := in.Resource
		b.URI, b.MimeType = frames.ValidText(r.URI), frames.ValidText(r.MimeType)
		if r.Blob != "" {
			b.Data = r.Blob
			data, err = decoded(r.Blob)
			break
		}
		b.Text = frames.ValidText(r.Text)
		data = b.Text
	default:
		return b, "", badPrompt(fmt.Sprintf("its type is %q; text, image, resource and resource_link are taken", in.Type))
	}
	return b, data, err
}

func decoded(data string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return "", badPrompt("it is no base64: " + err.Error())
	}
	return string(raw), nil
}

// shown is a content block as the editor gets it.
func shown(c frames.ContentBlock) obj {
	b := obj{"type": c.Type}
	switch {
	case c.Type == "image" && c.Data != "":
		b["mimeType"], b["data"] = c.MimeType, c.Data
		set(b, "uri", c.URI)
	case c.Type == "resource" && (c.Data != "" || c.Text != "" || c.Blob == ""):
		r := obj{"uri": first(c.URI, "muxhost:"+first(c.Name, "resource"))}
		set(r, "mimeType", c.MimeType)
		if c.Data != "" {
			r["blob"] = c.Data
		} else {
			r["text"] = whole(c)
		}
		b["resource"] = r
	case c.Type == "image" || c.Type == "resource" || c.Type == "resource_link":
		b["type"] = "resource_link"
		b["uri"] = first(c.URI, "muxhost:"+string(c.Blob))
		b["name"] = first(c.Name, c.URI, c.Type)
		set(b, "mimeType", c.MimeType)
	default:
		b["type"], b["text"] = "text", whole(c)
	}
	return b
}

// whole is the text of a block; where it was cut it says so.
func whole(c frames.ContentBlock) string {
	if c.Truncated == nil {
		return c.Text
	}
	return c.Text + fmt.Sprintf("\n[cut: %d bytes in all]", c.Truncated.Bytes)
}

// texts joins the text of blocks.
func texts(blocks []frames.ContentBlock) string {
	var b strings.Builder
	for _, c := range blocks {
		if c.Type == "text" {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// set sets a member that is not empty.
func set(o obj, key, value string) {
	if value != "" {
		o[key] = value
	}
}

// first is the first string that is not empty.
func first(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}
