package manifest_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

var sameAddresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func read(t *testing.T, text string) []model.Policy {
	t.Helper()
	policies, err := manifest.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return policies
}

func label(key, value string) model.Requirement {
	return model.Requirement{Key: key, Operator: model.In, Values: []string{value}}
}

func TestReadNetworkPolicy(t *testing.T) {
	got := read(t, `
# The first document is a comment.
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: db
  namespace: shop
  labels: {team: a}
spec:
  podSelector: {matchLabels: {role: db, app: mysql}}
  policyTypes: [Ingress, Egress]
  ingress:
  - from:
    - ipBlock: {cidr: 172.17.5.1/16, except: [172.17.1.0/24]}
    - namespaceSelector: {matchLabels: {project: x}}
    - podSelector:
        matchExpressions: [{key: role, operator: In, values: [web, api]}, {key: old, operator: DoesNotExist}]
    - namespaceSelector: {}
      podSelector: {matchLabels: {a: b}}
    ports:
    - {port: 6379}
    - {protocol: UDP, port: dns}
    - {protocol: SCTP}
    - {protocol: TCP, port: 32000, endPort: 32768}
  - {}
`)
	want := []model.Policy{{
		ID: model.PolicyID{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}, Tier: model.TierNetworkPolicy,
		Subject: model.Pods{Namespace: "shop", Labels: model.Selector{label("app", "mysql"), label("role", "db")}},
		Egress:  &model.Rules{},
		Ingress: &model.Rules{{
			Peers: []model.Peer{
				{Block: &model.Block{CIDR: netip.MustParsePrefix("172.17.0.0/16"), Except: []netip.Prefix{netip.MustParsePrefix("172.17.1.0/24")}}},
				{Pods: &model.Pods{Namespaces: model.Selector{label("project", "x")}}},
				{Pods: &model.Pods{Namespace: "shop", Labels: model.Selector{
					{Key: "role", Operator: model.In, Values: []string{"api", "web"}}, {Key: "old", Operator: model.DoesNotExist},
				}}},
				{Pods: &model.Pods{Labels: model.Selector{label("a", "b")}}},
			},
			Ports: []model.Port{
				{Protocol: model.TCP, First: 6379, Last: 6379},
				{Protocol: model.UDP, Name: "dns"},
				{Protocol: model.SCTP, Last: 65535},
				{Protocol: model.TCP, First: 32000, Last: 32768},
			},
		}, {Peers: []model.Peer{{Any: true}}}},
	}}
	if diff := cmp.Diff(want, got, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestReadPolicyTypes(t *testing.T) {
	for spec, want := range map[string]string{
		`{"podSelector": {}}`:                                             "ingress",
		`{"podSelector": {}, "egress": [{}]}`:                             "egress ingress",
		`{"podSelector": {}, "egress": []}`:                               "ingress",
		`{"podSelector": {}, "policyTypes": ["Egress"]}`:                  "egress",
		`{"podSelector": {}, "policyTypes": ["Ingress"], "egress": [{}]}`: "ingress",
	} {
		p := read(t, `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": `+spec+`}`)[0]
		var got []string
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if p.Part(d) != nil {
				got = append(got, d.String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: affects %v, want %s", spec, got, want)
		}
		if p.ID.Namespace != "default" {
			t.Errorf("namespace %q, want the one named default", p.ID.Namespace)
		}
	}
}

func TestReadClusterNetworkPolicy(t *testing.T) {
	got := read(t, `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: guard}
spec:
  tier: Admin
  priority: 7
  subject: {namespaces: {}}
  egress:
  - name: out
    action: Accept
    to:
    - networks: [10.0.0.0/8, "fd00::/8"]
    - nodes: {matchLabels: {zone: a}}
    - domainNames: ["*.Example.org."]
    protocols:
    - tcp: {destinationPort: {number: 443}}
    - udp: {destinationPort: {range: {start: 1, end: 9}}}
  - action: Pass
    to: [{pods: {namespaceSelector: {matchLabels: {ns: x}}, podSelector: {}}}]
    protocols: [{destinationNamedPort: web}]
`)
	want := []model.Policy{{
		ID: model.PolicyID{Kind: "ClusterNetworkPolicy", Name: "guard"}, Priority: 7,
		Egress: &model.Rules{{
			Name: "out",
			Peers: []model.Peer{
				{Block: &model.Block{CIDR: netip.MustParsePrefix("10.0.0.0/8")}},
				{Block: &model.Block{CIDR: netip.MustParsePrefix("fd00::/8")}},
				{Nodes: &model.Selector{label("zone", "a")}},
				{Domain: model.DNSRule{Pattern: "**.example.org"}},
			},
			Ports: []model.Port{{Protocol: model.TCP, First: 443, Last: 443}, {Protocol: model.UDP, First: 1, Last: 9}},
		}, {
			Action: model.Pass,
			Peers:  []model.Peer{{Pods: &model.Pods{Namespaces: model.Selector{label("ns", "x")}}}},
			Ports:  []model.Port{{Name: "web"}},
		}},
	}}
	if diff := cmp.Diff(want, got, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestReadAdminPolicies(t *testing.T) {
	got := read(t, `
apiVersion: v1
kind: List
items:
- apiVersion: policy.networking.k8s.io/v1alpha1
  kind: AdminNetworkPolicy
  metadata: {name: a}
  spec:
    priority: 0
    subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {p: q}}}}
    ingress:
    - {action: Allow, from: [{namespaces: {}}], ports: [{portNumber: {protocol: UDP, port: 53}}, {namedPort: web}]}
- apiVersion: policy.networking.k8s.io/v1alpha1
  kind: BaselineAdminNetworkPolicy
  metadata: {name: default}
  spec:
    subject: {namespaces: {}}
    egress:
    - {action: Deny, to: [{networks: [0.0.0.0/0]}], ports: [{portRange: {start: 1, end: 1024}}]}
`)
	want := []model.Policy{{
		ID:      model.PolicyID{Kind: "AdminNetworkPolicy", Name: "a"},
		Subject: model.Pods{Labels: model.Selector{label("p", "q")}},
		Ingress: &model.Rules{{
			Peers: []model.Peer{{Pods: &model.Pods{}}},
			Ports: []model.Port{{Protocol: model.UDP, First: 53, Last: 53}, {Name: "web"}},
		}},
	}, {
		ID: model.PolicyID{Kind: "BaselineAdminNetworkPolicy", Name: "default"}, Tier: model.TierBaseline, Priority: model.BaselineAdminPriority,
		Egress: &model.Rules{{
			Action: model.Deny,
			Peers:  []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("0.0.0.0/0")}}},
			Ports:  []model.Port{{Protocol: model.TCP, First: 1, Last: 1024}},
		}},
	}}
	if diff := cmp.Diff(want, got, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

const (
	np   = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: shop}\nspec: "
	cnp  = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: a}\nspec: "
	anp  = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: a}\nspec: "
	banp = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: BaselineAdminNetworkPolicy\nmetadata: {name: default}\nspec: "
)

func TestReadAudit(t *testing.T) {
	for annotations, want := range map[string]bool{"": false, "annotations: {other: x}": false, `annotations: {porin.dev/audit: "true"}`: true} {
		text := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: shop, " + annotations + "}\nspec: {podSelector: {}}"
		if got := read(t, text); got[0].Audit != want {
			t.Errorf("%s: in audit %t, want %t", annotations, got[0].Audit, want)
		}
	}
}

