package probe

import (
	"errors"
	"fmt"
	"slices"

	"porin.dev/porin/cells/cluster"
)

// Part is what of the way to a node is at fault.
type Part string

// The parts.
const (
	PartNode         Part = "node"          // it is off, or the network between the nodes does not reach it
	PartTunnel       Part = "tunnel"        // the node answers, and nothing comes through the tunnel to it
	PartEndpointPath Part = "endpoint-path" // the node answers, and its endpoint does not: a route, the datapath or the endpoint
	PartPolicy       Part = "policy"        // something lets one protocol through, and drops another one
	PartResponder    Part = "responder"     // the endpoint's kernel answers, and the agent in it does not, or is another one
)

// Fault says that a part is at fault.
type Fault struct {
	Part   Part
	Detail string // for people, and what to look at
}

// States are the states of a node's paths, in the order of [Paths].
type States [pathCount]State

// of returns the state of a path.
func (s *States) of(path Path) State {
	for i, p := range Paths() {
		if p == path {
			return s[i]
		}
	}
	return State{}
}

// misses reports whether the node has a health endpoint that was not probed, though the node itself was by the same
// family.
func (s *States) misses(n cluster.NodeNetwork) bool {
	for i, path := range Paths() {
		probed := s.of(Path{Node, ICMP, path.Family}).Address.IsValid()
		if path.Target == Endpoint && path.addressOf(n).IsValid() && !s[i].Address.IsValid() && probed {
			return true
		}
	}
	return false
}

// Diagnose names what is at fault on the way to a node: at most one part of each family, the one nearest to this node,
// and each part once. Nothing is at fault on a path that was not probed yet.
func Diagnose(n cluster.NodeNetwork, states *States) (faults []Fault) {
	for _, family := range cluster.Families {
		fault, ok := diagnoseFamily(n, states, family)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(faults, func(f Fault) bool { return f.Part == fault.Part }); i >= 0 {
			faults[i].Detail += "; " + fault.Detail
			continue
		}
		faults = append(faults, fault)
	}
	return faults
}

func diagnoseFamily(n cluster.NodeNetwork, states *States, family cluster.Family) (Fault, bool) {
	node := states.of(Path{Node, ICMP, family})
	ping := states.of(Path{Endpoint, ICMP, family})
	hello := states.of(Path{Endpoint, HTTP, family})
	found := func(part Part, format string, args ...any) (Fault, bool) {
		return Fault{part, family.String() + ": " + fmt.Sprintf(format, args...)}, true
	}
	reached := ping.OK() || hello.OK()
	answers := "the node answers"
	if !node.Probed() {
		answers = "the node was not asked yet"
	}
	switch {
	case hello.Failing() && isAny(hello.Err, ErrOtherNode, ErrAnswer):
		return found(PartResponder, "what answers at its health endpoint is not its agent: %v", hello.Err)
	case node.Failing() && reached:
		return found(PartPolicy, "its health endpoint answers, and the node does not: a firewall between the nodes, or on it, drops ICMP")
	case node.Failing():
		return found(PartNode, "the node does not answer ICMP: %v", node.Err)
	case ping.OK() && hello.Failing() && errors.Is(hello.Err, ErrRefused):
		return found(PartResponder, "its health endpoint answers ICMP and refuses HTTP: its agent does not run, or starts")
	case ping.OK() && hello.Failing():
		return found(PartPolicy, "its health endpoint answers ICMP and not HTTP: %v", hello.Err)
	case ping.Failing() && hello.OK():
		return found(PartPolicy, "its health endpoint answers HTTP and not ICMP: %v", ping.Err)
	case (ping.Failing() || hello.Failing()) && isTunnel(n.Routing):
		return found(PartTunnel, "%s, and nothing comes through the tunnel to its health endpoint", answers)
	case ping.Failing() || hello.Failing():
		return found(PartEndpointPath, "%s, and its health endpoint does not: see the routes to its blocks, and porin doctor there", answers)
	}
	return Fault{}, false
}

func isTunnel(mode cluster.RoutingMode) bool {
	return mode != "" && mode != cluster.RoutingNative && mode != cluster.RoutingExternal
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
