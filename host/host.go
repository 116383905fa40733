package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/internal/auth"
	"github.com/muxhost/muxhost/host/internal/blob"
	"github.com/muxhost/muxhost/host/internal/session"
	"github.com/muxhost/muxhost/mux"
	"github.com/muxhost/muxhost/rpc"
	"github.com/muxhost/muxhost/store"
)

// Host runs sessions and serves clients. All methods are safe for concurrent use.
type Host struct {
	cfg       Config
	id        string
	gate      *auth.Gate
	hub       *mux.Hub
	publisher *publisher
	sessions  *session.Manager
	blobs     blobs
	uploads   *blob.Uploads
	handler   http.Handler

	ctx       context.Context //nolint:containedctx // the lifetime of the goroutines below
	cancel    context.CancelFunc
	seats     seats
	faults    auth.Budget // of calls by POST
	local     local
	backingUp atomic.Bool // a backup is being made
	once      sync.Once   // of Shutdown
	down      error       // what it returned; guarded by once
}

// blobs is what keeps blobs: blob.Dir or blob.Memory.
type blobs interface {
	blob.Drafts
	Put(ctx context.Context, r io.Reader) (frames.BlobID, int64, error)
	Open(ctx context.Context, id frames.BlobID) (io.ReadCloser, error)
	keeper
	Close() error
}

// New makes a host: it repairs what a crash left behind and knows every stored
// session when it returns. ctx bounds the start only; [Host.Shutdown] ends the
// host. Errors that a change of cfg mends wrap [ErrConfig].
func New(ctx context.Context, cfg Config) (*Host, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	drivers, err := cfg.drivers()
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, seats: seats{max: cfg.MaxConns, perToken: cfg.MaxConnsPerToken},
		faults: auth.Budget{Max: rpc.DefaultErrorBudget, Window: rpc.DefaultErrorWindow},
	}
	if err := h.openGate(); err != nil {
		return nil, err
	}
	if h.id, err = hostID(ctx, cfg); err != nil {
		return nil, err
	}
	if h.blobs, err = openBlobs(cfg); err != nil {
		return nil, err
	}
	h.hub = mux.NewHub(cfg.Mux, hubLog{cfg.Store})
	h.publisher = newPublisher(h.hub, cfg.Logger)
	h.sessions, err = session.New(ctx, session.Config{
		Store: cfg.Store, Publisher: h.publisher, Blobs: h.blobs, OpenBlob: h.blobs.Open, Rules: cfg.Rules,
		Drivers: drivers, DefaultAgent: cfg.DefaultAgent, NewID: newID, Logger: cfg.Logger, Env: cfg.Env,
		MaxQueue: cfg.MaxQueue, MaxTree: cfg.MaxTree, MaxDepth: cfg.MaxDepth, SpawnRate: cfg.SpawnRate,
		IdleAfter: cfg.IdleAfter, AskTimeout: cfg.AskTimeout, Retention: cfg.Retention.session(),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("host: open the sessions: %w", err), h.blobs.Close())
	}
	if err := h.loadTokens(ctx); err != nil {
		return nil, errors.Join(err, h.sessions.Shutdown(ctx), h.blobs.Close())
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.uploads = blob.NewUploads(h.blobs)
	h.handler = h.routes()
	return h, nil
}

func (h *Host) openGate() error {
	toks, err := h.cfg.tokens()
	if err != nil {
		return err
	}
	h.gate, err = auth.New(auth.Config{
		Tokens: toks, AllowHosts: h.cfg.AllowHosts, AllowOrigins: h.cfg.AllowOrigins, Logger: h.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func openBlobs(cfg Config) (blobs, error) {
	if cfg.BlobDir == "" {
		return blob.NewMemory(cfg.BlobQuota), nil
	}
	d, err := blob.OpenDir(cfg.BlobDir, cfg.BlobQuota)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return d, nil
}

// newID mints an id that sorts by time.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil { // crypto/rand does not fail; a random id still is one
		return uuid.NewString()
	}
	return id.String()
}

const hostIDKey = "hostId"

// hostID returns the configured id, the stored one, or a new one once it is stored.
func hostID(ctx context.Context, cfg Config) (string, error) {
	if cfg.HostID != "" {
		return cfg.HostID, nil
	}
	b, err := cfg.Store.Get(ctx, store.TableHost, hostIDKey)
	if err != nil {
		return "", fmt.Errorf("host: read its id: %w", err)
	}
	if len(b) > 0 {
		return string(b), nil
	}
	id := newID()
	if err := cfg.Store.Put(ctx, store.Row{Table: store.TableHost, Key: hostIDKey, Value: []byte(id)}); err != nil {
		return "", fmt.Errorf("host: store its id: %w", err)
	}
	return id, nil
}

// ID returns the host's id.
func (h *Host) ID() string { return h.id }

// Run keeps the host up until ctx is done, then shuts it down and returns what
// [Host.Shutdown] says. It is for programs that serve [Host.Handler] themselves:
// end their server after Run returned, so that clients are told first.
func (h *Host) Run(ctx context.Context) error {
	<-ctx.Done()
	return h.Shutdown(context.WithoutCancel(ctx))
}

// Shutdown ends the host and waits: clients are told `host/draining`, new work is
// refused while what is open stays answerable for Config.DrainTimeout or until ctx
// is done, then it is settled, turns end interrupted, all of it is appended and
// sent, connections close with 1001, and drivers that are an [agent.Closer] close. Later calls return the first one's result.
// The store stays open.
func (h *Host) Shutdown(ctx context.Context) error {
	h.once.Do(func() { h.down = h.shutdown(ctx) })
	return h.down
}

// flushTimeout bounds the sending of what is left once everything is settled.
const flushTimeout = 3 * time.Second

func (h *Host) shutdown(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, h.cfg.DrainTimeout)
	defer cancel()
	deadline, _ := drain.Deadline()
	h.sessions.Drain()
	if b, err := frames.EncodeFrame(frames.HostDraining{Deadline: frames.At(deadline)}); err == nil {
		h.hub.Broadcast(b)
	}
	h.cfg.Logger.Info("draining", slog.Time("deadline", deadline))
	errs := []error{h.sessions.Shutdown(drain)}
	var drivers driverEnds
	drivers.begin(h.cfg.Drivers)
	flush, cancelFlush := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancelFlush()
	errs = append(errs, h.hub.Shutdown(flush))
	h.cancel()
	h.seats.close()
	h.uploads.Close()
	errs = append(errs, drivers.wait(), h.blobs.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("host: shut down: %w", err)
	}
	return nil
}
