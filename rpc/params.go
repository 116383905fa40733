package rpc

import (
	"encoding/json"

	"github.com/muxhost/muxhost/frames"
)

// The params and results of every method; their field names are the wire's.
// Pointers and omitzero stand where absent differs from zero.
type (
	// Empty is the params or the result of methods that have none.
	Empty struct{}

	// Agent describes one agent of the host.
	Agent struct {
		Name         string   `json:"name"`
		Kind         string   `json:"kind"`
		Provider     string   `json:"provider,omitempty"`
		Model        string   `json:"model,omitempty"`
		Models       []string `json:"models,omitempty"`
		Capabilities []string `json:"capabilities"`
	}
	// You tells a client who it is.
	You struct {
		ClientID frames.ClientID `json:"clientId"`
		Label    string          `json:"label"`
		Scopes   []Scope         `json:"scopes"`
	}
	// DescribeResult is the result of host.describe. Limits are named in
	// bytes, milliseconds or counts by their suffix.
	DescribeResult struct {
		HostID          string           `json:"hostId"`
		Name            string           `json:"name"`
		Version         string           `json:"version"`
		ProtocolVersion string           `json:"protocolVersion"`
		Agents          []Agent          `json:"agents"`
		DefaultAgent    string           `json:"defaultAgent"`
		Limits          map[string]int64 `json:"limits"`
		Features        []string         `json:"features"`
		You             You              `json:"you"`
	}

	// Delivery says which streams a subscription wants.
	Delivery struct {
		Text      string `json:"text,omitempty"`
		Reasoning string `json:"reasoning,omitempty"`
		Tools     string `json:"tools,omitempty"`
	}
	// SubscribeSession asks for one session.
	SubscribeSession struct {
		SessionID frames.SessionID `json:"sessionId"`
		Since     *frames.Seq      `json:"since,omitempty"`
		Epoch     frames.Epoch     `json:"epoch,omitempty"`
		Tree      bool             `json:"tree,omitempty"`
	}
	// SubscribeParams are those of mux.subscribe.
	SubscribeParams struct {
		Sessions []SubscribeSession `json:"sessions,omitempty"`
		Tree     bool               `json:"tree,omitempty"`
		Host     bool               `json:"host,omitempty"`
		Delivery *Delivery          `json:"delivery,omitempty"`
	}
	// Subscribed is the answer for one session of a mux.subscribe.
	Subscribed struct {
		SessionID frames.SessionID `json:"sessionId"`
		Head      frames.Seq       `json:"head"`
		Epoch     frames.Epoch     `json:"epoch,omitempty"`
		Error     *WireError       `json:"error,omitempty"`
	}
	// SubscribeResult is the result of mux.subscribe.
	SubscribeResult []Subscribed
	// UnsubscribeParams are those of mux.unsubscribe.
	UnsubscribeParams struct {
		Sessions []frames.SessionID `json:"sessions,omitempty"`
		Host     bool               `json:"host,omitempty"`
	}

	// ListParams are those of sessions.list. Limit defaults to 100, at most 500.
	ListParams struct {
		Roots  bool                `json:"roots,omitempty"`
		Parent frames.SessionID    `json:"parent,omitempty"`
		Tree   frames.SessionID    `json:"tree,omitempty"`
		State  frames.SessionState `json:"state,omitempty"`
		Cwd    string              `json:"cwd,omitempty"`
		Text   string              `json:"text,omitempty"`
		Limit  int                 `json:"limit,omitempty"`
		Cursor string              `json:"cursor,omitempty"`
	}
	// ListResult is the result of sessions.list.
	ListResult struct {
		Sessions []frames.Session `json:"sessions"`
		Next     string           `json:"next,omitempty"`
	}

	// CreateParams are those of session.create.
	CreateParams struct {
		Agent           string            `json:"agent,omitempty"`
		Cwd             string            `json:"cwd"`
		Title           string            `json:"title,omitempty"`
		ParentSessionID frames.SessionID  `json:"parentSessionId,omitempty"`
		Config          json.RawMessage   `json:"config,omitempty"`
		Policy          *frames.Policy    `json:"policy,omitempty"`
		Budget          *frames.Budget    `json:"budget,omitempty"`
		Labels          map[string]string `json:"labels,omitempty"`
		RequestID       string            `json:"requestId,omitempty"`
	}
	// SessionResult carries one summary.
	SessionResult struct {
		Session frames.Session `json:"session"`
	}
	// GetParams are those of session.get.
	GetParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		View      bool             `json:"view,omitempty"`
	}
	// GetResult is the result of session.get.
	GetResult struct {
		Session frames.Session  `json:"session"`
		View    json.RawMessage `json:"view,omitempty"`
		Seq     frames.Seq      `json:"seq,omitempty"`
	}
	// HistoryParams are those of session.history. After and Before exclude each
	// other; without both it gives the newest. Limit defaults to 256,
	// at most 1000; MaxBytes defaults to 128 KiB, at most 192 KiB.
	HistoryParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		After     *frames.Seq      `json:"after,omitempty"`
		Before    *frames.Seq      `json:"before,omitempty"`
		Limit     int              `json:"limit,omitempty"`
		MaxBytes  int              `json:"maxBytes,omitempty"`
	}
	// HistoryResult is the result of session.history; events are as encoded.
	HistoryResult struct {
		Events []json.RawMessage `json:"events"`
		First  frames.Seq        `json:"first"`
		Head   frames.Seq        `json:"head"`
		More   bool              `json:"more"`
	}
	// PromptParams are those of session.prompt.
	PromptParams struct {
		SessionID frames.SessionID      `json:"sessionId"`
		Content   []frames.ContentBlock `json:"content"`
		Mode      frames.PromptMode     `json:"mode,omitempty"`
		PromptID  frames.PromptID       `json:"promptId,omitempty"`
	}
	// PromptResult is the result of session.prompt.
	PromptResult struct {
		Accepted bool            `json:"accepted"`
		PromptID frames.PromptID `json:"promptId"`
		TurnID   frames.TurnID   `json:"turnId,omitempty"`
		Queued   bool            `json:"queued"`
	}
	// CancelParams are those of session.cancel. Tree defaults to true.
	CancelParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		TurnID    frames.TurnID    `json:"turnId,omitempty"`
		Tree      *bool            `json:"tree,omitempty"`
	}
	// CancelResult is the result of session.cancel: whether anything was marked.
	CancelResult struct {
		Cancelled bool `json:"cancelled"`
	}
	// ConfigureParams are those of session.configure; absent fields stay.
	ConfigureParams struct {
		SessionID frames.SessionID  `json:"sessionId"`
		Title     *string           `json:"title,omitempty"`
		Policy    *frames.Policy    `json:"policy,omitempty"`
		Budget    *frames.Budget    `json:"budget,omitempty"`
		Labels    map[string]string `json:"labels,omitempty"`
		// Options are the agent's own, such as model or mode.
		Options json.RawMessage `json:"options,omitempty"`
	}
	// CloseParams are those of session.close.
	CloseParams struct {
		SessionID frames.SessionID `json:"sessionId"`
	}
	// DeleteParams are those of session.delete.
	DeleteParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		Tree      bool             `json:"tree,omitempty"`
	}

	// GrantRequest goes with an allowed-always answer.
	GrantRequest struct {
		Scope string `json:"scope,omitempty"` // "session" (default) or "project"
		ForMs *int64 `json:"forMs,omitempty"` // default 8 h
	}
	// ApprovalParams are those of approval.respond.
	ApprovalParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		ID        frames.RequestID `json:"id"`
		Outcome   frames.Outcome   `json:"outcome"`
		InputHash *string          `json:"inputHash,omitempty"`
		Feedback  string           `json:"feedback,omitempty"`
		Grant     *GrantRequest    `json:"grant,omitempty"`
	}
	// QuestionParams are those of question.respond.
	QuestionParams struct {
		SessionID frames.SessionID `json:"sessionId"`
		ID        frames.RequestID `json:"id"`
		Answers   []frames.Answer  `json:"answers,omitempty"`
		Cancel    bool             `json:"cancel,omitempty"`
	}
	// Accepted says that an answer won.
	Accepted struct {
		Accepted bool `json:"accepted"`
	}
	// PendingParams are those of pending.list.
	PendingParams struct {
		Tree frames.SessionID `json:"tree,omitempty"`
	}
	// Pending is one thing that waits for a person: the params of its
	// `*/requested` frame, and what it is.
	Pending struct {
		Type     string                    `json:"type"` // "approval" or "question"
		Approval *frames.ApprovalRequested `json:"approval,omitempty"`
		Question *frames.QuestionRequested `json:"question,omitempty"`
	}
	// PendingResult is the result of pending.list, oldest first.
	PendingResult struct {
		Pending []Pending `json:"pending"`
	}

	// Grant is a stored "always".
	Grant struct {
		ID            frames.GrantID   `json:"id"`
		Agent         string           `json:"agent"`
		Tool          string           `json:"tool"`
		Cwd           string           `json:"cwd"`
		Input         json.RawMessage  `json:"input"`
		Scope         string           `json:"scope"`
		RootSessionID frames.SessionID `json:"rootSessionId"`
		CreatedAt     frames.Time      `json:"createdAt"`
		ExpiresAt     frames.Time      `json:"expiresAt"`
		Used          int64            `json:"used"`
		By            *frames.By       `json:"by,omitempty"`
	}
	// GrantsResult is the result of grants.list.
	GrantsResult struct {
		Grants []Grant `json:"grants"`
	}
	// RevokeParams are those of grants.revoke.
	RevokeParams struct {
		ID frames.GrantID `json:"id"`
	}

	// BlobReadParams are those of blob.read. Limit is in bytes, default 64 KiB,
	// at most 128 KiB.
	BlobReadParams struct {
		Blob   frames.BlobID `json:"blob"`
		Offset int64         `json:"offset,omitempty"`
		Limit  int           `json:"limit,omitempty"`
	}
	// BlobReadResult is the result of blob.read; Data is base64.
	BlobReadResult struct {
		Data  []byte `json:"data"`
		Bytes int64  `json:"bytes"` // of the whole
		More  bool   `json:"more"`
	}
)
