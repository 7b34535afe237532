package bandwidth

import "porin.dev/porin/internal/fault"

var (
	// ErrKernel is returned for an endpoint with a limit when the kernel cannot keep it.
	ErrKernel = fault.WithHint(fault.New(fault.Internal, "the kernel lacks what a limit of bandwidth needs"),
		"load the kernel's module, or ask for no limit: of a pod of Kubernetes, remove the annotations kubernetes.io/ingress-bandwidth and egress-bandwidth")
	// ErrForeign is returned when another program has made a link of the name of an endpoint's device.
	ErrForeign = fault.New(fault.Conflict, "not a device of Porin's")
	// ErrNotStarted is returned before Start and after Stop.
	ErrNotStarted = fault.New(fault.Unavailable, "the limits of bandwidth are not running")
)
