package proxy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/dnsproxy"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
)

// Proxy has layer 7 rules applied to redirected connections of one network namespace, by a [Listener]: it opens the way
// of packets to that when it has the first rules, and removes it after the last ones. It is a [policy.Proxy].
type Proxy struct {
	listener Listener
	redirect *redirect.Redirect
	log      *slog.Logger
	use      use
	opened   func(*redirect.Listeners) // is told of the listening sockets, and of nil when there are none any more

	mu        sync.Mutex          // guards the fields below; held while the way into the proxy is opened or removed
	started   bool                //
	listeners *redirect.Listeners // nil while the way into the proxy is closed
}

var _ policy.Proxy = (*Proxy)(nil)

// Listener serves the connections that are redirected to the proxy, by the rules of their rows: [BuiltIn], or another
// program that is controlled in its place, such as Envoy by xDS. The [Proxy] keeps the way of packets to it.
//
//	Prepare (acknowledged) --> Serve, when the way is open --> Prepare, Release, Changed, CloseEndpoint ... --> Stop
//
// Its methods may be called concurrently. One that never acknowledges rules holds up only who waits for these rules.
type Listener interface {
	// The rules come before the first sockets. Prepare returns when they are acknowledged: only then rows have their
	// numbers.
	policy.Proxy
	EndpointCloser
	// Serve has it accept from the sockets, instead of previous ones. It does not block: connections wait in the sockets.
	// The proxy closes them when they are not needed any more, and before Stop; copies, as for another process
	// ([redirect.Listeners.Sockets]), are the listener's to close. After an error it uses none of them.
	Serve(sockets *redirect.Listeners) error
	// Stop lets requests that are being served end, within ctx and for as long as the listener lets them, and ends all
	// connections.
	Stop(ctx context.Context) error
	// Connections returns how many are open, and how many there were so far. The way is kept while there are any.
	Connections() (open int, accepted uint64)
}

// Drainer is a [Listener] that can drain its connections before it stops.
type Drainer interface {
	// Drain tells clients to use new connections for their next requests, goes on accepting, and returns when the open
	// connections have ended. A connection that lasts longer than the listener allows is closed. When ctx ends it returns
	// at once.
	Drain(ctx context.Context)
}

// Config says where the way into the proxy is kept, and how long its end may take.
type Config struct {
	redirect.Config
	// DrainTimeout is how long requests that are being served may take when the proxy stops.
	DrainTimeout time.Duration
	// DeniedNames is the answer to queries for names that no rule allows.
	DeniedNames dnsproxy.Denied
}

// DefaultDrainTimeout is the drain timeout of a proxy within the agent.
const DefaultDrainTimeout = 5 * time.Second

// New returns a proxy that is not started, with the way to its listener. It touches nothing.
func New(r *redirect.Redirect, listener Listener, log *slog.Logger) *Proxy {
	return &Proxy{
		listener: listener, redirect: r, log: log, use: use{opened: make(chan struct{}, 1), numbers: map[uint32]struct{}{}}, opened: func(*redirect.Listeners) {},
	}
}

// OnListeners registers f, which is called with the listening sockets whenever the way into the proxy is opened, and
// with nil when it is removed. It is called before Start. f must not call the proxy.
func (p *Proxy) OnListeners(f func(*redirect.Listeners)) { p.opened = f }

// Start allows Prepare to open the way into the proxy, in the network namespace of the thread that calls Prepare first.
func (p *Proxy) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	return nil
}

// Drain lets the current requests end while new ones are served, before Stop, if the listener is a [Drainer]. It
// returns when they have ended, or ctx has.
func (p *Proxy) Drain(ctx context.Context) {
	if d, ok := p.listener.(Drainer); ok && p.isStarted() {
		d.Drain(ctx)
	}
}

