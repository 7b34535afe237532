package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/internal/task"
)

const (
	checkInterval = 30 * time.Second
	checkRetry    = 5 * time.Second // after a round that failed; it doubles up to checkInterval
	checkTries    = 3
	checkTimeout  = 2 * time.Second // of one probe
	checkPause    = time.Second
	// roundTimeout bounds a round: making an endpoint may have to wait for a store.
	roundTimeout = time.Minute
)

// errHeld is why an endpoint is replaced that the agent's start held.
var errHeld = errors.New("the agent's start could not explain it, or not bring it back")

// Keeper has the node have its health endpoint.
type Keeper struct {
	cfg       Config
	log       *slog.Logger
	manager   endpointmanager.Manager
	lookup    endpointmanager.Lookup
	local     *LocalEndpoint
	transport probe.Transport
	namespace boundNamespace
	responder *responder
	task      *task.Task
	pause     time.Duration // between the tries of a check

	recreated time.Time // of the rounds, as the responder is

	mu     sync.Mutex // guards the fields below
	status Status
}

// Status is what became of the last check.
type Status struct {
	Checked   time.Time // when it ended; zero before the first
	Err       error
	Recreated uint64 // how often the endpoint was replaced because it failed
}

// Parts are what a keeper is made of.
type Parts struct {
	Manager   endpointmanager.Manager
	Lookup    endpointmanager.Lookup
	Local     *LocalEndpoint // which the manager has as a subscriber
	Transport probe.Transport
}

// NewKeeper returns a keeper. The rounds of [Keeper.Task] begin when everything is restored.
func NewKeeper(cfg Config, log *slog.Logger, p Parts) *Keeper {
	k := &Keeper{
		cfg: cfg, log: log, manager: p.Manager, lookup: p.Lookup, local: p.Local, transport: p.Transport,
		namespace: boundNamespace{cfg.namespacePath()}, responder: newResponder(cfg.Node, log), pause: checkPause,
	}
	k.task = task.Every(log, task.Round{
		Name: "health-endpoint", Interval: checkInterval, Retry: checkRetry, MaxRetry: checkInterval, Run: k.round,
	})
	p.Local.deleted.Store(k.task.Trigger)
	return k
}

// Task is the rounds.
func (k *Keeper) Task() *task.Task { return k.task }

// Stop closes the responder's socket. The endpoint stays, for the next agent: see adr/0032.
func (k *Keeper) Stop(ctx context.Context) error {
	k.responder.stop(ctx)
	return nil
}

// Status returns what became of the last check.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

func (k *Keeper) updateStatus(change func(*Status)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.status)
}

func (k *Keeper) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	err := k.ensure(ctx)
	k.updateStatus(func(s *Status) { s.Checked, s.Err = time.Now(), err })
	return err
}

// ensure makes the endpoint unless it is there, and replaces it when it fails; or removes it.
func (k *Keeper) ensure(ctx context.Context) error {
	ep, err := k.find()
	switch {
	case !k.cfg.Endpoint:
		return k.remove(ctx, ep, err)
	case errors.Is(err, endpointmanager.ErrNotFound):
		if ep, err = k.create(ctx); err != nil {
			return err
		}
	case err != nil:
		return err
	case ep.State == endpoint.Held: // no pod depends on it, and a link alone does not tell its kind
		return k.recreate(ctx, ep, errHeld)
	case ep.Spec.Kind != endpoint.KindHealth:
		return fmt.Errorf("attachment %s is that of the health endpoint, and somebody else has made one: delete it with porin endpoint delete %d", Attachment(), ep.ID)
	case ep.State != endpoint.Ready:
		return fmt.Errorf("endpoint %d is %s", ep.ID, ep.State)
	}
	err = k.check(ctx, ep)
	if err == nil || errors.Is(err, unix.EPERM) || ctx.Err() != nil || time.Since(k.recreated) < checkInterval {
		return err
	}
	return k.recreate(ctx, ep, err)
}

