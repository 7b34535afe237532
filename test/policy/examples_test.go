package policy

import "testing"

// Of Kubernetes' page about network policies these facts are not here:
//
//	fact                                        why
//	a host outside calls a Service              the node's masquerade gives it the node's address (docs/policy-decisions.md)
//	SCTP through a Service                      the datapath does not see what the node's translation of SCTP has done (docs/policy-decisions.md)
//	pods in the network of their node           an agent does not attach them
//	labels of nodes, policies of other nodes    an agent knows the pods of its node (docs/policy-decisions.md)

// examplePods are the page's pods, and some that no policy is about.
func examplePods() []podSpec {
	is := func(key, value string) map[string]string { return map[string]string{key: value} }
	return []podSpec{
		{namespace: "default", name: "db", labels: is("role", "db")},
		{namespace: "default", name: "frontend", labels: is("role", "frontend")},
		{namespace: "default", name: "client", labels: is("role", "client")},
		{namespace: "default", name: "myapp", labels: is("app", "myapp")},
		{namespace: "default", name: "nginx", labels: is("app", "nginx")},
		{namespace: "default", name: "tester", labels: is("access", "true")},
		{namespace: "myproject", name: "worker", namespaceLabels: is("project", "myproject")},
		{namespace: "alice", name: "alice-client", labels: is("role", "client"), namespaceLabels: is("user", "alice")},
		{namespace: "alice", name: "alice-other", namespaceLabels: is("user", "alice")},
		{namespace: "bob", name: "bob-client", labels: is("role", "client"), namespaceLabels: is("user", "bob")},
		{namespace: "web", name: "page", namespaceLabels: is("namespace", "frontend")},
		{namespace: "logic", name: "api", namespaceLabels: is("namespace", "backend")},
	}
}

func TestExamples(t *testing.T)         { testExamples(t, false) }
func TestExamplesServices(t *testing.T) { testExamples(t, true) }

func testExamples(t *testing.T, throughServices bool) {
	w := newWorld(t, examplePods())
	w.outside("in the block", "172.17.2.1", "2001:db8:172:2::1")
	w.outside("in the exception", "172.17.1.1", "2001:db8:172:1::1")
	w.outside("in the other block", "10.0.0.1", "2001:db8:10::1")
	w.outside("in no block", "10.0.1.1", "2001:db8:10:1::1")
	w.run(examples, throughServices)
}

// networkPolicy is a manifest in the namespace default.
func networkPolicy(name, spec string) string {
	return "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + ", namespace: default}\nspec:" + spec + "\n"
}

const ofDB = `
  podSelector: {matchLabels: {role: db}}`

