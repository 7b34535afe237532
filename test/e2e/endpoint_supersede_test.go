package e2e

import (
	"net/netip"
	"slices"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// hasHostLink reports whether the node has the host end of the container.
func (r *rig) hasHostLink(c *testutil.Container) bool {
	r.Helper()
	return slices.Contains(r.node.LinkNames(r), v1.HostInterfaceName(c.ID, c.IfName))
}

// alone checks that the container has the node's only endpoint in that place, with its address, and is reached.
func (r *rig) alone(when string, all int, p pod) {
	r.Helper()
	list := r.endpoints()
	i := slices.IndexFunc(list, func(ep v1.Endpoint) bool { return ep.ContainerID == p.ID })
	if len(list) != all || i < 0 || list[i].Addresses.IPv4 != p.ipv4 || list[i].State != "ready" {
		r.Errorf("%s: endpoints %+v, want %d, and %.12s with %s among them", when, list, all, p.ID, p.ipv4)
	}
	for _, addr := range []netip.Addr{p.ipv4, p.ipv6} {
		if err := testutil.Ping(r.node.Namespace, addr, reach); err != nil {
			r.Errorf("%s: %v", when, err)
		}
	}
}

func TestSupersedeSandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	witness := r.pod()
	older := r.named("demo", "web")
	newer := r.named("demo", "web") // and the runtime has not deleted the older one
	r.alone("after the second ADD", 2, newer)
	if r.hasHostLink(older.Container) || newer.ipv4 == older.ipv4 {
		t.Errorf("the older container has its link still, or the newer its address %s", older.ipv4)
	}
	for _, pool := range r.usage().Pools {
		for _, used := range pool.Ranges {
			if used.Used != 2 || used.Quarantined != 1 {
				t.Errorf("%s: %+v, want 2 in use and 1 in quarantine", used.Prefix, used)
			}
		}
	}
	traffic := r.pingPong(witness, newer, newer.ipv4)
	for _, when := range []string{"after the late DEL", "after another one, by the next agent"} {
		r.cni.MustDel(t, older.Container)
		r.alone(when, 2, newer)
		r.agent.Restart(t)
	}
	r.agent.Kill(t)
	r.cni.MustDel(t, older.Container) // on record
	r.agent.Start(t)
	r.alone("after a DEL that the agent has missed", 2, newer)
	traffic.end()
	if traffic.lost > 0 || traffic.there < 100 {
		t.Errorf("lost %d of %d datagrams", traffic.lost, traffic.there)
	}
	r.cni.MustDel(t, newer.Container)
	r.cni.MustDel(t, witness.Container)
	r.nothingLeft()
}

func TestSupersedeLateADD(t *testing.T) {
	r := newRig(t)
	older := testutil.NewContainer(t)
	older.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "demo"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_UID", "u-web"}}
	late := r.hold(nil, addOf(older))
	newer := r.named("demo", "web")
	err := late.goOn()
	failedAs(t, err, codeTryAgainLater)
	failedWith(t, err, "a newer ADD has taken its place")
	r.alone("after the late ADD", 1, newer)
	if r.hasHostLink(older) {
		t.Error("the late ADD has left its link")
	}
	r.cni.MustDel(t, older)
	r.cni.MustDel(t, newer.Container)
	r.nothingLeft()
}
