package host

import (
	"context"
	"errors"

	"github.com/muxhost/muxhost/rpc"
)

// ClientsList is to be built.
func (c *caller) ClientsList(context.Context, rpc.Empty) (rpc.ClientsResult, error) {
	return rpc.ClientsResult{}, errors.New("host: clients.list is not built")
}

// TokensList is to be built.
func (c *caller) TokensList(context.Context, rpc.Empty) (rpc.TokensResult, error) {
	return rpc.TokensResult{}, errors.New("host: tokens.list is not built")
}

// TokensCreate is to be built.
func (c *caller) TokensCreate(context.Context, rpc.TokenCreateParams, rpc.Reply[rpc.TokenCreateResult]) error {
	return errors.New("host: tokens.create is not built")
}

// TokensRevoke is to be built.
func (c *caller) TokensRevoke(context.Context, rpc.TokenRevokeParams, rpc.Reply[rpc.Empty]) error {
	return errors.New("host: tokens.revoke is not built")
}
