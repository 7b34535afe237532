package kubernetes

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/internal/testutil"
)

func nodeObjectOf(name, uid string, podCIDRs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Labels: map[string]string{"zone": "a"}},
		Spec:       corev1.NodeSpec{PodCIDRs: podCIDRs},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
		}},
	}
}

// TestOwnNode has a Node get podCIDRs, go, and come again with another UID and others, with a restart after each.
func TestOwnNode(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	server := kubernetestest.New(scheme, kubernetestest.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Kind: "Node"})
	web := httptest.NewServer(server)
	defer web.Close()
	client, err := NewClient(Config{Kubeconfig: kubernetestest.Kubeconfig(t, web.URL)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	path := filepath.Join(t.TempDir(), "node.json")
	open := func() *OwnNode {
		n, err := newOwnNode(client, "n1", path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	server.Put(nodeObjectOf("other", "o", "10.9.0.0/24"))
	known := Node{Name: "n1", UID: "u1", Labels: map[string]string{"zone": "a"}, InternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	first := known
	first.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
	gone := first
	gone.Deleted = true
	again := known
	again.UID, again.Former, again.PodCIDRs = "u2", first.PodCIDRs, []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24")}
	bad := known
	bad.UID, bad.Former, bad.Invalid = "u2", append(first.PodCIDRs, again.PodCIDRs...), []string{"10.1.0.0"}
	for _, step := range []struct {
		name string
		do   func()
		want Node
		err  string
	}{
		{"no Node yet", func() {}, Node{}, "not known"},
		{"without podCIDRs", func() { server.Put(nodeObjectOf("n1", "u1")) }, known, "--allocate-node-cidrs"},
		{"with a podCIDR", func() { server.Put(nodeObjectOf("n1", "u1", "10.1.0.0/24")) }, first, ""},
		{"deleted", func() { server.Delete("nodes", "", "n1") }, gone, "was deleted"},
		{"created again", func() { server.Put(nodeObjectOf("n1", "u2", "10.2.0.0/24")) }, again, ""},
		{"bad", func() { server.Put(nodeObjectOf("n1", "u2", "10.1.0.0")) }, bad, "bad spec.podCIDRs"},
	} {
		n := open()
		n.task.Start(nil)
		step.do()
		testutil.Eventually(t, func() error {
			got, _ := n.value.Get()
			if diff := cmp.Diff(step.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.IgnoreUnexported(Node{}), cmpopts.IgnoreFields(Node{}, "NotReady")); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
		if err := n.task.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		away := open()
		if cidrs, _ := away.PodCIDRs(); len(cidrs.Now) > 0 && cidrs.Err == nil {
			t.Errorf("%s: after a restart %v counts at once, want it to wait for the API server", step.name, cidrs.Now)
		}
		away.useSaved()
		for what, one := range map[string]*OwnNode{"": n, " after a restart without the API server": away} {
			if cidrs, _ := one.PodCIDRs(); (cidrs.Err == nil) != (step.err == "") || cidrs.Err != nil && !strings.Contains(cidrs.Err.Error(), step.err) {
				t.Errorf("%s%s: %v, want an error with %q", step.name, what, cidrs.Err, step.err)
			}
		}
	}
	n := open()
	for name, want := range map[string]bool{"other": true, "n1": false, "none": false} {
		if has, err := n.HasPodCIDR(t.Context(), name, netip.MustParsePrefix("10.9.0.0/24")); has != want || err != nil {
			t.Errorf("Node %s has the podCIDR: %t, %v, want %t", name, has, err, want)
		}
	}
}
