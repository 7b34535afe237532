package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/test/nodecheck"
)

// The namespaces of pods: of the pods that live all the time, and of the pods that come and go.
const (
	residents = "residents"
	guests    = "guests"
)

// residentNames are in the order of nodes: a to x are on the first one.
var residentNames = []string{"a", "b", "x", "c", "d"}

// podArgs is what a runtime tells of a pod.
func podArgs(namespace, name string) [][2]string {
	return [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", name}}
}

// podOf returns the CNI_ARGS of a new pod, and has the API know it, if there is one.
func (h *host) podOf(namespace, name string) [][2]string {
	if h.api != nil {
		h.api.putPod(h.node, namespace, name)
	}
	return podArgs(namespace, name)
}

// label gives a resident its name as a label, if the API does not.
func (h *host) label(t *testing.T, p nodecheck.Pod, name string) {
	t.Helper()
	if h.api != nil {
		return
	}
	api := client.New(h.node.Socket)
	defer api.Close()
	if _, err := api.UpdateEndpoint(t.Context(), "container-id:"+p.ID, v1.EndpointPatch{Labels: map[string]string{"name": name}}); err != nil {
		t.Fatal(err)
	}
}

// policies let pass what startTraffic sends, let residents reach their node, and guests nothing but nodes.
// To a node, the pods of another one are addresses.
func (w *world) policies() []byte {
	a, c := w.hosts[0].live[0], w.hosts[1].live[0]
	var nodes []netip.Addr
	for _, h := range w.hosts {
		nodes = append(nodes, h.node.IPv4, h.node.IPv6)
	}
	first := nodes[:2]
	return []byte(networkPolicy(residents, "a", fmt.Sprintf("{podSelector: {matchLabels: {name: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {name: b}}}, %s]}]}", blocks(c.IPv4, c.IPv6, first[0], first[1]))) +
		networkPolicy(residents, "b", "{podSelector: {matchLabels: {name: b}}, ingress: [{from: [{podSelector: {matchLabels: {name: a}}}], ports: [{protocol: UDP}]}]}") +
		networkPolicy(residents, "c", fmt.Sprintf("{podSelector: {matchLabels: {name: c}}, ingress: [{from: [%s], ports: [{protocol: UDP}]}]}", blocks(a.IPv4, a.IPv6))) +
		networkPolicy(guests, "all", fmt.Sprintf("{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [%s]}]}", blocks(nodes...))))
}

func networkPolicy(namespace, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name, namespace, spec)
}

func blocks(addrs ...netip.Addr) string {
	var all []string
	for _, addr := range addrs {
		all = append(all, fmt.Sprintf("{ipBlock: {cidr: %q}}", netip.PrefixFrom(addr, addr.BitLen())))
	}
	return strings.Join(all, ", ")
}

// restrict applies the policies on all nodes.
func (w *world) restrict(t *testing.T) {
	t.Helper()
	for _, h := range w.hosts {
		if err := h.apply(t.Context(), append(w.policies(), w.layer7Policies("/other")...)); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *host) apply(ctx context.Context, manifests []byte) error {
	api := client.New(h.node.Socket)
	defer api.Close()
	_, err := api.PutPolicies(ctx, manifests)
	return err
}

// changeEvery is the time between two changes of policies.
const changeEvery = 50 * time.Millisecond

// changePolicies changes, all the time, what no packet of the flows meets. It fails while there is no agent.
func (h *host) changePolicies(random *rand.Rand, stop <-chan struct{}) {
	for sleep(changeEvery, stop) {
		port, prefix := 1+random.IntN(65535), netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(random.IntN(256))}), 24+random.IntN(9))
		spec := fmt.Sprintf("{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: %q}}], ports: [{port: %d}]}]}", prefix.Masked(), port)
		selected := []string{guests, residents}[random.IntN(2)]
		if selected == residents {
			spec = strings.Replace(spec, "podSelector: {}", "podSelector: {matchLabels: {name: a}}", 1)
		}
		manifests, count := []byte(networkPolicy(selected, "changing", spec)), &h.counts.policies
		if random.IntN(2) == 0 {
			manifests, count = h.changeLayer7(random), &h.counts.layer7Policies
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if h.apply(ctx, manifests) == nil {
			count.Add(1)
		}
		cancel()
	}
}
