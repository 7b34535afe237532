package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nl"
)

// Remover deletes an interface of the node. It returns when the kernel says that it is gone, or when ctx ends: it will
// go then, too. One that is not there is a success.
type Remover interface {
	Remove(ctx context.Context, index int) error
}

// Step is the link's part in an endpoint's life. Attach needs the addresses of the endpoint: it comes after ipam.
type Step struct {
	log *slog.Logger
	mtu MTU

	mu      sync.RWMutex    // guards the fields below
	node    *netlink.Handle // nil unless started
	deleter *deleter
}

var (
	_ endpoint.Step     = (*Step)(nil)
	_ endpoint.Surveyor = (*Step)(nil)
	_ endpoint.Finder   = (*Step)(nil)
	_ endpoint.Pruner   = (*Step)(nil)
	_ endpoint.Renewer  = (*Step)(nil)
)

// MTU is the default MTU of a pod; 0 is the kernel's default.
type MTU func() int

// New returns a step that is not started. A nil mtu is the kernel's default.
func New(mtu MTU, log *slog.Logger) *Step {
	if mtu == nil {
		mtu = func() int { return 0 }
	}
	return &Step{log: log, mtu: mtu}
}

// Start opens the sockets, in the network namespace of the calling thread: the links of the step are in that namespace.
func (s *Step) Start(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		return nil
	}
	node, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("start links: %w", err)
	}
	deleter, err := openDeleter(s.log)
	if err != nil {
		node.Close()
		return fmt.Errorf("start links: %w", err)
	}
	s.node, s.deleter = node, deleter
	return nil
}

// Stop waits for links that are being deleted.
func (s *Step) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return nil
	}
	err := s.deleter.close()
	s.node.Close()
	s.node, s.deleter = nil, nil
	return err
}

func (s *Step) handle() (*netlink.Handle, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.node == nil {
		return nil, ErrNotStarted
	}
	return s.node, nil
}

// Name implements endpoint.Step.
func (s *Step) Name() string { return "link" }

// Attach makes the pair, unless ep has one, and sets the container's end up. The host end stays down.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	if namespace == nil {
		return ep, ErrNoNamespace
	}
	node, err := s.handle()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && ep.Host.Index == 0 {
		ep, err = s.createPair(ctx, node, ep, namespace)
	}
	if err != nil {
		return ep, explain(err)
	}
	end, err := namespace.Netlink().LinkByName(ep.Spec.Attachment.IfName)
	if err != nil {
		return ep, fmt.Errorf("get %s in the container: %w", ep.Spec.Attachment.IfName, err)
	}
	ep.Container.Index, ep.MTU = end.Attrs().Index, end.Attrs().MTU
	return ep, explain(configure(ep, namespace))
}

// Renew writes the new start time on the host end, for a DEL without an agent.
func (s *Step) Renew(_ context.Context, ep endpoint.Endpoint) error {
	node, err := s.handle()
	if err != nil {
		return err
	}
	return node.LinkSetAlias(nl.LinkAt(ep.Host.Index), aliasOf(ep))
}

// Detach deletes the pair. The container's namespace is not entered: it may be gone, and its end goes with the host
// end.
func (s *Step) Detach(ctx context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	node, err := s.handle()
	if err != nil {
		return err
	}
	l, err := findHostEnd(node, ep)
	if errors.Is(err, ErrNoLink) || errors.Is(err, ErrForeign) {
		l, err = findRenamed(node, ep)
	}
	if err != nil || l == nil { // its own link is gone
		return err
	}
	return s.Remove(ctx, l.Attrs().Index)
}

// Remove implements [Remover].
func (s *Step) Remove(ctx context.Context, index int) error {
	s.mu.RLock()
	deleter := s.deleter
	s.mu.RUnlock()
	if deleter == nil {
		return ErrNotStarted
	}
	return deleter.remove(ctx, index)
}

// explain says what to do about a refusal of the kernel.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: run the agent as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN", err)
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EBUSY), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return shortOfResources(err)
	}
	return err
}

// The faults of an endpoint's link.
var (
	// ErrNoLink is returned when the kernel has no interface of that index or name.
	ErrNoLink = fault.New(fault.NotFound, "no such host interface")
	// ErrForeign is returned for an interface that is not the host end of the attachment.
	ErrForeign = fault.New(fault.Invalid, "not the host interface of this attachment")
	// ErrNameTaken is returned when the container has an interface of the requested name that Porin did not make.
	ErrNameTaken = fault.New(fault.Conflict, "the container already has an interface of this name")
	// ErrNoNamespace is returned for a creation without the descriptor of the container's network namespace.
	ErrNoNamespace = fault.New(fault.Invalid, "the request has no descriptor of the container's network namespace (SCM_RIGHTS)")
	// ErrNotStarted is returned before Start and after Stop.
	ErrNotStarted = fault.New(fault.Unavailable, "the agent's links are not running")
	// ErrKernelIPv6 is returned when an endpoint has an IPv6 address and the kernel no IPv6.
	ErrKernelIPv6 = fault.New(fault.Internal, "the kernel lacks IPv6 (ipv6.disable=1?): give this node no IPv6 range")
)

// shortOfResources gives a kind to a refusal that may pass.
func shortOfResources(err error) error { return fault.Wrap(fault.Unavailable, err) }
