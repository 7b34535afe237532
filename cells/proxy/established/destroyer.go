package established

import (
	"log/slog"
	"sync/atomic"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/policy"
)

// Destroyer is the [policy.ConnectionCloser].
type Destroyer struct {
	cfg         Config
	log         *slog.Logger
	unsupported atomic.Pointer[error] // why nothing can be closed; it is in the log
}

// New returns what closes connections, or only those that cannot go on, as the configuration says.
func New(cfg Config, log *slog.Logger) *Destroyer { return &Destroyer{cfg: cfg, log: log} }

// start asks the kernel whether it can close connections, so that the status says so before rules come.
func (d *Destroyer) start() { d.noteUnsupported(probe()) }

func (d *Destroyer) noteUnsupported(err error) {
	if err != nil && d.unsupported.CompareAndSwap(nil, &err) {
		d.log.Warn("open connections that get layer 7 rules cannot be closed, and are reset with their next packet", "error", err)
	}
}

// Report implements server.StatusReporter.
func (d *Destroyer) Report(status *v1.Status) {
	if err := d.unsupported.Load(); err != nil {
		status.Proxy.OpenConnections = (*err).Error()
	}
}

// Begin implements [policy.ConnectionCloser]. What goes through the proxy is left to it, which decides by the rules from the next request on.
func (d *Destroyer) Begin(locals []policy.Local) policy.Closing {
	c := &closing{destroyer: d, locals: locals, seen: map[socketID]bool{}}
	if d.unsupported.Load() != nil {
		return c
	}
	if err := c.open(); err != nil {
		c.End()
		d.log.Warn("open connections that get layer 7 rules are not closed, but reset with their next packet", "error", err)
	}
	return c
}
