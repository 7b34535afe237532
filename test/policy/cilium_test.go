package policy

import "testing"

// TestCilium has the features of Cilium's policies that Kubernetes' do not have, on layers 3 and 4.
func TestCilium(t *testing.T)         { testCilium(t, false) }
func TestCiliumServices(t *testing.T) { testCilium(t, true) }

func testCilium(t *testing.T, throughServices bool) {
	w := newWorld(t, examplePods())
	w.outside("in the block", "172.17.2.1", "2001:db8:172:2::1")
	w.outside("in the exception", "172.17.1.1", "2001:db8:172:1::1")
	w.run(ciliumExamples, throughServices)
}

func ciliumPolicy(name, spec string) string {
	return "---\napiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: " + name + ", namespace: default}\nspec:" + spec + "\n"
}

func ciliumClusterPolicy(name, spec string) string {
	return "---\napiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: " + name + "}\nspec:" + spec + "\n"
}

const ciliumOfDB = `
  endpointSelector: {matchLabels: {"k8s:role": db}}`

var ciliumExamples = []step{
	{"endpoints, of the policy's namespace and of others", ciliumPolicy("endpoints", ciliumOfDB+`
  ingress:
  - fromEndpoints:
    - matchLabels: {role: frontend}
    - matchLabels: {io.kubernetes.pod.namespace: bob, role: client}
    - matchLabels: {io.cilium.k8s.namespace.labels.project: myproject}
    toPorts: [{ports: [{port: "6379", protocol: TCP}]}]`), []probe{
		{"frontend", "db", "tcp", 6379, allowed},
		{"bob-client", "db", "tcp", 6379, allowed},
		{"worker", "db", "tcp", 6379, allowed},
		{"frontend", "db", "tcp", 6380, deniedIngress},
		{"frontend", "db", "udp", 6379, deniedIngress},
		{"client", "db", "tcp", 6379, deniedIngress},
		{"alice-client", "db", "tcp", 6379, deniedIngress},
		{"in the block", "db", "tcp", 6379, deniedIngress},
		{"node", "db", "tcp", 6379, allowed},
		{"db", "frontend", "tcp", 6379, allowed},
	}},
	{"an empty rule denies all", ciliumPolicy("nothing", ciliumOfDB+`
  egress: [{}]`), []probe{
		{"db", "frontend", "tcp", 80, deniedEgress},
		{"db", "in the block", "udp", 53, deniedEgress},
		{"frontend", "db", "tcp", 80, allowed},
	}},
	{"ports without peers", ciliumPolicy("ports", ciliumOfDB+`
  ingress: [{toPorts: [{ports: [{port: "80", endPort: 81}]}]}]`), []probe{
		{"in the block", "db", "tcp", 80, allowed},
		{"alice-client", "db", "udp", 81, allowed},
		{"frontend", "db", "tcp", 82, deniedIngress},
	}},
	{"the world is no pod, and the cluster is", ciliumPolicy("entities", ciliumOfDB+`
  ingress: [{fromEntities: [world]}]
  egress: [{toEntities: [cluster]}]`), []probe{
		{"in the block", "db", "tcp", 80, allowed},
		{"frontend", "db", "tcp", 80, deniedIngress},
		{"db", "frontend", "tcp", 80, allowed},
		{"db", "alice-client", "udp", 53, allowed},
		{"db", "in the block", "tcp", 80, deniedEgress},
	}},
	{"a CIDR is outside of the cluster", ciliumPolicy("cidr", ciliumOfDB+`
  egress:
  - toCIDR: [0.0.0.0/0, "::/0"]
    toPorts: [{ports: [{port: "443", protocol: TCP}]}]
  - toCIDRSet: [{cidr: 172.17.0.0/16, except: [172.17.1.0/24]}, {cidr: "2001:db8:172::/48", except: ["2001:db8:172:1::/64"]}]`), []probe{
		{"db", "in the exception", "tcp", 443, allowed},
		{"db", "in the exception", "tcp", 80, deniedEgress},
		{"db", "in the block", "tcp", 80, allowed},
		{"db", "frontend", "tcp", 443, deniedEgress},
	}},
	{"who is denied is denied, whatever else allows it", networkPolicy("allow", ofDB+`
  ingress: [{}]`) + ciliumClusterPolicy("deny", `
  endpointSelector: {matchLabels: {role: db}}
  ingressDeny: [{fromEndpoints: [{matchLabels: {role: client}}], toPorts: [{ports: [{port: "80", protocol: TCP}]}]}]`), []probe{
		{"client", "db", "tcp", 80, deniedIngress},
		{"bob-client", "db", "tcp", 80, deniedIngress},
		{"client", "db", "tcp", 81, allowed},
		{"frontend", "db", "tcp", 80, allowed},
		{"in the block", "db", "tcp", 80, allowed},
	}},
	{"a denial without a default", ciliumClusterPolicy("deny", `
  endpointSelector: {}
  enableDefaultDeny: {egress: false}
  egressDeny: [{toEntities: [world], toPorts: [{ports: [{port: "25", protocol: TCP}]}]}]`), []probe{
		{"db", "in the block", "tcp", 25, deniedEgress},
		{"alice-client", "in the block", "tcp", 25, deniedEgress},
		{"db", "frontend", "tcp", 25, allowed},
		{"db", "in the block", "tcp", 80, allowed},
	}},
}
