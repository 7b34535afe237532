package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	v1 "porin.dev/porin/api/v1"
)

// The conformance tests of network-policy-api v0.2.0 have these cases, too, which are not here:
//
//	case                                            why
//	admin and baseline, egress to selected nodes    the agent knows no labels of nodes: a rule that selects nodes matches none (docs/policy-decisions.md)
//	any case with SCTP, through a Service           the datapath does not see what the node's translation of SCTP has done (docs/policy-decisions.md)
//
// They have no case with domain names.

// houseOf is the name of the pods of each namespace.
var houseOf = map[string]string{
	"gryffindor": "harry-potter", "slytherin": "draco-malfoy", "hufflepuff": "cedric-diggory", "ravenclaw": "luna-lovegood",
}

// houses are two pods of each namespace.
func houses() (pods []podSpec) {
	for _, namespace := range slices.Sorted(maps.Keys(houseOf)) {
		for i := range 2 {
			labels := map[string]string{"conformance-house": namespace}
			pods = append(pods, podSpec{
				namespace: namespace, name: fmt.Sprintf("%s-%d", houseOf[namespace], i), labels: labels, namespaceLabels: labels,
				ports: []v1.NamedPort{{Name: "web", Protocol: v1.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: v1.ProtocolUDP, Port: 53}},
			})
		}
	}
	return pods
}

func TestConformance(t *testing.T)         { testConformance(t, false) }
func TestConformanceServices(t *testing.T) { testConformance(t, true) }

func testConformance(t *testing.T, throughServices bool) {
	for name, f := range map[string]form{"v1alpha2": clusterNetworkPolicy, "v1alpha1": adminNetworkPolicy} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, houses())
			w.run(w.conformance(f), throughServices)
		})
	}
}

func (w *world) conformance(f form) (steps []step) {
	for _, t := range []tier{{form: f, priority: 10}, {form: f, baseline: true, priority: 10}} {
		for _, c := range conformanceCases {
			steps = append(steps, t.steps(c)...)
		}
		steps = append(steps, w.networkSteps(t)...)
	}
	return append(steps, slices.Concat(priorities(f), tiersTogether(f))...)
}

// prefixes are the addresses of the pods, of both families.
func (w *world) prefixes(pods ...string) (all []string) {
	w.Helper()
	for _, name := range pods {
		for _, six := range []bool{false, true} {
			addr := w.end(name).addr(six)
			all = append(all, netip.PrefixFrom(addr, addr.BitLen()).String())
		}
	}
	return all
}

// priorities: of two policies of a tier the one with the lower number decides first.
func priorities(f form) []step {
	denying := tier{form: f, name: "denying", priority: 50, subject: podsOf("gryffindor")}
	passing := tier{form: f, name: "passing", priority: 60, subject: podsOf("gryffindor")}
	accepting := tier{form: f, baseline: true, name: "default", priority: 10, subject: podsOf("gryffindor")}
	all := func() string {
		slytherin := podsOf("slytherin")
		return denying.both([]rule{deny(slytherin)}, []rule{deny(slytherin)}) +
			passing.both([]rule{pass(slytherin)}, []rule{pass(slytherin)}) +
			accepting.both([]rule{accept(slytherin)}, []rule{accept(slytherin)})
	}
	before := all()
	passing.priority = 40
	return []step{
		{"priorities: denied before passed on", before, []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, deniedIngress},
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, deniedEgress},
		}},
		{"priorities: passed on before denied, and accepted by the baseline", all(), []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, allowed},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, allowed},
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, allowed},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, allowed},
		}},
	}
}

// tiersTogether: connections that the tier admin passes on are for NetworkPolicy, and without one for the baseline.
func tiersTogether(f form) []step {
	const networkPolicy = `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: slytherin, namespace: gryffindor}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{namespaceSelector: {matchLabels: {conformance-house: slytherin}}}]}]
  egress: [{to: [{namespaceSelector: {matchLabels: {conformance-house: slytherin}}}]}]
`
	slytherin := labelled("slytherin")
	admin := tier{form: f, name: "admin", priority: 10, subject: labelled("gryffindor")}
	denied, passed := []rule{deny(slytherin)}, []rule{pass(slytherin)}
	baseline := tier{form: f, baseline: true, name: "default", priority: 10, subject: labelled("gryffindor")}.both(denied, denied)
	return []step{
		{"tiers: denied by admin", admin.both(denied, denied) + networkPolicy + baseline, []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, deniedIngress},
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, deniedEgress},
		}},
		{"tiers: ingress passed on to NetworkPolicy", admin.both(denied, passed) + networkPolicy + baseline, []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, allowed},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, allowed},
		}},
		{"tiers: egress passed on to NetworkPolicy, too", admin.both(passed, passed) + networkPolicy + baseline, []probe{
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, allowed},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, allowed},
		}},
		{"tiers: passed on to the baseline", admin.both(passed, passed) + baseline, []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, deniedIngress},
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, deniedEgress},
		}},
	}
}
