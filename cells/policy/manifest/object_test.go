package manifest

import (
	"strings"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

// describe is a short text of a direction's rules: "accept:1 deny:any", of each the action and the number of its peers.
func describe(rules *model.Rules) string {
	if rules == nil {
		return "none"
	}
	texts := []string{}
	for _, r := range *rules {
		text := r.Action.String()
		if len(r.Peers) == 1 && r.Peers[0].Any && len(r.Ports) == 0 {
			text += ":any"
		}
		texts = append(texts, text)
	}
	return "[" + strings.Join(texts, " ") + "]"
}

// TestReadObject: parts that are not known let nothing through.
func TestReadObject(t *testing.T) {
	networkPolicy := func(spec string) string {
		return `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"shop"},"spec":` + spec + `}`
	}
	cilium := func(spec string) string {
		return `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p","namespace":"shop"},"spec":` + spec + `}`
	}
	cluster := func(spec string) string {
		return `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"p"},"spec":` + spec + `}`
	}
	const good = `{"from":[{"podSelector":{"matchLabels":{"app":"a"}}}]}`
	const unknownPeer = `{"from":[{"podSelector":{},"serviceAccountSelector":{}}]}`
	for name, row := range map[string]struct {
		object, egress, ingress string
		faults                  int
		allPods                 bool // the subject is the whole namespace, or cluster
	}{
		"good":                        {networkPolicy(`{"podSelector":{"matchLabels":{"app":"b"}},"ingress":[` + good + `]}`), "none", "[accept]", 0, false},
		"a field of a peer":           {networkPolicy(`{"podSelector":{"matchLabels":{"app":"b"}},"ingress":[` + unknownPeer + `,` + good + `]}`), "none", "[accept]", 1, false},
		"the only rule":               {networkPolicy(`{"podSelector":{"matchLabels":{"app":"b"}},"egress":[{"to":[{"new":1}]}]}`), "[]", "[]", 2, false},
		"a protocol":                  {networkPolicy(`{"podSelector":{"matchLabels":{"app":"b"}},"ingress":[{"ports":[{"protocol":"QUIC","port":443}]},` + good + `]}`), "none", "[accept]", 1, false},
		"a field of the spec":         {networkPolicy(`{"podSelector":{"matchLabels":{"app":"b"}},"new":true,"ingress":[` + good + `]}`), "[]", "[]", 1, false},
		"a field of the selector":     {networkPolicy(`{"podSelector":{"matchFields":{"a":"b"}},"ingress":[` + good + `]}`), "[]", "[]", 1, true},
		"many fields":                 {networkPolicy(`{"ingress":[{"from":[` + strings.Repeat(`{"new":1},`, 100) + `{}]},` + unknownPeer + `],"podSelector":{"matchFields":{"a":"b"}}}`), "[]", "[]", 202, true},
		"a type":                      {networkPolicy(`{"podSelector":{"matchLabels":{"app":1}},"ingress":[` + good + `]}`), "[]", "[]", 1, true},
		"Cilium: a field of a rule":   {cilium(`{"endpointSelector":{"matchLabels":{"app":"b"}},"ingress":[{"fromEndpoints":[{}],"fromNew":[]},{"fromEndpoints":[{}]}]}`), "none", "[accept]", 1, false},
		"Cilium: what is refused":     {cilium(`{"endpointSelector":{"matchLabels":{"app":"b"}},"ingressDeny":[{"fromNodes":[{}]}],"ingress":[{"fromEndpoints":[{}]}]}`), "none", "[deny:any accept]", 1, false},
		"Cilium: other letters":       {cilium(`{"endpointSelector":{"matchLabels":{"app":"b"}},"ingress":[{}],"EndpointSelector":null,"NodeSelector":{}}`), "[]", "[]", 2, false},
		"Cilium: a list of specs":     {strings.Replace(cilium(`[{}]`), `"spec"`, `"specs"`, 1), "[]", "[]", 1, true},
		"cluster: a rule that denies": {cluster(`{"tier":"Admin","priority":1,"subject":{"namespaces":{"matchLabels":{"a":"b"}}},"ingress":[{"action":"Accept","from":[{"namespaces":{}}]},{"name":"ingress[7]","action":"Deny","from":[{"namespaces":{},"new":1}]}]}`), "none", "[accept deny:any]", 1, false},
		"cluster: a rule that passes": {cluster(`{"tier":"Admin","priority":1,"subject":{"namespaces":{"matchLabels":{"a":"b"}}},"egress":[{"action":"Pass","to":[{"new":{}}]},{"action":"Accept","to":[{"new":{}}]}]}`), "[deny:any]", "none", 4, false},
		"cluster: an action":          {cluster(`{"tier":"Admin","priority":1,"subject":{"namespaces":{"matchLabels":{"a":"b"}}},"ingress":[{"action":"Log","from":[{"namespaces":{}}]}]}`), "none", "[deny:any]", 1, false},
		"cluster: the subject":        {cluster(`{"tier":"Admin","priority":1,"subject":{"new":{}},"ingress":[{"action":"Accept","from":[{"namespaces":{}}]}]}`), "[deny:any]", "[deny:any]", 2, true},
		"cluster: the tier":           {cluster(`{"tier":"New","priority":1,"subject":{"namespaces":{"matchLabels":{"a":"b"}}},"ingress":[{"action":"Accept","from":[{"namespaces":{}}]}]}`), "[deny:any]", "[deny:any]", 1, false},
	} {
		m, faults := ReadObject([]byte(row.object))
		p := m.Policy
		if describe(p.Egress) != row.egress || describe(p.Ingress) != row.ingress || len(faults) != row.faults || p.ID.Name != "p" || len(m.JSON) == 0 {
			t.Errorf("%s: %s, egress %s, ingress %s, faults %v; want egress %s, ingress %s, %d faults", name, p.ID, describe(p.Egress), describe(p.Ingress), faults, row.egress, row.ingress, row.faults)
		}
		if all := len(p.Subject.Labels)+len(p.Subject.Namespaces) == 0; all != row.allPods {
			t.Errorf("%s: subject %+v, want all pods: %t", name, p.Subject, row.allPods)
		}
	}
}

// TestReadObjectAudit: a policy whose annotation is not known is in force.
func TestReadObjectAudit(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "yes": false} {
		m, _ := ReadObject([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"shop","annotations":{"porin.dev/audit":"` + value + `"}},"spec":{"podSelector":{}}}`))
		if m.Policy.Audit != want {
			t.Errorf("porin.dev/audit=%s: in audit %t", value, m.Policy.Audit)
		}
	}
}

// TestReadObjectSpecs: a fault narrows the specification that it is in, and one outside of them all of them.
func TestReadObjectSpecs(t *testing.T) {
	object := func(more string) string {
		return `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p","namespace":"shop"}` + more + `,"specs":[` +
			`{"endpointSelector":{"matchLabels":{"app":"a"}},"ingress":[{"fromEndpoints":[{}]}]},` +
			`{"endpointSelector":{"matchLabels":{"app":"b"}},"ingress":[{"fromEndpoints":[{}],"fromNew":[]},{"fromEndpoints":[{}]}],"egressDeny":[{"toNodes":[{}]}]}]}`
	}
	m, faults := ReadObject([]byte(object("")))
	parts := m.Policy.Parts()
	if len(faults) != 2 || len(parts) != 2 || parts[1].ID.Part != 1 || parts[1].ID.Name != "p" {
		t.Fatalf("%+v, faults %v, want two specifications and two faults", parts, faults)
	}
	if got := describe(parts[0].Ingress) + describe(parts[1].Ingress) + describe(parts[1].Egress); got != "[accept][accept][deny:any]" {
		t.Errorf("rules %s, want the faulty one that accepts left out, and the one that denies to deny everything", got)
	}
	m, _ = ReadObject([]byte(object(`,"spec":{"endpointSelector":{}}`)))
	if p := m.Policy; describe(p.Ingress)+describe(p.Egress) != "[][]" || len(p.Subject.Labels) > 0 {
		t.Errorf("%+v, want one that denies everything to all pods", p)
	}
}
