package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/reconcile"
)

// Step limits an endpoint's bandwidth. It comes after link and before datapath.
type Step struct {
	remover link.Remover
	log     *slog.Logger

	mu        sync.RWMutex    // guards the fields below
	node      *netlink.Handle // nil unless started
	namespace *os.File        // of node
}

var (
	_ endpoint.Step   = (*Step)(nil)
	_ endpoint.Finder = (*Step)(nil)
	_ endpoint.Pruner = (*Step)(nil)
)

// New returns a step that is not started.
func New(remover link.Remover, log *slog.Logger) *Step { return &Step{remover: remover, log: log} }

// Start opens a socket in the network namespace of the calling thread, in which the limits are.
func (s *Step) Start(context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		return nil
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	if s.node, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return errors.Join(err, namespace.Close())
	}
	s.namespace = namespace
	return nil
}

// Stop leaves the limits in force.
func (s *Step) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return nil
	}
	s.node.Close()
	err := s.namespace.Close()
	s.node, s.namespace = nil, nil
	return err
}

func (s *Step) limits() (limits, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.node == nil {
		return limits{}, ErrNotStarted
	}
	return limits{kernel{s.node}, s.namespace, s.remover}, nil
}

// Name implements endpoint.Step.
func (s *Step) Name() string { return "bandwidth" }

// Attach sets the limits that the endpoint asks for.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	if !ep.Spec.IsLimited() {
		return ep, nil
	}
	l, err := s.limits()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = l.Update(ep)
	}
	if err != nil {
		return ep, fmt.Errorf("limit the bandwidth of %s: %w", ep.Host.Name, err)
	}
	return ep, nil
}

// Detach removes the endpoint's device. Objects on the host end go with it.
func (s *Step) Detach(ctx context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	if ep.Spec.Bandwidth.EgressRate == 0 && !cfg.Sweep {
		return nil
	}
	l, err := s.limits()
	if err != nil {
		return err
	}
	return l.remove(ctx, nameOf(ep.Spec.Attachment))
}

// Restore sets the limits again when they are not as they should be.
func (s *Step) Restore(ctx context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	if !ep.Spec.IsLimited() {
		return nil, nil
	}
	l, err := s.limits()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if replaced, err = reconcile.Restore(ep, l); err != nil {
		return replaced, fmt.Errorf("limit the bandwidth of %s: %w", ep.Host.Name, err)
	}
	return replaced, nil
}

// Find completes the endpoints found with the limit of what they send, so that their Detach removes the device.
func (s *Step) Find(_ context.Context, found []endpoint.Endpoint) ([]endpoint.Endpoint, error) {
	l, err := s.limits()
	if err != nil {
		return nil, err
	}
	devices, err := l.devices()
	if err != nil {
		return nil, err
	}
	indexes := map[string]int{}
	for _, device := range devices {
		indexes[device.Attrs().Name] = device.Attrs().Index
	}
	for i, ep := range found {
		index := indexes[nameOf(ep.Spec.Attachment)]
		if index == 0 {
			continue
		}
		b, _, err := l.bucketAt(index)
		if err != nil {
			return nil, err
		}
		found[i].Spec.Bandwidth.EgressRate = max(b.bits(ep.MTU), 1) // without a bucket, too
	}
	return found, nil
}

// Prune removes the devices of no endpoint.
func (s *Step) Prune(_ context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	l, err := s.limits()
	if err != nil {
		return nil, err
	}
	return reconcile.Prune(func() []endpoint.Endpoint { return live }, l)
}

var (
	// ErrKernel is returned for an endpoint with a limit when the kernel cannot keep it.
	ErrKernel = fault.WithHint(fault.New(fault.Internal, "the kernel lacks what a limit of bandwidth needs"),
		"load the kernel's module, or ask for no limit: of a pod of Kubernetes, remove the annotations kubernetes.io/ingress-bandwidth and egress-bandwidth")
	// ErrForeign is returned when another program has made a link of the name of an endpoint's device.
	ErrForeign = fault.New(fault.Conflict, "not a device of Porin's")
	// ErrNotStarted is returned before Start and after Stop.
	ErrNotStarted = fault.New(fault.Unavailable, "the limits of bandwidth are not running")
)