// The blocks of the page are of IPv4. Those of IPv6 beside them have the same sense.
var examples = []step{
	{"the first example", networkPolicy("first", ofDB+`
  policyTypes: [Ingress, Egress]
  ingress:
  - from:
    - ipBlock: {cidr: 172.17.0.0/16, except: [172.17.1.0/24]}
    - ipBlock: {cidr: "2001:db8:172::/48", except: ["2001:db8:172:1::/64"]}
    - namespaceSelector: {matchLabels: {project: myproject}}
    - podSelector: {matchLabels: {role: frontend}}
    ports: [{protocol: TCP, port: 6379}]
  egress:
  - to: [{ipBlock: {cidr: 10.0.0.0/24}}, {ipBlock: {cidr: "2001:db8:10::/64"}}]
    ports: [{protocol: TCP, port: 5978}]`), []probe{
		{"in the block", "db", "tcp", 6379, allowed},
		{"in the exception", "db", "tcp", 6379, deniedIngress},
		{"in no block", "db", "tcp", 6379, deniedIngress},
		{"worker", "db", "tcp", 6379, allowed},
		{"frontend", "db", "tcp", 6379, allowed},
		{"myapp", "db", "tcp", 6379, deniedIngress},
		{"alice-other", "db", "tcp", 6379, deniedIngress},
		{"node", "db", "tcp", 6379, allowed},
		{"in the block", "db", "tcp", 6380, deniedIngress},
		{"worker", "db", "tcp", 6380, deniedIngress},
		{"frontend", "db", "tcp", 6380, deniedIngress},
		{"frontend", "db", "udp", 6379, deniedIngress},
		{"db", "in the other block", "tcp", 5978, allowed},
		{"db", "in the other block", "tcp", 5979, deniedEgress},
		{"db", "in the other block", "udp", 5978, deniedEgress},
		{"db", "in no block", "tcp", 5978, deniedEgress},
		{"db", "frontend", "tcp", 5978, deniedEgress},
		{"frontend", "worker", "tcp", 5978, allowed},
		{"worker", "frontend", "tcp", 6379, allowed},
	}},
	{"a pod in a namespace: both selectors in one peer", networkPolicy("and", ofDB+`
  ingress: [{from: [{namespaceSelector: {matchLabels: {user: alice}}, podSelector: {matchLabels: {role: client}}}]}]`), []probe{
		{"alice-client", "db", "tcp", 80, allowed},
		{"alice-other", "db", "tcp", 80, deniedIngress},
		{"client", "db", "tcp", 80, deniedIngress},
		{"bob-client", "db", "tcp", 80, deniedIngress},
	}},
	{"a pod or a namespace: the selectors in two peers", networkPolicy("or", ofDB+`
  ingress: [{from: [{namespaceSelector: {matchLabels: {user: alice}}}, {podSelector: {matchLabels: {role: client}}}]}]`), []probe{
		{"alice-client", "db", "tcp", 80, allowed},
		{"alice-other", "db", "tcp", 80, allowed},
		{"client", "db", "tcp", 80, allowed},
		{"bob-client", "db", "tcp", 80, deniedIngress},
		{"frontend", "db", "tcp", 80, deniedIngress},
	}},
	{"deny all ingress", networkPolicy("deny-ingress", `
  podSelector: {}
  policyTypes: [Ingress]`), []probe{
		{"frontend", "db", "tcp", 80, deniedIngress},
		{"frontend", "db", "udp", 53, deniedIngress},
		{"alice-client", "db", "tcp", 80, deniedIngress},
		{"in the block", "db", "tcp", 80, deniedIngress},
		{"node", "db", "tcp", 80, allowed},
		{"db", "alice-client", "tcp", 80, allowed},
		{"db", "in no block", "tcp", 80, allowed},
		{"alice-client", "bob-client", "tcp", 80, allowed},
	}},
	{"allow all ingress, whatever else denies it", networkPolicy("deny-ingress", `
  podSelector: {}
  policyTypes: [Ingress]`) + networkPolicy("allow-ingress", `
  podSelector: {}
  ingress: [{}]
  policyTypes: [Ingress]`), []probe{
		{"frontend", "db", "tcp", 80, allowed},
		{"alice-client", "db", "udp", 53, allowed},
		{"in the block", "db", "tcp", 80, allowed},
	}},
	{"deny all egress", networkPolicy("deny-egress", `
  podSelector: {}
  policyTypes: [Egress]`), []probe{
		{"frontend", "db", "tcp", 80, deniedEgress},
		{"frontend", "alice-client", "udp", 53, deniedEgress},
		{"frontend", "in no block", "tcp", 80, deniedEgress},
		{"alice-client", "frontend", "tcp", 80, allowed},
		{"in the block", "frontend", "tcp", 80, allowed},
		{"alice-client", "bob-client", "tcp", 80, allowed},
	}},
	{"allow all egress, whatever else denies it", networkPolicy("deny-egress", `
  podSelector: {}
  policyTypes: [Egress]`) + networkPolicy("allow-egress", `
  podSelector: {}
  egress: [{}]
  policyTypes: [Egress]`), []probe{
		{"frontend", "db", "tcp", 80, allowed},
		{"frontend", "alice-client", "udp", 53, allowed},
		{"frontend", "in no block", "tcp", 80, allowed},
	}},
	{"deny all", networkPolicy("deny-all", `
  podSelector: {}
  policyTypes: [Ingress, Egress]`), []probe{
		{"frontend", "db", "tcp", 80, deniedEgress},
		{"frontend", "alice-client", "tcp", 80, deniedEgress},
		{"frontend", "in no block", "udp", 53, deniedEgress},
		{"alice-client", "frontend", "tcp", 80, deniedIngress},
		{"in the block", "frontend", "tcp", 80, deniedIngress},
		{"node", "frontend", "tcp", 80, allowed},
		{"alice-client", "bob-client", "tcp", 80, allowed},
	}},
	{"both ends must allow a connection", networkPolicy("deny-all", `
  podSelector: {}
  policyTypes: [Ingress, Egress]`) + networkPolicy("into-db", ofDB+`
  ingress: [{from: [{podSelector: {matchLabels: {role: frontend}}}]}]`) + networkPolicy("out-of-myapp", `
  podSelector: {matchLabels: {app: myapp}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {role: db}}}]}]`), []probe{
		{"frontend", "db", "tcp", 80, deniedEgress},
		{"myapp", "db", "tcp", 80, deniedIngress},
	}},
	{"a protocol", networkPolicy("sctp", ofDB+`
  ingress: [{ports: [{protocol: SCTP, port: 7777}]}]`), []probe{
		{"frontend", "db", "sctp", 7777, allowed},
		{"frontend", "db", "sctp", 7778, deniedIngress},
		{"frontend", "db", "tcp", 7777, deniedIngress},
		{"frontend", "db", "udp", 7777, deniedIngress},
	}},
	{"a range of ports", networkPolicy("range", ofDB+`
  policyTypes: [Egress]
  egress:
  - to: [{ipBlock: {cidr: 10.0.0.0/24}}, {ipBlock: {cidr: "2001:db8:10::/64"}}]
    ports: [{protocol: TCP, port: 32000, endPort: 32768}]`), []probe{
		{"db", "in the other block", "tcp", 31999, deniedEgress},
		{"db", "in the other block", "tcp", 32000, allowed},
		{"db", "in the other block", "tcp", 32767, allowed},
		{"db", "in the other block", "tcp", 32768, allowed},
		{"db", "in the other block", "tcp", 32769, deniedEgress},
		{"db", "in the other block", "udp", 32000, deniedEgress},
		{"db", "in no block", "tcp", 32000, deniedEgress},
		{"db", "frontend", "tcp", 32000, deniedEgress},
	}},
	{"several namespaces by label", networkPolicy("namespaces", `
  podSelector: {matchLabels: {app: myapp}}
  policyTypes: [Egress]
  egress: [{to: [{namespaceSelector: {matchExpressions: [{key: namespace, operator: In, values: [frontend, backend]}]}}]}]`), []probe{
		{"myapp", "page", "tcp", 80, allowed},
		{"myapp", "api", "udp", 53, allowed},
		{"myapp", "worker", "tcp", 80, deniedEgress},
		{"myapp", "frontend", "tcp", 80, deniedEgress},
		{"frontend", "worker", "tcp", 80, allowed},
	}},
	{"a namespace by name", networkPolicy("by-name", `
  podSelector: {matchLabels: {app: myapp}}
  policyTypes: [Egress]
  egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: logic}}}]}]`), []probe{
		{"myapp", "api", "tcp", 80, allowed},
		{"myapp", "page", "tcp", 80, deniedEgress},
	}},
	{"the tutorial's", networkPolicy("access-nginx", `
  podSelector: {matchLabels: {app: nginx}}
  ingress: [{from: [{podSelector: {matchLabels: {access: "true"}}}]}]`), []probe{
		{"tester", "nginx", "tcp", 80, allowed},
		{"frontend", "nginx", "tcp", 80, deniedIngress},
		{"alice-client", "nginx", "tcp", 80, deniedIngress},
		{"frontend", "db", "tcp", 80, allowed},
	}},
}