// Stop lets the current requests end, within ctx and as the listener does, and closes all connections. Kernel state
// stays: new connections wait for the next proxy.
func (p *Proxy) Stop(ctx context.Context) error {
	started, err := p.stopAccepting()
	if !started {
		return err
	}
	return errors.Join(err, p.redirect.Release(), p.listener.Stop(ctx), p.redirect.Close())
}

// stopAccepting reports whether the proxy was started.
func (p *Proxy) stopAccepting() (started bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return false, nil
	}
	p.started = false
	p.use.recordStopped()
	if p.listeners != nil {
		err = p.listeners.StopAccepting()
		p.listeners = nil
	}
	return true, err
}

// errNotStarted is returned before Start and after Stop.
var errNotStarted = fault.New(fault.Unavailable, "the proxy is not started")

// Supports implements [policy.Proxy].
func (p *Proxy) Supports(rules model.Layer7) error { return p.listener.Supports(rules) }

// Prepare implements [policy.Proxy]. With the first rules it opens the way into the proxy, when the listener has
// acknowledged them.
func (p *Proxy) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	if !p.isStarted() {
		return errNotStarted
	}
	p.use.beginPrepare()
	err := p.listener.Prepare(ctx, rules)
	added := p.use.endPrepare(slices.Collect(maps.Keys(rules)), err)
	if err != nil {
		return err
	}
	if err := p.openIfNeeded(); err != nil {
		p.Release(added) // no other caller releases unprepared rules
		return err
	}
	return nil
}

func (p *Proxy) isStarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

func (p *Proxy) openIfNeeded() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return errNotStarted
	}
	if p.use.rules() == 0 || p.listeners != nil {
		return nil
	}
	listeners, err := p.redirect.Open()
	p.use.recordOpened(err)
	if err != nil {
		return err
	}
	if err := p.listener.Serve(listeners); err != nil {
		return errors.Join(err, p.redirect.Close())
	}
	p.listeners = listeners
	p.opened(listeners)
	return nil
}

// Update is Prepare for a proxy that is stopping and does not open its way any more: requests of its connections are
// decided by the rules.
func (p *Proxy) Update(ctx context.Context, rules map[uint32]model.Layer7) error {
	return p.listener.Prepare(ctx, rules)
}

// Release implements [policy.Proxy]. The way into the proxy stays for a while, and as long as there are connections.
func (p *Proxy) Release(numbers []uint32) {
	p.use.release(numbers)
	p.listener.Release(numbers)
}

// Repair restores the way into the proxy, such as after an agent has replaced its maps. It does nothing unless the way
// is open.
func (p *Proxy) Repair() error { return p.redirect.Repair() }

// Healthy implements [policy.Proxy].
func (p *Proxy) Healthy() error { return p.Status().Err }

// Changed implements [policy.Proxy].
func (p *Proxy) Changed() { p.listener.Changed() }

// CloseEndpoint implements [EndpointCloser].
func (p *Proxy) CloseEndpoint(ctx context.Context, id uint16) error {
	return p.listener.CloseEndpoint(ctx, id)
}

// TakeOver has the proxy use what another one gave, when it opens the way next. It closes what it is given.
func (p *Proxy) TakeOver(given redirect.Handover) error { return p.redirect.TakeOver(given) }

// HandOver returns what the next proxy needs, which takes over while this one goes on: see
// [redirect.Redirect.HandOver].
func (p *Proxy) HandOver() (redirect.Handover, error) { return p.redirect.HandOver() }

// AbortHandover takes HandOver back.
func (p *Proxy) AbortHandover() error { return p.redirect.AbortHandover() }

// Status is what an operator wants to know.
type Status struct {
	InUse       bool // packets can get to the proxy
	RuleSets    int
	Connections int
	Err         error // why it does not work, or not as it should
}

// Status returns how the proxy is.
func (p *Proxy) Status() Status {
	open, err := p.use.state()
	connections, _ := p.listener.Connections()
	return Status{InUse: open, RuleSets: p.use.rules(), Connections: connections, Err: errors.Join(err, p.redirect.Damage())}
}
