package endpoint

import (
	"time"

	v1 "porin.dev/porin/api/v1"
)

// The values that the API shows as they are.
type (
	Addresses = v1.Addresses
	Bandwidth = v1.Bandwidth
	Interface = v1.Interface
	MAC       = v1.MAC
	Pod       = v1.Pod
)

// Endpoint is what Porin manages for one attachment. It is a value: a copy stays as it was, and two can be compared
// with ==.
type Endpoint struct {
	ID        uint16 // unique on the node while the endpoint lives; 0 before it has one
	Spec      Spec
	State     State
	Addresses Addresses // as ipam gave them
	Pool      string    // that they are of; "" when another IPAM gave them
	// IPAMResult is what a delegated IPAM plugin answered besides, an encoded [IPAMResult]; "" when none was asked.
	IPAMResult string
	// Metadata is the pod's data for policies, an encoded [Metadata]; "" when none was given.
	Metadata  string    `json:",omitempty"`
	Host      Interface // in the node's namespace; the zero Interface before it is made
	Container Interface // in the container's namespace, with its index there
	MTU       int       // of both, in bytes
	Created   time.Time
	Renewed   bool `json:",omitempty"` // a later call for the same has been answered with it
}

// State is where an endpoint is in its life.
type State string

// The states, in the order of a life. An endpoint is Waiting until the admission lets its ADD begin.
const (
	Waiting       State = "waiting-for-identity"
	Queued        State = "waiting-to-regenerate"
	Regenerating  State = "regenerating"
	Ready         State = "ready"
	Restoring     State = "restoring"
	Held          State = "held" // a start left it as it was: neither restored nor removed
	Disconnecting State = "disconnecting"
	Disconnected  State = "disconnected"
	Invalid       State = "invalid"
)
