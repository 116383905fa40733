package conform

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

func blobChecks() []Check {
	return []Check{
		{ID: "write", Section: "5", Says: "A blob of one chunk is whole with its sha256, and read as it was written.", run: blobWrite},
		{ID: "chunks", Section: "5", Says: "A blob of several chunks is whole with the last.", run: blobInChunks},
		{ID: "repeat", Section: "5", Says: "A chunk may be repeated after a lost answer, on another connection too.", run: blobRepeat},
		{ID: "wrong-hash", Section: "5", Says: "A sha256 that is not that of the whole makes no blob.", run: blobWrongHash},
		{ID: "gap", Section: "5", Says: "A chunk that leaves a gap is refused.", run: blobGap},
		{ID: "pages", Section: "5", Says: "blob.read pages by offset and limit, and more is honest.", run: blobPages},
		{ID: "end", Section: "5", Says: "A page at the end of a blob is empty.", run: blobEnd},
		{ID: "unknown", Section: "7", Says: "A blob that does not exist is blob-not-found.", run: func(t *T) { t.dial().refused("blob.read", obj{"blob": noBlob}, "blob-not-found") }},
		{ID: "path", Section: "7", Says: "The name of a blob is no path.", run: blobPath},
		{ID: "upload-unknown", Section: "7", Says: "An upload that does not exist is blob-not-found.", run: blobNoUpload},
		{ID: "upload-of-another", Section: "7", Says: "An upload of another token gives the same error as one that does not exist.", run: blobOthersUpload},
		{ID: "base64", Section: "5", Says: "Data that is not base64 is -32602.", run: func(t *T) { t.dial().refused("blob.write", obj{"data": "~~~"}, "-32602") }},
		{ID: "prompt", Section: "5", Says: "A prompt's large block names a blob, and user/message does too.", run: blobPrompt},
	}
}

// bytesOf are n bytes that differ from check to check.
func bytesOf(n int) []byte { return bytes.Repeat([]byte(unique()+"\x00\xff"), n/28+1)[:n] }

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// uploader connects with a token of the check's own, and returns its secret too:
// a server may bound what a token has not finished.
func (t *T) uploader() (p *peer, secret string) {
	secret, _ = t.token(t.dial(), nil)
	return t.dialAs(secret), secret
}

func blobWrite(t *T) {
	p := t.dial()
	b := bytesOf(1000)
	r := p.ok("blob.write", obj{"data": b64(b), "sha256": hashOf(b)})
	t.must(r.num("bytes") == 1000, "bytes 1000", r)
	t.equal("blob", r.str("blob"), "sha256-"+hashOf(b))
	t.must(bytes.Equal(p.blob(r.str("blob")), b), "the bytes that were written", "others")
}

func blobInChunks(t *T) {
	p, _ := t.uploader()
	b := bytesOf(250_000)
	r := p.ok("blob.write", obj{"data": b64(b[:100_000])})
	t.must(r.str("upload") != "" && r.num("bytes") == 100_000 && !r.has("blob"), "upload, bytes, no blob yet", r)
	up := obj{"upload": r.str("upload")}
	p.ok("blob.write", up.with(obj{"offset": 100_000, "data": b64(b[100_000:200_000])}))
	r = p.ok("blob.write", up.with(obj{"offset": 200_000, "data": b64(b[200_000:]), "sha256": hashOf(b)}))
	t.must(bytes.Equal(p.blob(r.str("blob")), b), "the bytes that were written", "others")
}

func blobRepeat(t *T) {
	p, secret := t.uploader()
	b := bytesOf(3000)
	up := obj{"upload": p.ok("blob.write", obj{"data": b64(b[:1000])}).str("upload")}
	second := up.with(obj{"offset": 1000, "data": b64(b[1000:2000])})
	p.ok("blob.write", second)
	p.cut()
	q := t.dialAs(secret)
	t.equal("bytes", q.ok("blob.write", second).num("bytes"), 2000)
	r := q.ok("blob.write", up.with(obj{"offset": 2000, "data": b64(b[2000:]), "sha256": hashOf(b)}))
	t.must(bytes.Equal(q.blob(r.str("blob")), b), "the bytes that were written", "others")
}

func blobOthersUpload(t *T) {
	p, _ := t.uploader()
	b := bytesOf(2000)
	up := obj{"upload": p.ok("blob.write", obj{"data": b64(b[:1000])}).str("upload"), "offset": 1000, "data": b64(b[1000:]), "sha256": hashOf(b)}
	t.dialAs(t.scoped("operate")).refused("blob.write", up, "blob-not-found")
	p.ok("blob.write", up)
}

func blobWrongHash(t *T) {
	p := t.dial()
	b, other := bytesOf(100), bytesOf(100)
	r := p.call("blob.write", obj{"data": b64(b), "sha256": hashOf(other)})
	t.must(r.err != nil, "an error", r.String())
	for _, hash := range []string{hashOf(b), hashOf(other)} {
		p.refused("blob.read", obj{"blob": "sha256-" + hash}, "blob-not-found")
	}
}

func blobGap(t *T) {
	p, _ := t.uploader()
	b := bytesOf(200)
	up := obj{"upload": p.ok("blob.write", obj{"data": b64(b[:100])}).str("upload")}
	r := p.call("blob.write", up.with(obj{"offset": 150, "data": b64(b[150:])}))
	t.must(r.err != nil, "an error", r.String())
	r = p.answered("blob.write", up.with(obj{"offset": 100, "data": b64(b[100:]), "sha256": hashOf(b)}))
	t.must(r.obj().str("blob") != "", "the upload goes on where it was", r.String())
}

// blobOf writes a blob and returns its name.
func (p *peer) blobOf(b []byte) string {
	return p.ok("blob.write", obj{"data": b64(b), "sha256": hashOf(b)}).str("blob")
}

func blobPages(t *T) {
	p := t.dial()
	b := bytesOf(1000)
	id := p.blobOf(b)
	r := p.ok("blob.read", obj{"blob": id, "offset": 100, "limit": 200})
	t.must(r.str("data") == b64(b[100:300]) && r.flag("more") && r.num("bytes") == 1000, "bytes 100 to 300, more, 1000 in all", r)
	r = p.ok("blob.read", obj{"blob": id, "offset": 800, "limit": 200})
	t.must(r.str("data") == b64(b[800:]) && !r.flag("more"), "bytes 800 to 1000, no more", r)
}

func blobEnd(t *T) {
	p := t.dial()
	id := p.blobOf(bytesOf(10))
	r := p.ok("blob.read", obj{"blob": id, "offset": 10})
	t.must(r.str("data") == "" && !r.flag("more"), "nothing, no more", r)
}

func blobPath(t *T) {
	p := t.dial()
	for _, id := range []string{"../token", "sha256-../../token", "/etc/passwd", "sha256-", ""} {
		r := p.call("blob.read", obj{"blob": id})
		t.must(r.kind() == "blob-not-found" || r.kind() == "-32602", "blob-not-found or -32602", r.String())
	}
}

func blobNoUpload(t *T) {
	t.dial().refused("blob.write", obj{"upload": "none", "offset": 0, "data": b64([]byte("x"))}, "blob-not-found")
}

func blobPrompt(t *T) {
	p := t.dial()
	s := t.session(p, echoes)
	p.subscribe(s)
	id := p.blobOf(bytesOf(5000))
	content := list{obj{"type": "image", "mimeType": "image/png", "blob": id}, obj{"type": "text", "text": "look"}}
	p.ok("session.prompt", obj{"sessionId": s.id, "content": content})
	t.equal("content", p.event(s, "user/message").get("data.content"), content)
}
