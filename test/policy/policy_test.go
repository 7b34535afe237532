// Package policy proves network policies with real packets: containers of one node, an agent, and policies as
// Kubernetes has them.
//
//	conformance_test.go    the cases of the conformance tests of network-policy-api v0.2.0
//	examples_test.go       the examples of Kubernetes' page about network policies
//
// A client and a server, both of the test, try to exchange some bytes: directly, and through a Service, in both
// families. The drop counters show a denial: the test does not wait for an answer that must not come.
package policy

import (
	"net/netip"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}

// step is a state of the policies, and what follows from it.
type step struct {
	name     string
	policies string // manifests of all that there are
	probes   []probe
}

// probe is a connection, and what becomes of it.
type probe struct {
	from, to, protocol string
	port               uint16
	want               verdict
}

// run tries the probes of each step, directly or through Services, in both families. Before there are policies all of
// them are allowed.
func (w *world) run(steps []step, throughServices bool) {
	w.Helper()
	if throughServices {
		w.addServices(steps)
	}
	tried := map[verdict]int{}
	for _, s := range steps {
		for _, p := range s.probes {
			p.want = allowed
			w.try("without policies", p, throughServices, tried)
		}
	}
	for _, s := range steps {
		w.apply(s.policies)
		for _, p := range s.probes {
			w.try(s.name, p, throughServices, tried)
		}
	}
	w.Logf("through Services %v, SCTP of the kernel %v: %v", throughServices, kernelHasSCTP(), tried)
}

func (w *world) try(when string, p probe, throughService bool, tried map[verdict]int) {
	w.Helper()
	for _, six := range []bool{false, true} {
		a := attempt{world: w, from: w.end(p.from), to: w.end(p.to), protocol: p.protocol, port: p.port, six: six}
		a.dialed = netip.AddrPortFrom(a.to.addr(six), p.port)
		if throughService {
			if p.protocol == "sctp" || !w.routesToServices(a.from) {
				continue
			}
			a.dialed = w.serviceAt(a.to, p.protocol, p.port, six)
		}
		got, err := a.outcome()
		if err != nil || got != p.want {
			w.Errorf("%s: %s to %s by %s, port %d, at %s: %s, %v; want %s", when, p.from, p.to, p.protocol, p.port, a.dialed, got, err, p.want)
		}
		tried[got]++
	}
}
