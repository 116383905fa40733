package rpc

import (
	"encoding/base64"
	"encoding/json"

	"github.com/muxhost/muxhost/frames"
)

// The params and results of forks, exports, tasks, uploads, tokens and clients.
type (
	// DiscoverResult is the result of rpc.discover: an OpenRPC document, as it
	// is.
	DiscoverResult struct {
		Document json.RawMessage `json:"-"`
	}

	// ForkParams are those of session.fork. At is the seq of a `turn/end`;
	// without it the fork begins after the last one.
	ForkParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		At        *frames.Seq      `json:"at,omitempty"`
		Title     string           `json:"title,omitempty"`
		RequestID string           `json:"requestId,omitempty"`
	}
	// ExportParams are those of session.export.
	ExportParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		Format    string           `json:"format"` // "jsonl" or "markdown"
	}
	// ExportResult is the result of session.export: a blob for blob.read, and
	// the last event in it.
	ExportResult struct {
		Blob     frames.BlobID `json:"blob"`
		Bytes    int64         `json:"bytes"`
		MimeType string        `json:"mimeType"`
		Head     frames.Seq    `json:"head"`
	}

	// Task is background work of an agent: a command that goes on by itself, or
	// a child session. Status is running, completed, failed, cancelled or
	// interrupted.
	Task struct {
		TaskID    frames.TaskID    `json:"taskId"`
		SessionID frames.SessionID `json:"sessionId"`
		TurnID    frames.TurnID    `json:"turnId,omitempty"`
		// ChildSessionID is the child session of a task of the kind "agent";
		// its taskId is the same string.
		ChildSessionID frames.SessionID `json:"childSessionId,omitempty"`
		Kind           string           `json:"kind,omitempty"`
		Label          string           `json:"label,omitempty"`
		Status         string           `json:"status"`
		Detail         string           `json:"detail,omitempty"`
		StartedAt      frames.Time      `json:"startedAt"`
		FinishedAt     frames.Time      `json:"finishedAt,omitzero"`
		// Output is the tail of what it printed, in tasks.get and tasks.wait;
		// OutputBytes counts all of it.
		Output      string `json:"output,omitempty"`
		OutputBytes int64  `json:"outputBytes,omitempty"`
	}
	// TasksListParams are those of tasks.list. With sessionId, every task of
	// that session; else those of live sessions, of a tree or of all.
	TasksListParams struct {
		SessionID frames.SessionID `json:"sessionId,omitempty"`
		Tree      frames.SessionID `json:"tree,omitempty"`
		Running   bool             `json:"running,omitempty"`
	}
	// TasksResult is the result of tasks.list, oldest first.
	TasksResult struct {
		Tasks []Task `json:"tasks"`
	}
	// TaskParams name a task.
	TaskParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		TaskID    frames.TaskID    `json:"taskId"`
	}
	// TaskResult carries one task.
	TaskResult struct {
		Task Task `json:"task"`
	}
	// TaskWaitParams are those of tasks.wait. TimeoutMs defaults to 30 s, at
	// most 120 s.
	TaskWaitParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		TaskID    frames.TaskID    `json:"taskId"`
		TimeoutMs *int64           `json:"timeoutMs,omitempty"`
	}
	// TaskWaitResult is the result of tasks.wait: Done says that the task has
	// ended, else the time ran out.
	TaskWaitResult struct {
		Task Task `json:"task"`
		Done bool `json:"done"`
	}

	// BlobWriteParams are those of blob.write. The first chunk names no upload;
	// Offset is how many bytes are there already; SHA256, in hex, goes with the
	// last chunk, which may hold no data, and is of the whole. A chunk holds at
	// most 512 KiB.
	BlobWriteParams struct {
		Upload string `json:"upload,omitempty"`
		Offset int64  `json:"offset,omitempty"`
		Data   string `json:"data,omitempty"` // base64
		SHA256 string `json:"sha256,omitempty"`
	}
	// BlobWriteResult is the result of blob.write: how many bytes are there, and
	// once it is whole the blob.
	BlobWriteResult struct {
		Upload string        `json:"upload"`
		Bytes  int64         `json:"bytes"`
		Blob   frames.BlobID `json:"blob,omitempty"`
	}

	// ConnectedClient is one client that is connected now.
	ConnectedClient struct {
		ClientID    frames.ClientID    `json:"clientId"`
		Label       string             `json:"label"`
		TokenID     string             `json:"tokenId"`
		Scopes      []Scope            `json:"scopes"`
		Trees       []frames.SessionID `json:"trees,omitzero"`
		Transport   string             `json:"transport"` // "websocket" or "sse"
		Remote      string             `json:"remote,omitempty"`
		ConnectedAt frames.Time        `json:"connectedAt"`
	}
	// ClientsResult is the result of clients.list, oldest first.
	ClientsResult struct {
		Clients []ConnectedClient `json:"clients"`
	}

	// TokenInfo describes a token; its secret is shown once, by tokens.create.
	TokenInfo struct {
		ID     string             `json:"id"`
		Label  string             `json:"label"`
		Scopes []Scope            `json:"scopes"`
		Trees  []frames.SessionID `json:"trees,omitzero"` // [] shows nothing, absent everything
		// MadeBy is the token that made it; "" for tokens of the host's own
		// configuration, which cannot be revoked here.
		MadeBy    string      `json:"madeBy,omitempty"`
		CreatedAt frames.Time `json:"createdAt,omitzero"`
		ExpiresAt frames.Time `json:"expiresAt,omitzero"`
		// Clients counts the connections that use it now.
		Clients int `json:"clients"`
	}
	// TokensResult is the result of tokens.list, oldest first.
	TokensResult struct {
		Tokens []TokenInfo `json:"tokens"`
	}
	// TokenCreateParams are those of tokens.create. A token never exceeds its
	// maker: neither its scope, nor its trees, nor its time.
	TokenCreateParams struct {
		Label string             `json:"label"`
		Scope Scope              `json:"scope"`
		Trees []frames.SessionID `json:"trees,omitempty"`
		// ForMs is how long it is good; absent: until it is revoked.
		ForMs *int64 `json:"forMs,omitempty"`
	}
	// TokenCreateResult is the result of tokens.create.
	TokenCreateResult struct {
		Token  TokenInfo `json:"token"`
		Secret string    `json:"secret"`
	}
	// TokenRevokeParams are those of tokens.revoke.
	TokenRevokeParams struct {
		ID string `json:"id"`
	}
)

