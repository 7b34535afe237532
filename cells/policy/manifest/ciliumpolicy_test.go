package manifest_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

const ciliumHead = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: db, namespace: shop}\nspec:\n"

func namespaceIs(name string) model.Selector {
	return model.Selector{label("kubernetes.io/metadata.name", name)}
}

func pods(p model.Pods) model.Peer { return model.Peer{Pods: &p} }

func outside(cidr string, except ...string) model.Peer {
	b := &model.Block{CIDR: netip.MustParsePrefix(cidr), OutsideOnly: true}
	for _, text := range except {
		b.Except = append(b.Except, netip.MustParsePrefix(text))
	}
	return model.Peer{Block: b}
}

func TestReadCiliumNetworkPolicy(t *testing.T) {
	got := read(t, ciliumHead+`
  endpointSelector: {matchLabels: {"k8s:role": db, any:app: mysql}}
  description: who reaches the database
  ingressDeny:
  - fromEntities: [unmanaged]
  ingress:
  - fromEndpoints:
    - matchLabels: {app: web, "k8s:io.cilium.k8s.policy.serviceaccount": shop}
    - matchLabels: {"k8s:io.kubernetes.pod.namespace": tools, app: backup}
    - matchExpressions: [{key: io.cilium.k8s.namespace.labels.team, operator: In, values: [b, a]}]
    - {}
    toPorts:
    - ports: [{port: "3306", protocol: tcp}, {port: "4000", endPort: 4010}]
    - ports: [{port: Metrics, protocol: UDP}, {port: dns}, {port: "0", protocol: SCTP}]
  - toPorts: [{ports: [{port: "22", protocol: TCP}]}]
  - {}
  - fromEndpoints: []
    toPorts: [{ports: [{port: "23", protocol: TCP}]}]
  egress:
  - toCIDR: [192.0.2.7, "2001:db8::/32"]
  - toCIDRSet: [{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}]
  - toEntities: [world, world-ipv6, cluster, none]
    toPorts: [{ports: [{port: "0"}]}]
status: {conditions: []}
`)
	want := []model.Policy{{
		ID: model.PolicyID{Kind: "CiliumNetworkPolicy", Namespace: "shop", Name: "db"}, Tier: model.TierNetworkPolicy,
		Subject: model.Pods{Namespace: "shop", Labels: model.Selector{label("app", "mysql"), label("role", "db")}},
		Ingress: &model.Rules{
			{Name: "ingressDeny[0]", Action: model.Deny, Peers: []model.Peer{{Kinds: model.KindsOf(model.Unmanaged)}}},
			{
				Name: "ingress[0]",
				Peers: []model.Peer{
					pods(model.Pods{Namespace: "shop", Labels: model.Selector{label("app", "web"), label("io.cilium.k8s.policy.serviceaccount", "shop")}}),
					pods(model.Pods{Namespaces: namespaceIs("tools"), Labels: model.Selector{label("app", "backup")}}),
					pods(model.Pods{Namespaces: model.Selector{{Key: "team", Operator: model.In, Values: []string{"a", "b"}}}}),
					pods(model.Pods{Namespace: "shop"}),
				},
				Ports: []model.Port{
					{Protocol: model.TCP, First: 3306, Last: 3306},
					{Protocol: model.TCP, First: 4000, Last: 4010}, {Protocol: model.UDP, First: 4000, Last: 4010}, {Protocol: model.SCTP, First: 4000, Last: 4010},
					{Protocol: model.UDP, Name: "metrics"}, {Name: "dns"}, {Protocol: model.SCTP, Last: 65535},
				},
			},
			{Name: "ingress[1]", Peers: []model.Peer{{Any: true}}, Ports: []model.Port{{Protocol: model.TCP, First: 22, Last: 22}}},
			{Name: "ingress[2]"}, // matches nothing
			{Name: "ingress[3]", Ports: []model.Port{{Protocol: model.TCP, First: 23, Last: 23}}},
		},
		Egress: &model.Rules{
			{Name: "egress[0]", Peers: []model.Peer{outside("192.0.2.7/32"), outside("2001:db8::/32")}},
			{Name: "egress[1]", Peers: []model.Peer{outside("10.0.0.0/8", "10.1.0.0/16")}},
			{Name: "egress[2]", Peers: []model.Peer{
				{Kinds: model.KindsOf(model.World)}, outside("::/0"),
				{Kinds: model.KindsOf(model.Host, model.RemoteNode, model.Health, model.Unmanaged, model.Init, model.Pod)},
			}},
		},
	}}
	if diff := cmp.Diff(want, got, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

func TestReadCiliumClusterwideNetworkPolicy(t *testing.T) {
	got := read(t, `
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: dns}
spec:
  endpointSelector: {matchLabels: {io.kubernetes.pod.namespace: shop}}
  enableDefaultDeny: {egress: false, ingress: true}
  egress:
  - toEndpoints: [{matchLabels: {k8s-app: kube-dns}}]
`)
	want := []model.Policy{{
		ID: model.PolicyID{Kind: "CiliumClusterwideNetworkPolicy", Name: "dns"}, Tier: model.TierNetworkPolicy,
		Subject:    model.Pods{Namespaces: namespaceIs("shop")},
		Ingress:    &model.Rules{},
		Egress:     &model.Rules{{Name: "egress[0]", Peers: []model.Peer{pods(model.Pods{Labels: model.Selector{label("k8s-app", "kube-dns")}})}}},
		EgressOpen: true,
	}}
	if diff := cmp.Diff(want, got, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// TestCiliumDirections: a policy affects the directions that it has rules for, and denies by default there, unless it
// says otherwise.
func TestCiliumDirections(t *testing.T) {
	type directions struct{ ingress, ingressOpen, egress, egressOpen bool }
	for body, want := range map[string]directions{
		"{ingress: [{}]}":                          {ingress: true},
		"{ingressDeny: [{fromEntities: [world]}]}": {ingress: true},
		"{egress: []}":                             {},
		"{enableDefaultDeny: {egress: true}}":      {egress: true},
		"{enableDefaultDeny: {egress: false}}":     {},
		"{ingress: [{}], egressDeny: [{}], enableDefaultDeny: {ingress: false}}": {ingress: true, ingressOpen: true, egress: true},
	} {
		p := read(t, strings.TrimSuffix(ciliumHead, "\n")+" "+strings.Replace(body, "{", "{endpointSelector: {}, ", 1))[0]
		if got := (directions{p.Ingress != nil, p.IngressOpen, p.Egress != nil, p.EgressOpen}); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
}

func TestCiliumDomains(t *testing.T) {
	got := read(t, ciliumHead+`  endpointSelector: {}
  egress:
  - toFQDNs: [{matchName: WWW.Example.org.}, {matchPattern: "**.example.com"}, {matchPattern: "*"}]
    toPorts: [{ports: [{port: "443", protocol: TCP}]}]
  - toFQDNs: []
    toPorts: [{ports: [{port: "80", protocol: TCP}]}]
`)[0]
	port := func(n uint16) []model.Port { return []model.Port{{Protocol: model.TCP, First: n, Last: n}} }
	want := &model.Rules{
		{Name: "egress[0]", Ports: port(443), Peers: []model.Peer{
			{Domain: model.DNSRule{Name: "www.example.org"}}, {Domain: model.DNSRule{Pattern: "**.example.com"}}, {Domain: model.DNSRule{Pattern: "*"}},
		}},
		{Name: "egress[1]", Ports: port(80)}, // no peer
	}
	if diff := cmp.Diff(want, got.Egress, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestCiliumCluster: a selector that is true for this cluster, by the name default, is as if it was not there.
func TestCiliumCluster(t *testing.T) {
	policy := func(selector string) string {
		return ciliumHead + "  endpointSelector: " + selector + "\n  ingress: [{fromEndpoints: [" + selector + "]}]\n"
	}
	want := read(t, policy("{matchLabels: {app: a}}"))
	for _, selector := range []string{
		"{matchLabels: {app: a, io.cilium.k8s.policy.cluster: default}}", "{matchLabels: {app: a, k8s:io.cilium.k8s.policy.cluster: default}}",
		"{matchLabels: {app: a}, matchExpressions: [{key: io.cilium.k8s.policy.cluster, operator: Exists}]}",
		"{matchLabels: {app: a}, matchExpressions: [{key: 'k8s:io.cilium.k8s.policy.cluster', operator: In, values: [default, other]}]}",
	} {
		if diff := cmp.Diff(want, read(t, policy(selector)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", selector, diff)
		}
	}
}

// TestCiliumNamed: rules that name objects of the Kubernetes API.
func TestCiliumNamed(t *testing.T) {
	named := func(r model.Reference, except ...netip.Prefix) []model.Peer {
		return []model.Peer{{Named: &model.Named{Reference: r, Except: except}}}
	}
	for body, want := range map[string][]model.Peer{
		"toEntities: [kube-apiserver]":                                    named(model.Reference{Kind: model.KubeAPIServer}),
		"toEntities: [ingress]":                                           nil,
		"toServices: [{k8sService: {serviceName: db}}]":                   named(model.Reference{Kind: model.Service, Namespace: "shop", Name: "db"}),
		"toServices: [{k8sService: {serviceName: db, namespace: other}}]": named(model.Reference{Kind: model.Service, Namespace: "other", Name: "db"}),
		"toServices: [{k8sServiceSelector: {selector: {matchLabels: {k8s:a: b}, matchExpressions: [{key: c, operator: Exists}]}}}]": named(model.Reference{Kind: model.Service, Namespace: "shop", Labels: "a=b,c"}),
		"toCIDRSet: [{cidrGroupRef: office, except: [10.0.0.1/32]}]":                                                                named(model.Reference{Kind: model.CIDRGroup, Name: "office"}, netip.MustParsePrefix("10.0.0.1/32")),
		"toCIDRSet: [{cidrGroupSelector: {matchLabels: {a: b}}}]":                                                                   named(model.Reference{Kind: model.CIDRGroup, Labels: "a=b"}),
	} {
		got := read(t, ciliumHead+"  endpointSelector: {}\n  egress: [{"+body+"}]\n")
		if diff := cmp.Diff(want, (*got[0].Egress)[0].Peers, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

// TestCiliumICMPs: types are echo requests or others, and what comes with a connection needs none.
func TestCiliumICMPs(t *testing.T) {
	any := []model.Peer{{Any: true}}
	echo := func(protocol model.Protocol, number uint16) model.Port {
		return model.Port{Protocol: protocol, First: number, Last: number}
	}
	for body, want := range map[string]model.Rule{
		"ingress: [{icmps: [{fields: [{type: 8}, {family: IPv6, type: '128'}]}]}]":                          {Name: "ingress[0]", Peers: any, Ports: []model.Port{echo(model.ICMP, 8), echo(model.ICMPv6, 128)}},
		"ingress: [{icmps: [{fields: [{type: EchoRequest}]}, {fields: [{type: DestinationUnreachable}]}]}]": {Name: "ingress[0]", Peers: any, Ports: []model.Port{echo(model.ICMP, 8)}},
		"ingress: [{icmps: [{}]}]": {Name: "ingress[0]"},
		"ingress: [{fromEntities: [all], icmps: [{fields: [{type: EchoReply}]}]}]": {Name: "ingress[0]"},
		"ingressDeny: [{icmps: [{fields: [{type: 13}]}]}]":                         {Name: "ingressDeny[0]", Action: model.Deny, Peers: any, Ports: []model.Port{{Protocol: model.ICMP}}},
		"ingressDeny: [{icmps: [{fields: [{type: 8}]}]}]":                          {Name: "ingressDeny[0]", Action: model.Deny, Peers: any, Ports: []model.Port{echo(model.ICMP, 8), {Protocol: model.ICMP}}},
		"ingress: [{fromEntities: [all], icmps: []}]":                              {Name: "ingress[0]", Peers: any},
	} {
		got := read(t, ciliumHead+"  endpointSelector: {}\n  "+body+"\n")
		if diff := cmp.Diff(&model.Rules{want}, got[0].Ingress, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

// TestCiliumOtherCluster: pods of another cluster are not known, so a rule that accepts them matches no pod.
func TestCiliumOtherCluster(t *testing.T) {
	got := read(t, ciliumHead+"  endpointSelector: {}\n  ingress: [{fromEndpoints: [{matchLabels: {io.cilium.k8s.policy.cluster: other}}, {matchLabels: {app: a}}]}, {fromEndpoints: [{matchLabels: {io.cilium.k8s.policy.cluster: other}}], toPorts: [{ports: [{port: '80', protocol: TCP}]}]}]\n")
	want := &model.Rules{
		{Name: "ingress[0]", Peers: []model.Peer{pods(model.Pods{Namespace: "shop", Labels: model.Selector{label("app", "a")}})}},
		{Name: "ingress[1]", Ports: []model.Port{{Protocol: model.TCP, First: 80, Last: 80}}},
	}
	if diff := cmp.Diff(want, got[0].Ingress, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestCiliumOneFault: a field that is refused is told once.
func TestCiliumOneFault(t *testing.T) {
	for _, body := range []string{
		"fromEndpoints: [{matchLabels: {io.cilium.k8s.policy.other: 'a'}}]", "fromEndpoints: [{matchLabels: {'reserved:host': ''}}]",
		"toEndpoints: [{matchLabels: {'reserved:host': ''}}]", "toServices: [{k8sService: {serviceName: a}}]", "toFQDNs: [{}]", "fromCIDRSet: [{cidrGroupRef: a b}]", "fromEntities: [aws]", "fromEndpoints: [{matchLabels: {io.cilium.k8s.policy.cluster: 'a b'}}]",
		"toPorts: [{ports: [{port: '80'}], rules: {kafka: [{}]}}]", "fromGroups: [{}]", "fromEndpoints: [{matchExpressions: [{key: 'cidr:10.0.0.0/8', operator: Exists}]}]",
	} {
		_, err := manifest.Read([]byte(ciliumHead + "  endpointSelector: {}\n  ingress: [{" + body + "}]\n"))
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one fault", body, err)
		}
	}
}

// TestCiliumRefusedOnce: what people have in their policies and is not supported gives one fault, which names the
// field.
func TestCiliumRefusedOnce(t *testing.T) {
	for text, want := range map[string]string{
		"{nodeSelector: {}, ingress: [{}]}": "spec.nodeSelector",
		"{endpointSelector: {}, egress: [{toPorts: [{ports: [{port: '443'}], terminatingTLS: {}, originatingTLS: {}}]}]}": "spec.egress[0].toPorts[0].terminatingTLS",
		"{endpointSelector: {}, egress: [{toPorts: [{ports: [{port: '443'}], originatingTLS: {}}]}]}":                     "spec.egress[0].toPorts[0].originatingTLS",
	} {
		data, err := yaml.YAMLToJSON([]byte("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: a}\nspec: " + text + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, faults := manifest.ReadObject(data); len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want+":") {
			t.Errorf("%s: faults %q, want one of %s", text, faults, want)
		}
	}
}

func TestCiliumRefused(t *testing.T) {
	rule := func(body string) string { return ciliumHead + "  endpointSelector: {}\n  ingress: [" + body + "]\n" }
	deny := func(body string) string {
		return ciliumHead + "  endpointSelector: {}\n  ingressDeny: [" + body + "]\n"
	}
	egress := func(body string) string { return ciliumHead + "  endpointSelector: {}\n  egress: [" + body + "]\n" }
	port := func(body string) string { return rule("{toPorts: [{ports: [" + body + "]}]}") }
	for text, want := range map[string]string{
		"apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: a}\n":                          "spec: Required",
		"apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: a}\nspecs: [{}]\n":             "specs[0].endpointSelector: Required",
		ciliumHead + "  endpointSelector: {}\nspecs: [{endpointSelector: {}}]\n":                              "specs: Forbidden: together with spec",
		"apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: a, namespace: b}\n": "metadata.namespace: Forbidden",
		"apiVersion: cilium.io/v2alpha1\nkind: CiliumNetworkPolicy\nmetadata: {name: a}\n":                    "not a kind of policy that is known here",
		ciliumHead + "  ingress: [{}]\n":    "spec.endpointSelector: Required",
		ciliumHead + "  nodeSelector: {}\n": "spec.nodeSelector: Forbidden",
		ciliumHead + "  endpointSelector: {matchLabels: {io.kubernetes.pod.namespace: other}}\n":                               "spec.endpointSelector: Forbidden: a CiliumNetworkPolicy is for pods of its own namespace",
		ciliumHead + "  endpointSelectors: {}\n":                                                                               `unknown field "spec.endpointSelectors"`,
		rule("{toEndpoints: [{}]}"):                                                                                            "spec.ingress[0].toEndpoints: Forbidden: not in rules for ingress",
		rule("{fromEndpoints: [{}], fromEntities: [world]}"):                                                                   "spec.ingress[0]: Forbidden: fromEndpoints and fromEntities together",
		rule("{fromEndpoints: [{matchLabels: {reserved:host: ''}}]}"):                                                          "reserved ones are entities",
		deny("{fromEndpoints: [{matchLabels: {io.cilium.k8s.policy.cluster: other}}]}"):                                        "spec.ingressDeny[0].fromEndpoints[0]: Forbidden: io.cilium.k8s.policy.cluster: pods of other clusters are not known; this one is default",
		ciliumHead + "  endpointSelector: {matchExpressions: [{key: io.cilium.k8s.policy.cluster, operator: DoesNotExist}]}\n": "spec.endpointSelector: Forbidden: io.cilium.k8s.policy.cluster",
		rule("{fromEndpoints: [{matchExpressions: [{key: io.cilium.k8s.policy.other, operator: Exists}]}]}"):                   "spec.ingress[0].fromEndpoints[0].matchExpressions[0].key: Forbidden: io.cilium.k8s.policy.other is not supported",
		rule("{fromEndpoints: [{matchLabels: {'reserved:host': ''}}]}"):                                                        "matchLabels[reserved:host]: Forbidden: reserved:host: only labels of Kubernetes",
		rule("{fromEndpoints: [{matchLabels: {app: a, k8s:app: b}}]}"):                                                         "Duplicate value",
		rule("{fromEndpoints: [{matchLabels: {app: 'a b'}}]}"):                                                                 "spec.ingress[0].fromEndpoints[0].matchLabels",
		rule("{fromEntities: [aws]}"):                                                                                          `spec.ingress[0].fromEntities[0]: Unsupported value: "aws"`,
		rule("{fromCIDR: [10.0.0.0/33]}"):                                                                                      "spec.ingress[0].fromCIDR[0]: Invalid",
		rule("{fromCIDRSet: [{cidr: 10.0.0.0/8, except: [11.0.0.0/16]}]}"):                                                     "spec.ingress[0].fromCIDRSet[0].except[0]: Invalid",
		rule("{fromCIDRSet: [{cidrGroupRef: a b}]}"):                                                                           "spec.ingress[0].fromCIDRSet[0].cidrGroupRef: Invalid",
		rule("{fromCIDRSet: [{cidr: 10.0.0.0/8, cidrGroupRef: a}]}"):                                                           "spec.ingress[0].fromCIDRSet[0]: Forbidden: [cidr cidrGroupRef] together",
		rule("{fromCIDRSet: [{cidrGroupSelector: {}}]}"):                                                                       "spec.ingress[0].fromCIDRSet[0].cidrGroupSelector: Required",
		rule("{fromCIDRSet: [{cidrGroupRef: a, except: [10.0.0.0/33]}]}"):                                                      "spec.ingress[0].fromCIDRSet[0].except[0]: Invalid",
		rule("{toServices: [{k8sService: {serviceName: a}}]}"):                                                                 "spec.ingress[0].toServices: Forbidden: not in rules for ingress",
		egress("{toServices: [{k8sService: {serviceName: a}, k8sServiceSelector: {selector: {matchLabels: {a: b}}}}]}"):        "spec.egress[0].toServices[0]: Forbidden: [k8sService k8sServiceSelector] together",
		egress("{toServices: [{k8sService: {serviceName: a b}}]}"):                                                             "spec.egress[0].toServices[0].k8sService.serviceName: Invalid",
		egress("{toServices: [{k8sService: {serviceName: a, namespace: b/c}}]}"):                                               "spec.egress[0].toServices[0].k8sService.namespace: Invalid",
		egress("{toServices: [{k8sServiceSelector: {selector: {}}}]}"):                                                         "spec.egress[0].toServices[0].k8sServiceSelector.selector: Required",
		egress("{toServices: [{k8sService: {serviceName: a}}], toEntities: [world]}"):                                          "spec.egress[0]: Forbidden: toEntities and toServices together",
		"apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: a}\nspec: {endpointSelector: {}, egress: [{toServices: [{k8sService: {serviceName: a}}]}]}\n": "spec.egress[0].toServices[0].k8sService.namespace: Required",
		rule("{fromRequires: [{}]}"):                                                                             "spec.ingress[0].fromRequires: Forbidden: not supported",
		rule("{icmps: [{fields: [{type: Timestamp}]}]}"):                                                         `spec.ingress[0].icmps[0].fields[0].type: Invalid value: "Timestamp": only echo requests`,
		rule("{icmps: [{fields: [{type: Ping}]}]}"):                                                              `spec.ingress[0].icmps[0].fields[0].type: Invalid value: "Ping": no type of ICMP`,
		rule("{icmps: [{fields: [{type: 256}]}]}"):                                                               `spec.ingress[0].icmps[0].fields[0].type: Invalid value: "256": no type of ICMP`,
		rule("{icmps: [{fields: [{family: IPv6}]}]}"):                                                            "spec.ingress[0].icmps[0].fields[0].type: Required",
		rule("{icmps: [{fields: [{family: ipv5, type: 8}]}]}"):                                                   "spec.ingress[0].icmps[0].fields[0].family: Unsupported",
		rule("{icmps: [{fields: [{type: 8}]}], toPorts: [{ports: [{port: '80'}]}]}"):                             "spec.ingress[0].icmps: Forbidden: together with toPorts",
		rule("{toPorts: [{}]}"):                                                                                  "spec.ingress[0].toPorts[0].ports: Required",
		port("{protocol: TCP}"):                                                                                  "spec.ingress[0].toPorts[0].ports[0].port: Required",
		port("{port: '80', protocol: ICMP}"):                                                                     "spec.ingress[0].toPorts[0].ports[0].protocol: Unsupported value",
		port("{port: '65536'}"):                                                                                  "spec.ingress[0].toPorts[0].ports[0].port: Invalid",
		port("{port: '80', endPort: 79}"):                                                                        "spec.ingress[0].toPorts[0].ports[0].endPort: Invalid",
		port("{port: http, endPort: 79}"):                                                                        "spec.ingress[0].toPorts[0].ports[0].endPort: Forbidden",
		rule("{toPorts: [{ports: [{port: '80'}], rules: {http: [{}]}}]}"):                                        `spec.ingress[0].toPorts[0].ports[0].protocol: Invalid value: "": rules.http wants TCP`,
		rule("{toFQDNs: [{matchName: example.org}]}"):                                                            "spec.ingress[0].toFQDNs: Forbidden: not in rules for ingress",
		egress("{toFQDNs: [{matchName: example.org}], toEntities: [world]}"):                                     "spec.egress[0]: Forbidden: toEntities and toFQDNs together",
		egress("{toFQDNs: [{}]}"):                                                                                "spec.egress[0].toFQDNs[0]",
		egress("{toFQDNs: [{matchName: a.example, matchPattern: '*.example'}]}"):                                 "spec.egress[0].toFQDNs[0]",
		egress("{toFQDNs: [{matchName: '*.example'}]}"):                                                          "spec.egress[0].toFQDNs[0].matchName: Invalid",
		egress("{toFQDNs: [{matchPattern: 'a.**.example'}]}"):                                                    "spec.egress[0].toFQDNs[0].matchPattern: Invalid",
		ciliumHead + "  endpointSelector: {}\n  egressDeny: [{toFQDNs: [{matchName: example.org}]}]\n":           "spec.egressDeny[0].toFQDNs: Forbidden: not in rules that deny",
		egress("{toServices: [{}]}"):                                                                             "spec.egress[0].toServices[0]: Required",
		ciliumHead + "  endpointSelector: {}\n  egressDeny: [{toPorts: [{ports: [{port: '80'}], rules: {}}]}]\n": "spec.egressDeny[0].toPorts[0].rules: Forbidden: not in rules that deny",
	} {
		if _, err := manifest.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want one with %q", text, err, want)
		}
	}
}

// TestValueOfAnotherType names the field, where it is, and what it is to have.
func TestValueOfAnotherType(t *testing.T) {
	const in = "  endpointSelector: {matchLabels: {app: web}}\n  ingress: "
	for text, want := range map[string]string{
		ciliumHead + in + "[{}, {toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{}, {method: true}]}}]}]":                        "spec.ingress[1].toPorts[0].rules.http[1].method: want a string, in quotation marks, not true or false",
		ciliumHead + in + "[{toPorts: [{ports: [{port: '80'}, {port: 80}]}]}]":                                                                    "spec.ingress[0].toPorts[0].ports[1].port: want a string, in quotation marks, not a number",
		ciliumHead + in + "[{toPorts: [{ports: [{port: '80', endPort: '90'}]}]}]":                                                                 "spec.ingress[0].toPorts[0].ports[0].endPort: want a whole number, not a string",
		ciliumHead + in + "[{toPorts: {ports: [{port: '80'}]}}]":                                                                                  "spec.ingress[0].toPorts: want a list, not an object",
		ciliumHead + in + "[{toPorts: [[]]}]":                                                                                                     "spec.ingress[0].toPorts[0]: want an object, not a list",
		ciliumHead + in + "[{fromEntities: [host, {a: b}]}]":                                                                                      "spec.ingress[0].fromEntities[1]: want a string, not an object",
		ciliumHead + "  endpointSelector: {matchLabels: {app: web, x: 1}}\n":                                                                      "spec.endpointSelector.matchLabels.x: want a string, in quotation marks, not a number",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec: {podSelector: {}, policyTypes: Ingress}": "spec.policyTypes: want a list, not a string",
	} {
		if _, err := manifest.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s\nerror %v, want one with %q", text, err, want)
		}
	}
}
