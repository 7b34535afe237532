package crash

import (
	"fmt"
	"net/netip"

	"porin.dev/porin/api/v1/client"
)

// The namespaces of pods: of the pods that live all the time, and of the pods that come and go.
const (
	residents = "residents"
	guests    = "guests"
)

// podArgs is what a runtime tells of a pod.
func podArgs(namespace, name string) [][2]string {
	return [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", name}}
}

// Each new pod has tables of its own, and a class in the tables of the pods that live.
const ingressPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: residents, namespace: residents}
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: guests}}}], ports: [{port: 80}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: guests, namespace: guests}
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: residents}}}], ports: [{port: 8080}]}]}
`

// egressPolicy lets pods that come reach their node alone. While there is one, the node's other devices have a program.
func egressPolicy(node ...netip.Addr) string {
	text := ""
	for _, addr := range node {
		text += fmt.Sprintf("{ipBlock: {cidr: %q}}, ", netip.PrefixFrom(addr, addr.BitLen()))
	}
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: egress, namespace: guests}\n" +
		"spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [" + text + "]}]}\n"
}

// restrict applies policies.
func (s *scene) restrict(manifests string) {
	s.t.Helper()
	api := client.New(s.node.Socket)
	defer api.Close()
	if _, err := api.PutPolicies(s.t.Context(), []byte(manifests)); err != nil {
		s.t.Fatal(err)
	}
}

// confined is the operation with pods whose egress is restricted, too.
func confined(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		s.restrict(egressPolicy(s.node.IPv4, s.node.IPv6))
		return of(s)
	}
}
