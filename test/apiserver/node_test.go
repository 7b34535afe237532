package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// node is a node with an agent that has a token of its own, and a runtime.
type node struct {
	*testing.T
	*cluster
	machine *testutil.Node
	agent   *testutil.Agent
	cni     *testutil.CNI
}

// newNode starts an agent on a cluster of its own. The agent's requests go through a proxy that delays watches, unless
// delay is 0.
func newNode(t *testing.T, delay time.Duration) *node {
	t.Helper()
	n := newMachine(t)
	server := ""
	if delay > 0 {
		server = n.delayed(delay)
	}
	n.startAgent(server)
	return n
}

// newMachine is newNode without an agent.
func newMachine(t *testing.T) *node {
	t.Helper()
	testutil.Root(t)
	machine := testutil.NewNode(t)
	n := &node{T: t, cluster: newCluster(t, apiserver.Start(t, machine.Fabric)), machine: machine}
	n.admin.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: shop}}}")
	n.cni = machine.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t)})
	return n
}

// startAgent starts the agent, with a server of its kubeconfig other than the API server unless that is "".
func (n *node) startAgent(server string, flags ...string) {
	n.Helper()
	n.agent = n.machine.StartAgent(n, testutil.Build(n), append(flags, "--kubeconfig="+n.Agent(n, n.machine.Name, server).Kubeconfig)...)
}

// tryCreate creates or changes a pod of the node, and returns its UID.
func (n *node) tryCreate(name string, metadata, spec map[string]any) (uid string, err error) {
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": "shop", "name": name},
		"spec":     map[string]any{"nodeName": n.machine.Name, "containers": []any{map[string]any{"name": "a", "image": "none"}}},
	}
	for key, value := range metadata {
		pod["metadata"].(map[string]any)[key] = value
	}
	for key, value := range spec {
		pod["spec"].(map[string]any)[key] = value
	}
	text, err := yaml.Marshal(pod)
	if err != nil {
		return "", err
	}
	objects, err := n.admin.TryApply(n.Context(), string(text))
	if err != nil {
		return "", err
	}
	return string(objects[0].GetUID()), nil
}

// create is tryCreate of a pod with labels.
func (n *node) create(name string, labels map[string]any) (uid string) {
	n.Helper()
	uid, err := n.tryCreate(name, map[string]any{"labels": labels}, nil)
	if err != nil {
		n.Fatal(err)
	}
	return uid
}

func (n *node) delete(name string) {
	n.Helper()
	n.admin.Delete(n, "/api/v1/namespaces/shop/pods/"+name)
}

// asPod is a container of a pod.
func asPod(c *testutil.Container, name, uid string) *testutil.Container {
	c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", uid}}
	return c
}

// attach attaches a container of a pod.
func (n *node) attach(name, uid string) (*testutil.Container, *types100.Result) {
	n.Helper()
	c := asPod(testutil.NewContainer(n), name, uid)
	return c, n.cni.MustAdd(n, c)
}

// locked denies all that pods with this label send.
const locked = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: locked, namespace: shop}
spec: {podSelector: {matchLabels: {locked: "yes"}}, policyTypes: [Egress]}
`

func isLocked() map[string]any { return map[string]any{"locked": "yes"} }
func isOpen() map[string]any   { return map[string]any{"locked": "no"} }

// sink is a pod that nothing keeps from receiving. It counts packets by what is in them.
type sink struct {
	addrs []netip.AddrPort

	mu   sync.Mutex // guards the field below
	seen map[string]int
}

const sinkPort = 7777

func (n *node) newSink() *sink {
	n.Helper()
	s := &sink{seen: map[string]int{}}
	c, result := n.attach("sink", n.create("sink", nil))
	var reading sync.WaitGroup
	var sockets []net.PacketConn
	for _, ip := range result.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		at := netip.AddrPortFrom(addr.Unmap(), sinkPort)
		socket := n.socket(c, at.String())
		s.addrs, sockets = append(s.addrs, at), append(sockets, socket)
		reading.Go(func() {
			for text := make([]byte, 100); ; {
				size, _, err := socket.ReadFrom(text)
				if err != nil {
					return
				}
				s.mu.Lock()
				s.seen[string(text[:size])]++
				s.mu.Unlock()
			}
		})
	}
	n.Cleanup(func() {
		for _, socket := range sockets {
			_ = socket.Close()
		}
		reading.Wait()
	})
	return s
}

// from is how many packets of a pod have come.
func (s *sink) from(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

func (n *node) socket(c *testutil.Container, addr string) (socket net.PacketConn) {
	n.Helper()
	err := c.Do(func() (err error) {
		socket, err = net.ListenPacket("udp", addr)
		return err
	})
	if err != nil {
		n.Fatal(err)
	}
	return socket
}

// knock sends packets with the name to the sink all the time, also before the container is attached, until ctx ends.
func (n *node) knock(ctx context.Context, running *sync.WaitGroup, c *testutil.Container, name string, to *sink) {
	n.Helper()
	socket := n.socket(c, ":0")
	running.Go(func() {
		defer socket.Close()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			for _, addr := range to.addrs {
				_, _ = socket.WriteTo([]byte(name), net.UDPAddrFromAddrPort(addr)) // there may be no route yet, or a policy
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
}

// sends reports whether packets of a container reach the sink: all families, or none. It waits until that is so as
// wanted.
func (n *node) sends(c *testutil.Container, to *sink, want bool) {
	n.Helper()
	socket := n.socket(c, ":0")
	defer socket.Close()
	attempt := 0
	testutil.Eventually(n, func() error {
		for _, addr := range to.addrs {
			attempt++
			name := fmt.Sprintf("%.8s-%d", c.ID, attempt)
			_, _ = socket.WriteTo([]byte(name), net.UDPAddrFromAddrPort(addr))
			passed := testutil.Poll(200*time.Millisecond, func() error {
				if to.from(name) == 0 {
					return errors.New("no packet")
				}
				return nil
			}) == nil
			if passed != want {
				return fmt.Errorf("a packet to %s passes: %t, want %t", addr, passed, want)
			}
		}
		return nil
	})
}