func TestReadFaults(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string // one for each line of the error
	}{
		{"unknown field", np + "{podSelektor: {}}", []string{`document 1, line 1 (NetworkPolicy shop/a): unknown field "spec.podSelektor"`}},
		{"unknown field, second document", np + "{}\n---\n" + np + "{egres: []}", []string{`document 2, line 6 (NetworkPolicy shop/a): unknown field "spec.egres"`}},
		{"unknown kind", "apiVersion: v1\nkind: Pod", []string{`apiVersion "v1", kind "Pod"`}},
		{"no object", "- 1", []string{"not an object"}},
		{"wrong type", np + "{ingress: 5}", []string{"ingress"}},
		{"key twice", np + "{podSelector: {}, podSelector: {}}", []string{`document 1, line 1: line 4: "podSelector" is there twice`}},
		{"bad YAML", "a: [", []string{"document 1"}},
		{"same name twice", np + "{}\n---\n" + np + "{}", []string{"document 2, line 6: NetworkPolicy shop/a is already in document 1, line 1"}},
		{"bad names", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: A_, namespace: n.m}", []string{"metadata.name", "metadata.namespace"}},
		{"no name", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy", []string{"metadata.name: Required"}},
		{"bad selector", np + "{podSelector: {matchExpressions: [{key: a, operator: Is}, {key: b, operator: In}, {key: c, operator: Exists, values: [d]}, {key: '-', operator: Exists}]}}", []string{
			"matchExpressions[0].operator", "matchExpressions[1].values", "matchExpressions[2].values", "matchExpressions[3].key",
		}},
		{"bad CIDR", np + "{ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}, {ipBlock: {cidr: '::ffff:10.0.0.0/104'}}]}]}", []string{
			"from[0].ipBlock.cidr", "from[1].ipBlock.cidr",
		}},
		{"except", np + "{ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16, 10.0.0.0/8, 10.1.0.0/16, x]}}]}]}", []string{
			"except[0]: Invalid value: \"11.0.0.0/16\": not a part of cidr 10.0.0.0/8", "except[1]", "except[3]",
		}},
		{"peer", np + "{egress: [{to: [{}, {ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}]}", []string{"to[0]: Required", "to[1]: Forbidden"}},
		{"ports", np + "{egress: [{ports: [{port: 0}, {port: 65536}, {port: 9, endPort: 8}, {port: web, endPort: 8}, {endPort: 8}, {protocol: ICMP}, {port: '80'}]}]}", []string{
			"ports[0].port", "ports[1].port", "ports[2].endPort", "ports[3].endPort", "ports[4].port", "ports[5].protocol", "ports[6].port",
		}},
		{"audit", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, annotations: {porin.dev/audit: 'yes'}}\nspec: {podSelector: {}}", []string{
			`metadata.annotations[porin.dev/audit]: Unsupported value: "yes": supported values: "true"`,
		}},
		{"policy types", np + "{policyTypes: [ingress]}", []string{"policyTypes[0]"}},
		{"missing fields", cnp + "{}", []string{"spec.priority: Required", "spec.tier", "spec.subject: Required"}},
		{"priority", cnp + "{tier: Admin, priority: 1001, subject: {namespaces: {}}}", []string{"spec.priority: Invalid"}},
		{"subject", cnp + "{tier: Admin, priority: 0, subject: {namespaces: {}, pods: {podSelector: {}}}}", []string{"[namespaces pods] together"}},
		{"missing pod selector", cnp + "{tier: Admin, priority: 0, subject: {pods: {}}}", []string{"spec.subject.pods.podSelector: Required"}},
		{"missing namespace selector", anp + "{priority: 0, subject: {pods: {podSelector: {}}}}", []string{"spec.subject.pods.namespaceSelector: Required"}},
		{"rule", cnp + "{tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Allow}]}", []string{"ingress[0].action", "ingress[0].from"}},
		{"egress peers", cnp + "{tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Deny, to: [{}, {networks: []}, {networks: [x]}, {domainNames: [a.b]}, {nodes: {}, namespaces: {}}]}]}", []string{
			"to[0]: Required", "to[1].networks", "to[2].networks[0]", "to[3].domainNames: Forbidden", "to[4]: Forbidden",
		}},
		{"domain name", cnp + "{tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Accept, to: [{domainNames: ['a.*.b']}]}]}", []string{"domainNames[0]"}},
		{"named port of networks", cnp + "{tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [10.0.0.0/8]}], protocols: [{destinationNamedPort: web}]}]}", []string{"to[0]: Forbidden"}},
		{"protocols", cnp + "{tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{}, {tcp: {}}, {tcp: {destinationPort: {number: 70000}}}, {tcp: {destinationPort: {range: {start: 5, end: 5}}}}, {udp: {destinationPort: {number: 5, range: {start: 5, end: 6}}}}]}]}", []string{
			"protocols[0]: Required", "protocols[1].tcp.destinationPort: Required", "protocols[2].tcp.destinationPort.number", "protocols[3].tcp.destinationPort.range", "protocols[4].udp.destinationPort: Forbidden",
		}},
		{"empty ports", anp + "{priority: 0, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], ports: []}]}", []string{"ports: Required"}},
		{"rule's name", anp + "{priority: 0, subject: {namespaces: {}}, ingress: [{name: " + strings.Repeat("a", 101) + ", action: Deny, from: [{namespaces: {}}]}]}", []string{"ingress[0].name"}},
		{"too many rules", cnp + "{tier: Baseline, priority: 0, subject: {namespaces: {}}, ingress: [" + strings.Repeat("{action: Deny, from: [{namespaces: {}}]},", 26) + "]}", []string{"spec.ingress: Too many"}},
		{"baseline's name", strings.Replace(banp, "default", "other", 1) + "{subject: {namespaces: {}}}", []string{"metadata.name"}},
		{"baseline passes", banp + "{subject: {namespaces: {}}, ingress: [{action: Pass, from: [{namespaces: {}}]}]}", []string{"ingress[0].action"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			policies, err := manifest.Read([]byte(row.text))
			if err == nil || policies != nil {
				t.Fatalf("policies %v, error %v, want an error alone", policies, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(row.want) {
				t.Fatalf("want %d faults, got:\n%v", len(row.want), err)
			}
			for i, want := range row.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("fault %d: %s\nwant in it: %s", i, lines[i], want)
				}
			}
		})
	}
}

