package policy

import (
	"context"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// Proxy applies layer 7 rules to connections that the datapath redirects to it. Such a connection comes with the number
// of its rules, the value of the row that accepts it. With a number that was not prepared, or was released, the proxy
// lets nothing through.
type Proxy interface {
	// Supports returns why the proxy cannot apply such rules, nil if it can. A policy with others is refused.
	Supports(rules model.Layer7) error
	// Prepare returns when the proxy has the rules under their numbers, beside all that it has: before any row has the
	// numbers. It returns an error soon after ctx ends, and may then have any of them. It may be called concurrently, and
	// again with the same rules. While it runs, changes of policies may wait for it for a while: it must not wait for one.
	Prepare(ctx context.Context, rules map[uint32]model.Layer7) error
	// Release says that no row has the numbers any more, and no program will redirect with them. Whether Prepare has
	// succeeded does not matter. It does not block.
	Release(numbers []uint32)
	// Healthy returns why connections that go through the proxy get no further now, or not as they should; nil when they
	// do. It does not block.
	Healthy() error
	// Changed says that the datapath may decide otherwise about connections that the proxy has open: the proxy reads the
	// rows for each of them again. It does not block, and may be called during Prepare.
	Changed()
}

// errNoProxy is why layer 7 rules are refused by an agent without proxy.
var errNoProxy = fault.New(fault.Invalid, "this agent has no proxy, which would apply rules for HTTP and DNS: it refuses policies that have some")

// noProxy is for a program without proxy.
type noProxy struct{}

func (noProxy) Supports(model.Layer7) error { return errNoProxy }

func (noProxy) Prepare(context.Context, map[uint32]model.Layer7) error { return errNoProxy }

func (noProxy) Release([]uint32) {}

func (noProxy) Healthy() error { return nil }

func (noProxy) Changed() {}
