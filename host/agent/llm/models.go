package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/muxhost/muxhost/frames"
)

// DefaultRules let the tools run that change nothing: those that read below the
// session's directory, those that only talk, and spawn, whose child asks for itself
// under its parent's policy. They are for whoever configures a host; without them
// every call is asked for. A deny rule beats them.
func DefaultRules() []frames.Rule {
	var all []frames.Rule
	for _, name := range []string{"ask", "list", "read", "search", "spawn", "todo"} {
		all = append(all, frames.Rule{Tool: name, Decision: "allow"})
	}
	return all
}

// maxModels bounds a list of models, in bytes.
const maxModels = 4 << 20

// ListModels asks the endpoint which models it has, by name; o needs no Model. It
// blocks until the answer is there, ctx is done, or the server was silent for
// StallTimeout. An error says what to do, and never shows the key.
func ListModels(ctx context.Context, o Options) ([]string, error) {
	o = o.withDefaults()
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(c.stall, func() { cancel(errStalled) }).Stop()
	names, err := c.models(ctx)
	if err != nil {
		return nil, c.explain(because(ctx, err), o.Model)
	}
	return names, nil
}

var errNoList = errors.New("what came is no list of models")

func (c *client) models(ctx context.Context) ([]string, error) {
	hr, err := http.NewRequestWithContext(ctx, http.MethodGet, c.list, http.NoBody)
	if err != nil {
		return nil, errors.New("the base URL makes no request")
	}
	c.dress(hr.Header)
	res, err := c.http.Do(hr)
	if err != nil {
		return nil, plain(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxModels))
	if res.StatusCode != http.StatusOK {
		return nil, statusError(res.StatusCode, res.Header, b)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err != nil || json.Unmarshal(b, &list) != nil || list.Data == nil {
		if strings.HasPrefix(strings.TrimSpace(string(b)), "<") {
			return nil, errPage
		}
		return nil, fmt.Errorf("%w: %w", errCut, errors.Join(errNoList, err))
	}
	names := make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}
