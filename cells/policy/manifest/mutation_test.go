package manifest

import (
	"math/rand/v2"
	"testing"
)

// TestReadObjectMutated reads 10,000 objects of each kind with random faults in their bytes, and a good one afterwards.
func TestReadObjectMutated(t *testing.T) {
	for kind, good := range map[string]string{
		"NetworkPolicy":                  `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"shop"},"spec":{"podSelector":{},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"a"}}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],"ports":[{"port":80,"endPort":90}]}]}}`,
		"CiliumNetworkPolicy":            `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p","namespace":"shop"},"spec":{"endpointSelector":{},"egress":[{"toEndpoints":[{"matchLabels":{"app":"a"}}],"toPorts":[{"ports":[{"port":"80","protocol":"TCP"}]}]}]}}`,
		"CiliumClusterwideNetworkPolicy": `{"apiVersion":"cilium.io/v2","kind":"CiliumClusterwideNetworkPolicy","metadata":{"name":"p"},"specs":[{"endpointSelector":{},"ingressDeny":[{"fromEntities":["world"]}]},{"endpointSelector":{},"ingress":[{}]}]}`,
		"ClusterNetworkPolicy":           `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"p"},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"action":"Deny","from":[{"namespaces":{}}]}]}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for range 10_000 {
				_, _ = ReadObject(mutate(random, good))
			}
			if m, faults := ReadObject([]byte(good)); len(faults) > 0 || m.Policy.ID.Kind != kind {
				t.Errorf("%v, faults %q", m.Policy.ID, faults)
			}
		})
	}
}

// mutate replaces, deletes and repeats some of the bytes.
func mutate(random *rand.Rand, text string) []byte {
	const bytes = `{}[]":,0a-/.\ `
	data := []byte(text)
	for range 1 + random.IntN(4) {
		at := random.IntN(len(data))
		end := min(len(data), at+1+random.IntN(20))
		switch random.IntN(3) {
		case 0:
			data[at] = bytes[random.IntN(len(bytes))]
		case 1:
			data = append(data[:at:at], data[end:]...)
		case 2:
			data = append(data[:end:end], data[at:]...)
		}
	}
	return data
}
