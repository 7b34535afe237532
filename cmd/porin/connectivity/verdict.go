package connectivity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Outcome is how the test of a path has ended.
type Outcome struct {
	Path
	Result
}

// OK reports whether it is as it should be.
func (o Outcome) OK() bool { return (o.Error == "") != o.Denied }

// Fault is a part that keeps a path from working.
type Fault struct {
	From, To string // nodes; "" for what is no node's
	Part     string
	Detail   string
}

// The parts at fault.
const (
	PartNetwork   = "network"    // between the nodes themselves
	PartTunnel    = "tunnel"     // of pods between nodes, by VXLAN
	PartRoute     = "route"      // of pods between nodes, without a tunnel
	PartMTU       = "mtu"        // small packets pass
	PartDatapath  = "datapath"   // between the pods of one node, or from pods to a node
	PartPolicy    = "policy"     // it denies, or is not enforced
	PartKubeProxy = "kube-proxy" // addresses and ports of Services
	PartHostPort  = "host-port"
	PartDNS       = "dns" // CoreDNS
	PartOutside   = "outside"
	PartNode      = "node"  // its pods do not start
	PartProbe     = "probe" // the pod or the agent that is to try the paths does not answer
)

// facts are what is known beside the outcomes.
type facts struct {
	routing map[string]string // of nodes: "native", "vxlan" or "external"
	dnsPods int               // that are ready
	denied  map[pair]string   // why a policy denies the way from the client on a node to the server on another
}

// pair is two nodes.
type pair struct{ from, to string }

// failingPairs are the nodes between whose pods a path fails.
func failingPairs(outcomes []Outcome) (list []pair) {
	for _, o := range outcomes {
		p := pair{o.From, o.To}
		if (o.What == podToPod || o.What == podByUDP) && !o.OK() && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

type pathKey struct{ from, to, what, family string }

// faultsOf names the parts at fault. A path that must fail since a part of it does is left out.
func faultsOf(outcomes []Outcome, f facts) (list []Fault) {
	failed := map[pathKey]bool{}
	for _, o := range outcomes {
		if !o.OK() {
			failed[pathKey{o.From, o.To, o.What, o.Family}] = true
		}
	}
	fails := func(from, to, what, family string) bool { return failed[pathKey{from, to, what, family}] }
	dnsAnswers := map[string]bool{} // nodes that CoreDNS has answered without its Service
	for _, o := range outcomes {
		if o.What == dnsPod && o.OK() {
			dnsAnswers[o.From] = true
		}
	}
	noDNS := len(dnsAnswers) == 0
	tried, answered := map[pathKey]bool{}, map[string]bool{} // answered: addresses of CoreDNS
	for _, o := range outcomes {
		tried[pathKey{o.From, o.To, o.What, o.Family}] = true
		answered[o.Probe.Address] = answered[o.Probe.Address] || o.What == dnsPod && o.OK()
	}
	for _, o := range outcomes {
		if o.OK() {
			continue
		}
		part, why := "", ""
		switch o.What {
		case nodeToNode:
			part = PartNetwork
		case podToNode: // the node's answers take the way to the pods of another node
			if !fails(o.From, o.To, nodeToNode, o.Family) && (o.From == o.To || !fails(o.From, o.To, podToPod, o.Family)) {
				part = PartDatapath
			}
		case podToPod, podByUDP:
			part, why = f.podPart(o, fails, tried)
		case podLarge:
			if !fails(o.From, o.To, podToPod, o.Family) {
				part, why = PartMTU, "small packets pass, and large ones do not"
			}
		case podDenied:
			part, why = PartPolicy, "a port that a policy denies is reached"
		case nodeToPod:
			if !fails(o.From, o.To, podToPod, o.Family) && !fails(o.From, o.To, nodeToNode, o.Family) {
				part, why = PartDatapath, "pods of the node reach the pod, and the node itself does not"
			}
		case service_:
			if !fails(o.From, o.From, podToPod, o.Family) {
				part = PartKubeProxy
			}
		case nodePort, hostPort_:
			if !fails(o.From, o.To, podToNode, o.Family) && !fails(o.To, o.To, podToPod, o.Family) {
				part = map[string]string{nodePort: PartKubeProxy, hostPort_: PartHostPort}[o.What]
			}
		case dnsPod:
			switch {
			case answered[o.Probe.Address] && !tried[pathKey{o.From, o.To, podToPod, o.Family}]: // its node is not tested
				part, why = f.podPart(o, fails, tried)
			case noDNS || !fails(o.From, o.To, podToPod, o.Family) && !fails(o.From, o.To, nodeToNode, o.Family):
				part, why = PartDNS, "CoreDNS does not answer"
			}
		case dnsService:
			switch {
			case f.dnsPods == 0:
				part, why = PartDNS, "no pod of CoreDNS is ready"
			case dnsAnswers[o.From]:
				part, why = PartKubeProxy, "CoreDNS answers, and its Service does not"
			}
		case outside:
			part = PartOutside
		}
		if part != "" {
			detail := strings.Join([]string{joinNonEmpty(o.What, o.Family), cmp.Or(why, o.Error), o.Probe.Address}, ": ")
			list = append(list, Fault{From: o.From, To: o.To, Part: part, Detail: detail})
		}
	}
	return list
}

// podPart is the part at fault between two pods.
func (f facts) podPart(o Outcome, fails func(from, to, what, family string) bool, tried map[pathKey]bool) (part, why string) {
	if denied := f.denied[pair{o.From, o.To}]; denied != "" {
		return PartPolicy, denied
	}
	why = fmt.Sprintf("the nodes reach each other, and their pods do not (%s)", o.Error)
	if !tried[pathKey{o.From, o.To, nodeToNode, o.Family}] {
		why = fmt.Sprintf("the pods do not reach each other (%s); whether the nodes do was not tried", o.Error)
	}
	switch {
	case o.From == o.To:
		return PartDatapath, ""
	case fails(o.From, o.To, nodeToNode, o.Family):
		return "", "" // that is the fault
	case f.routing[o.From] == "vxlan" || f.routing[o.To] == "vxlan":
		return PartTunnel, why
	}
	return PartRoute, why
}
