package link

import "porin.dev/porin/internal/fault"

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