// TestReadManyFaults has as many as fit into a file: the error does not name them all.
func TestReadManyFaults(t *testing.T) {
	const text = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec: {podSelector: {}, ingress: [{ports: ["
	_, err := manifest.Read([]byte(text + strings.Repeat("{port: 0},", 5000) + "]}]}"))
	if err == nil || len(err.Error()) > 1<<16 || !strings.HasSuffix(err.Error(), "\nand 4900 more") {
		t.Errorf("error of %d bytes, %.100q, want a hundred faults and how many more there are", len(fmt.Sprint(err)), fmt.Sprint(err))
	}
}

func TestReadJSONDocuments(t *testing.T) {
	one := `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": {}}`
	if got := read(t, one+"\n"+strings.Replace(one, `"a"`, `"b"`, 1)); len(got) != 2 {
		t.Errorf("%d policies, want 2", len(got))
	}
	if got := read(t, "---\n# nothing\n---\n"); len(got) != 0 {
		t.Errorf("%d policies of empty documents, want none", len(got))
	}
}

func FuzzRead(f *testing.F) {
	for _, spec := range []string{
		np + "{ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 80}]}]}",
		cnp + "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{nodes: {}}]}]}",
		anp + "{priority: 1, subject: {namespaces: {}}, ingress: [{action: Pass, from: [{namespaces: {}}], ports: [{namedPort: a}]}]}",
		ciliumHead + "  endpointSelector: {}\n  ingress: [{toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{path: '/a{2}', headers: ['X-A: b']}]}}]}]",
		ciliumHead + "  endpointSelector: {}\n  egress: [{toPorts: [{ports: [{port: '53'}], rules: {dns: [{matchPattern: '**.a*.example'}]}}]}]",
		"apiVersion: v1\nkind: List\nitems: [{}]",
		`{"apiVersion": "v1"}{}`,
	} {
		f.Add([]byte(spec))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		policies, err := manifest.Read(data)
		if err != nil && policies != nil {
			t.Error("policies together with an error")
		}
		for _, p := range policies {
			if p.ID.Name == "" || p.Priority < 0 || p.Priority > model.BaselineAdminPriority {
				t.Errorf("accepted %+v", p)
			}
			checkLayer7(t, p)
		}
	})
}

// checkLayer7 has what every user of layer 7 rules relies on.
func checkLayer7(t *testing.T, p model.Policy) {
	t.Helper()
	for _, d := range []model.Direction{model.Egress, model.Ingress} {
		if p.Part(d) == nil {
			continue
		}
		for _, r := range *p.Part(d) {
			if r.Layer7 == nil {
				continue
			}
			http, dns := len(r.Layer7.HTTP), len(r.Layer7.DNS)
			if p.Tier != model.TierNetworkPolicy || r.Action != model.Accept || len(r.Ports) == 0 || (http > 0) == (dns > 0) {
				t.Errorf("accepted %+v", r)
			}
			for _, one := range r.Layer7.HTTP {
				for _, text := range []string{one.Method, one.Path, one.Host} {
					if _, err := regexp.Compile(`\A(?:` + text + `)\z`); err != nil {
						t.Errorf("accepted %q: %v", text, err)
					}
				}
			}
			for _, one := range r.Layer7.DNS {
				if (one.Name == "") == (one.Pattern == "") || one.Name != strings.ToLower(one.Name) || strings.HasSuffix(one.Name+one.Pattern, ".") {
					t.Errorf("accepted %+v", one)
				}
			}
		}
	}
}

func TestReadAll(t *testing.T) {
	const policy = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"a"},"spec":{"podSelector":{}}}`
	for name, text := range map[string]string{
		"JSON": "{\"kind\": \"NetworkPolicy\", \"apiVersion\": \"networking.k8s.io/v1\",\n \"spec\": {\"podSelector\": {}}, \"metadata\": {\"name\": \"a\"}}",
		"YAML": "spec: {podSelector: {}}\nmetadata: {name: a}\nkind: NetworkPolicy\napiVersion: networking.k8s.io/v1\n",
		"List": `{"apiVersion":"v1","kind":"List","items":[` + policy + `]}`,
	} {
		manifests, err := manifest.ReadAll([]byte(text))
		if err != nil || len(manifests) != 1 || string(manifests[0].JSON) != policy || manifests[0].Policy.ID.Name != "a" {
			t.Errorf("%s: %+v, %v, want %s", name, manifests, err, policy)
		}
	}
}
