package policy

import (
	"net/netip"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// ErrNoRoom is why [Enforcer.Apply] fails when the kernel has no room for all that the policies say.
var ErrNoRoom = fault.New(fault.Exhausted, "the policies do not fit into the datapath's maps")

// Enforcer writes into the kernel what the engine says, and reads it back.
type Enforcer interface {
	// Apply writes what has changed since the last call that succeeded; nil stands for everything, as at first, and after
	// an error. Until the first call what previous agents wrote stays in force. locals has the local endpoints that the
	// engine knows; Apply keeps neither. After an error the kernel may have any part of the change; it is [ErrNoRoom] when
	// there is no room. It is called from one goroutine at a time, and the engine does not change during a call.
	Apply(e *engine.Engine, change *engine.Change, locals map[string]Local) error
	// Fits returns [ErrNoRoom] when the kernel has no room for what the engine says. It writes nothing, and may be called
	// during an Apply.
	Fits(e *engine.Engine, locals map[string]Local) error
	// RemoveEndpoint removes what the kernel has of an endpoint that a previous agent has told of, and that is gone. It
	// may be called during an Apply, and does nothing for an endpoint that the last Apply was told of.
	RemoveEndpoint(id uint16) error
	// Verdict reads what the kernel decides about a connection, by the policies of one of its ends: [engine.ValueDeny],
	// [engine.ValueAllow], or the number of layer 7 rules.
	Verdict(q Question) (uint32, error)
	// Layer7 returns the numbers of layer 7 rules that a program may still get from the kernel.
	Layer7() (map[uint32]bool, error)
	// Compare returns the differences between the kernel and the last Apply: none when that has failed. Engine and locals
	// are as they were then.
	Compare(e *engine.Engine, locals map[string]Local) ([]Difference, error)
}

// Difference is an entry of the kernel's that is not as the engine says.
type Difference struct {
	Kind     string // "missing", "differs" or "orphan"
	Map, Key string
	Detail   string // the actual and the expected value
}

// Question is about a connection that an endpoint of this node begins (egress), or that another one begins with it
// (ingress).
type Question struct {
	Local     Local
	Direction model.Direction
	Peer      netip.Addr // the other end
	FromNode  bool       // the other end is this node, which has begun the connection itself
	Protocol  model.Protocol
	Port      uint16
}

// Local is where the datapath has an endpoint of this node.
type Local struct {
	ID   uint16 // of the endpoint
	Link int    // index of its host end
}

// noEnforcer is for a program without a datapath.
type noEnforcer struct{}

var errNoDatapath = fault.New(fault.NotFound, "this agent has no datapath")

func (noEnforcer) Apply(*engine.Engine, *engine.Change, map[string]Local) error { return nil }

func (noEnforcer) Fits(*engine.Engine, map[string]Local) error { return nil }

func (noEnforcer) RemoveEndpoint(uint16) error { return nil }

func (noEnforcer) Compare(*engine.Engine, map[string]Local) ([]Difference, error) { return nil, nil }

func (noEnforcer) Verdict(Question) (uint32, error) { return engine.ValueDeny, errNoDatapath }

func (noEnforcer) Layer7() (map[uint32]bool, error) { return nil, nil }

func isEmpty(c engine.Change) bool {
	return len(c.Addresses)+len(c.Prefixes)+len(c.Endpoints)+len(c.Tables) == 0
}