func (p *ForkParams) session() frames.SessionID   { return p.SessionID }
func (p *ExportParams) session() frames.SessionID { return p.SessionID }
func (p *TaskParams) session() frames.SessionID   { return p.SessionID }

func (p *ExportParams) check() error { return word("format", p.Format, "jsonl", "markdown") }

// MaxTaskWaitMs bounds one tasks.wait.
const MaxTaskWaitMs = 120_000

func (p *TaskWaitParams) check() error {
	if p.TimeoutMs == nil {
		return nil
	}
	return between("timeoutMs", *p.TimeoutMs, 0, MaxTaskWaitMs)
}

// MaxBlobChunk bounds the data of one blob.write, in bytes.
const MaxBlobChunk = 512 << 10

// Bytes returns the data of the chunk.
func (p *BlobWriteParams) Bytes() ([]byte, error) {
	return base64.StdEncoding.Strict().DecodeString(p.Data)
}

func (p *BlobWriteParams) check() error {
	if n := base64.StdEncoding.EncodedLen(MaxBlobChunk); len(p.Data) > n {
		return Paramsf("params.data: expected at most %d characters, got %d; send more chunks", n, len(p.Data))
	}
	if _, err := p.Bytes(); err != nil {
		return Paramsf("params.data: expected standard base64 with padding: %v", err)
	}
	if p.Upload == "" && p.Offset != 0 {
		return Paramsf("params.offset: expected 0 without an upload, got %d; the first chunk begins one", p.Offset)
	}
	if p.SHA256 != "" && len(p.SHA256) != hashLen {
		return Paramsf("params.sha256: expected %d hex digits, got %d characters", hashLen, len(p.SHA256))
	}
	return between("offset", p.Offset, 0, frames.MaxInteger-1)
}

func (p *TokenCreateParams) check() error {
	if p.Label == "" {
		return Paramsf(`params.label: expected what a person recognises its client by, such as "my phone"`)
	}
	if err := word("scope", p.Scope, ScopeObserve, ScopeAnswer, ScopeOperate, ScopeAdmin); err != nil || p.ForMs == nil {
		return err
	}
	return between("forMs", *p.ForMs, 1, frames.MaxInteger-1)
}

// AppendJSON appends the document; it is copied as it is.
func (r DiscoverResult) AppendJSON(dst []byte) []byte { return append(dst, r.Document...) }

// UnmarshalJSON keeps the document.
func (r *DiscoverResult) UnmarshalJSON(b []byte) error {
	r.Document = append(r.Document[:0], b...)
	return nil
}

func (r *TasksResult) fill()       { list(&r.Tasks) }
func (r *TokenCreateResult) fill() { list(&r.Token.Scopes) }

func (r *ClientsResult) fill() {
	list(&r.Clients)
	for i := range r.Clients {
		list(&r.Clients[i].Scopes)
	}
}

func (r *TokensResult) fill() {
	list(&r.Tokens)
	for i := range r.Tokens {
		list(&r.Tokens[i].Scopes)
	}
}