func (k *Keeper) find() (endpoint.Endpoint, error) {
	return k.lookup.Get(endpoint.ByAttachment(Attachment()))
}

// create makes the endpoint. After a deletion that kept its addresses it has them again.
func (k *Keeper) create(ctx context.Context) (_ endpoint.Endpoint, err error) {
	file, err := k.namespace.make()
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.namespace.remove())
		}
	}()
	namespace, err := endpoint.OpenNamespace(file)
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	spec := endpoint.Spec{Attachment: Attachment(), Kind: endpoint.KindHealth, NetNS: k.namespace.path}
	return k.manager.Create(ctx, spec, namespace)
}

// recreate replaces the endpoint, with its addresses.
func (k *Keeper) recreate(ctx context.Context, ep endpoint.Endpoint, why error) error {
	k.recreated = time.Now()
	k.log.Warn("health endpoint fails, making it anew", "endpoint", ep.ID, "error", why)
	k.updateStatus(func(s *Status) { s.Recreated++ })
	k.responder.stop(ctx)
	result := k.manager.Delete(ctx, Attachment(), endpoint.DeleteConfig{NoIPRelease: true})
	if err := errors.Join(result.Errors...); err != nil {
		return err
	}
	ep, err := k.create(ctx)
	if err != nil {
		return err
	}
	return k.check(ctx, ep)
}

// remove removes an endpoint that is not to be, and frees its addresses.
func (k *Keeper) remove(ctx context.Context, ep endpoint.Endpoint, found error) error {
	if errors.Is(found, endpointmanager.ErrNotFound) {
		return k.namespace.remove()
	}
	if found != nil || ep.Spec.Kind != endpoint.KindHealth && ep.State != endpoint.Held {
		return found
	}
	result := k.manager.Delete(ctx, Attachment(), endpoint.DeleteConfig{})
	return errors.Join(append(result.Errors, k.namespace.remove())...)
}

// check has the responder answer in the endpoint's namespace, and asks it from the node, by each address and both
// protocols.
func (k *Keeper) check(ctx context.Context, ep endpoint.Endpoint) (err error) {
	if err := k.serve(ctx, ep); err != nil {
		return err
	}
	for try := range checkTries {
		if try > 0 {
			if task.Sleep(ctx, k.pause) != nil {
				return err
			}
		}
		if err = k.probe(ctx, ep); err == nil || errors.Is(err, unix.EPERM) {
			break
		}
	}
	return err
}

func (k *Keeper) serve(ctx context.Context, ep endpoint.Endpoint) error {
	file, cookie, err := k.namespace.open()
	if err != nil {
		return err
	}
	defer file.Close()
	if cookie != ep.Spec.NetNSCookie {
		return fmt.Errorf("%w: that at %s is another one", errNoNamespace, k.namespace.path)
	}
	return k.responder.serve(ctx, file, cookie, ep.Addresses.List())
}

func (k *Keeper) probe(ctx context.Context, ep endpoint.Endpoint) error {
	addresses := ep.Addresses.List()
	errs := make([]error, len(addresses))
	var probes sync.WaitGroup
	for i, addr := range addresses {
		probes.Go(func() { errs[i] = k.probeAddress(ctx, addr) })
	}
	probes.Wait()
	return errors.Join(errs...)
}

func (k *Keeper) probeAddress(ctx context.Context, addr netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := k.transport.Ping(ctx, addr)
	if errors.Is(err, probe.ErrNoSource) { // nor can a kubelet reach pods by that family: the endpoint is whole
		return nil
	}
	if err != nil {
		return fmt.Errorf("ICMP to %s: %w", addr, err)
	}
	node, _, err := k.transport.Hello(ctx, addr)
	if err == nil && node != k.cfg.Node {
		err = probe.ErrOtherNode
	}
	if err != nil {
		return fmt.Errorf("HTTP to %s: %w", addr, err)
	}
	return nil
}
