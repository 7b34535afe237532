package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
)

// Step limits an endpoint's bandwidth. It comes after link and before datapath.
type Step struct {
	remover link.Remover
	log     *slog.Logger

	mu   sync.RWMutex    // guards the field below
	node *netlink.Handle // nil unless started
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
	if s.node == nil {
		s.node, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	return err
}

// Stop leaves the limits in force.
func (s *Step) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		s.node.Close()
		s.node = nil
	}
	return nil
}

func (s *Step) kernel() (kernel, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.node == nil {
		return kernel{}, ErrNotStarted
	}
	return kernel{s.node}, nil
}

// Name implements endpoint.Step.
func (s *Step) Name() string { return "bandwidth" }

// Attach sets the limits that the endpoint asks for.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	if !ep.Spec.IsLimited() {
		return ep, nil
	}
	k, err := s.kernel()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = k.set(ep)
	}
	if err != nil {
		return ep, fmt.Errorf("limit the bandwidth of %s: %w", ep.Host.Name, err)
	}
	return ep, nil
}

// set makes the limits what they should be, whatever they were.
func (k kernel) set(ep endpoint.Endpoint) error {
	limits := ep.Spec.Bandwidth
	if limits.IngressRate != 0 {
		if err := k.setBucket(ep.Host.Index, ingressOf(ep)); err != nil {
			return err
		}
	}
	if limits.EgressRate == 0 {
		return nil
	}
	device, err := k.makeDevice(ep)
	if err != nil {
		return err
	}
	if err := k.startDevice(device, egressOf(ep)); err != nil {
		return err
	}
	return k.redirect(ep.Host.Index, device)
}

func ingressOf(ep endpoint.Endpoint) bucket {
	return bucketOf(ep.Spec.Bandwidth.IngressRate, ep.Spec.Bandwidth.IngressBurst, ep.MTU)
}

func egressOf(ep endpoint.Endpoint) bucket {
	return bucketOf(ep.Spec.Bandwidth.EgressRate, ep.Spec.Bandwidth.EgressBurst, ep.MTU)
}

// Detach removes the endpoint's device. Objects on the host end go with it.
func (s *Step) Detach(ctx context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	if ep.Spec.Bandwidth.EgressRate == 0 && !cfg.Sweep {
		return nil
	}
	return s.removeDevice(ctx, nameOf(ep.Spec.Attachment))
}

func (s *Step) removeDevice(ctx context.Context, name string) error {
	k, err := s.kernel()
	if err != nil {
		return err
	}
	device, err := k.find(name)
	if errors.Is(err, ErrForeign) || err == nil && device == nil {
		return nil
	}
	if err != nil {
		return err
	}
	return s.remover.Remove(ctx, device.Attrs().Index)
}

// Restore sets the limits again when they are not as they should be.
func (s *Step) Restore(ctx context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	if !ep.Spec.IsLimited() {
		return nil, nil
	}
	k, err := s.kernel()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	differences, err := k.compare(ep)
	if err != nil || len(differences) == 0 {
		return nil, err
	}
	for _, d := range differences {
		replaced = append(replaced, d.String())
	}
	if err := k.set(ep); err != nil {
		return replaced, fmt.Errorf("limit the bandwidth of %s: %w", ep.Host.Name, err)
	}
	return replaced, nil
}

// Find completes the endpoints found with the limit of what they send, so that their Detach removes the device.
func (s *Step) Find(_ context.Context, found []endpoint.Endpoint) ([]endpoint.Endpoint, error) {
	k, err := s.kernel()
	if err != nil {
		return nil, err
	}
	devices, err := k.devices()
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
		b, _, err := k.bucketAt(index)
		if err != nil {
			return nil, err
		}
		found[i].Spec.Bandwidth.EgressRate = max(b.bits(ep.MTU), 1) // without a bucket, too
	}
	return found, nil
}

// Prune removes the devices of no endpoint.
func (s *Step) Prune(ctx context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	k, err := s.kernel()
	if err != nil {
		return nil, err
	}
	devices, err := k.devices()
	if err != nil {
		return nil, err
	}
	keep := devicesOf(live)
	var errs []error
	for _, device := range devices {
		attrs := device.Attrs()
		if keep[attrs.Name] {
			continue
		}
		if err := s.remover.Remove(ctx, attrs.Index); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, subjectOf(attrs))
	}
	return removed, errors.Join(errs...)
}

// devicesOf are the names of the devices that endpoints should have.
func devicesOf(endpoints []endpoint.Endpoint) map[string]bool {
	names := map[string]bool{}
	for _, ep := range endpoints {
		if ep.Spec.Bandwidth.EgressRate != 0 {
			names[nameOf(ep.Spec.Attachment)] = true
		}
	}
	return names
}

// subjectOf tells a device from a later one of its name.
func subjectOf(attrs *netlink.LinkAttrs) string {
	return fmt.Sprintf("device %s, index %d", attrs.Name, attrs.Index)
}
