package e2e

import (
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/internal/testutil"
)

// object creates or changes the Node of the server's node.
func (s *apiServer) object(uid string, podCIDRs ...string) {
	s.Put(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.node.Name, UID: types.UID(uid)}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: s.node.IPv4.String()}, {Type: corev1.NodeInternalIP, Address: s.node.IPv6.String()}}},
	})
}

var errGivenOut = errors.New("an address was given out although the Node was deleted")

// TestKubernetesNode: pods have addresses of their Node's podCIDRs, also when it gets them late, and after a restart
// without the API server. The podCIDR of a Node that was deleted goes to another one at once, while its pods run on.
func TestKubernetesNode(t *testing.T) {
	t.Parallel()
	fabric := testutil.NewLAN(t)
	one, two, three := fabric.NewNode(t), fabric.NewNode(t), fabric.NewNode(t)
	api := newAPIServer(t, one)
	onTwo, onThree := api.on(two), api.on(three)
	api.namespace("shop", nil)
	api.pod("web", "web")
	api.pod("more", "web")
	onTwo.pod("db", "db")
	onThree.pod("late", "late")
	start := func(on *apiServer) *rig {
		return rigOn(t, on.node, append([]string{"--store=kubernetes", "--ipam-pod-cidr="}, on.flags...)...)
	}
	api.object("u1")
	onTwo.object("u2", "10.72.2.0/24", "fd00:72:2::/64")
	first, second := start(api), start(onTwo)
	_, err := first.cni.Add(asPod(t, "web", "u-web"))
	denied(t, err, "no spec.podCIDRs")

	api.object("u1", "10.72.1.0/24", "fd00:72:1::/64")
	c := &nodeGroup{TB: t, nodes: []*rig{first, second}}
	web, db := first.named("shop", "web"), second.named("shop", "db")
	if !netip.MustParsePrefix("10.72.1.0/24").Contains(web.ipv4) || !netip.MustParsePrefix("fd00:72:1::/64").Contains(web.ipv6) {
		t.Errorf("the pod has %s and %s, want addresses of the Node's podCIDRs", web.ipv4, web.ipv6)
	}
	c.waitForMesh([]pod{web, db})

	api.stop()
	first.agent.Restart(t)
	c.waitForMesh([]pod{web, db})
	api.listen()

	api.Delete("nodes", "", one.Name)
	testutil.Eventually(t, func() error {
		c := asPod(t, "more", "u-more")
		if _, err := first.cni.Add(c); err != nil {
			denied(t, err, "was deleted")
			return nil
		}
		first.cni.MustDel(t, c)
		return errGivenOut
	})
	c.waitForMesh([]pod{web, db})
	onThree.object("u3", "10.72.1.0/24", "fd00:72:1::/64") // the controller manager gives it to another node
	third := start(onThree)
	late := third.named("shop", "late")
	for _, addr := range []netip.Addr{late.ipv4, late.ipv6} {
		c.waitForPing(db.Namespace, addr)
		c.waitForPing(late.Namespace, map[bool]netip.Addr{true: db.ipv4, false: db.ipv6}[addr.Is4()])
	}
	c.waitForPing(one.Namespace, web.ipv4) // it keeps its address on its node

	api.object("u4", "10.72.4.0/24", "fd00:72:4::/64") // the kubelet registers again
	more := first.named("shop", "more")
	if !netip.MustParsePrefix("10.72.4.0/24").Contains(more.ipv4) {
		t.Errorf("the pod has %s, want an address of the new Node's podCIDR", more.ipv4)
	}
	first.cni.MustDel(t, web.Container) // the other node's pod has its address
	(&nodeGroup{TB: t, nodes: []*rig{first, second, third}}).waitForMesh([]pod{more, db, late})
}
