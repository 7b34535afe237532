package e2e

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// hostPort is the port of the node that leads to the container.
const hostPort = 8090

// TestHostPort: portmap runs after porin-cni, on a node with kube-proxy's rules.
func TestHostPort(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		runtime := n.portMapRuntime()
		c := testutil.NewContainer(t)
		c.Caps = map[string]any{"portMappings": []any{
			map[string]any{"hostPort": hostPort, "containerPort": backendPort, "protocol": "tcp"},
			map[string]any{"hostPort": hostPort, "containerPort": backendPort, "protocol": "udp"},
		}}
		e := podOf(c, runtime.MustAdd(t, c)).party("e")
		n.forEachFamily(func(t *testing.T, six bool) {
			respond(t, e.Namespace, e.name, e.at(six, backendPort))
			for _, c := range n.hostPortCases(e, six) {
				for _, protocol := range protocols {
					t.Run(strings.ReplaceAll(c.name+" "+protocol, " ", "_"), func(t *testing.T) { c.run(t, protocol) })
				}
			}
		})
		if err := runtime.Check(c); err != nil {
			t.Error(err)
		}
		n.nothingDropped()
		runtime.MustDel(t, c)
		if conn, err := openDialog(n.outside.Namespace, "tcp", 0, n.node1.at(false, hostPort), answerTime); err == nil {
			conn.Close()
			t.Error("the host port is open after DEL")
		}
	})
}

// portMapRuntime is one of the first node whose network has portmap, which writes its rules in the form that kube-proxy has.
func (n *serviceNodes) portMapRuntime() *testutil.CNI {
	n.Helper()
	node := n.one.node
	node.InstallPlugin(n, filepath.Join(testutil.Build(n), "porin-cni"))
	node.InstallPlugin(n, testutil.MetaPlugin(n, "portmap"))
	portMap := map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true, "backend": n.mode.String()}
	return node.NewCNI(n, testutil.CNIConfig{Bin: node.PluginDir, Network: "hostports", Chained: []any{portMap}})
}

func (n *serviceNodes) hostPortCases(e party, six bool) []serviceCase {
	var own netip.Addr
	at, node1 := n.node1.at(six, hostPort), n.node1.addr(six)
	cases := []serviceCase{
		{"pod of the node", n.a, at, map[string]netip.Addr{"e": own}},
		{"pod to itself", e, at, map[string]netip.Addr{"e": node1}},
		{"node", n.node1, at, map[string]netip.Addr{"e": node1}},
		{"pod of another node", n.d, at, map[string]netip.Addr{"e": own}},
		{"another node", n.node2, at, map[string]netip.Addr{"e": own}},
		{"outside", n.outside, at, map[string]netip.Addr{"e": own}},
	}
	if !six { // the kernel has no such thing for ::1
		loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), hostPort)
		cases = append(cases, serviceCase{"loopback of the node", n.node1, loopback, map[string]netip.Addr{"e": node1}})
	}
	return cases
}
