package policy

import (
	"fmt"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// TestAuditInDatapath has what is denied pass while a policy, an endpoint or the node is in audit; Evaluate, explain
// and the endpoint say what would be denied.
func TestAuditInDatapath(t *testing.T) {
	web, other := pod(1, "web"), pod(3, "other")
	inAudit := web
	inAudit.Metadata = strings.Replace(web.Metadata, "}}", `},"audit":true}`, 1)
	auditPolicy := strings.Replace(toWebFrom("client"), "{name: web}", `{name: web, annotations: {porin.dev/audit: "true"}}`, 1)
	for _, row := range []struct {
		name       string
		node       bool
		begin, end func(n *node)
	}{
		{"policy", false, func(n *node) { n.put(t, auditPolicy) }, func(n *node) { n.put(t, toWebFrom("client")) }},
		{"endpoint", false, func(n *node) { n.update(t, inAudit) }, func(n *node) { n.update(t, web) }},
		{"node", true, func(*node) {}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := servingNodeWith(t, engine.Config{Audit: row.node})
			n.put(t, toWebFrom("client"))
			n.attach(t, web)
			n.attach(t, other)
			row.begin(n)
			n.wants(t, other, web, true, "in audit")
			v := n.queue.view.Evaluate(other.Addresses.IPv4, web.Addresses.IPv4, model.TCP, 80)
			if !v.Ingress.Allowed || v.AuditEgress != nil || v.AuditIngress == nil || v.AuditIngress.Reason != engine.ReasonDefaultDeny {
				t.Errorf("verdict %+v, want ingress denied without audit alone", v)
			}
			_, answer := call(n, web, other)("GET", "/v1/policy/explain?from=3&to=1&port=80", "")
			if !strings.Contains(answer, `"allowed":true,`) || !strings.Contains(answer, `"auditIngress":{"allowed":false,"reason":"default deny"`) ||
				!strings.Contains(answer, `"datapath":{"egress":true,"ingress":true}`) {
				t.Errorf("explained as %s", answer)
			}
			var described v1.Endpoint
			newReporter(n.policies).Describe(web, &described)
			if *described.Policy != (v1.EndpointPolicy{Audit: true}) {
				t.Errorf("described as %+v, want it in audit, and not restricted", described.Policy)
			}
			if row.end == nil {
				var status v1.Status
				if newReporter(n.policies).Report(&status); !status.Policy.Audit {
					t.Error("the status does not tell of the audit")
				}
				return
			}
			row.end(n)
			n.wants(t, other, web, false, "after audit")
			if v := n.queue.view.Evaluate(other.Addresses.IPv4, web.Addresses.IPv4, model.TCP, 80); v.Ingress.Allowed || v.AuditIngress != nil {
				t.Errorf("after audit the verdict is %+v", v)
			}
		})
	}
}

// TestPoliciesInAuditOverHTTP shows the mark, and refuses what is none.
func TestPoliciesInAuditOverHTTP(t *testing.T) {
	ask := call(servingNode(t, ""))
	for value, want := range map[string]string{"true": `"ingress":1,"audit":true,`, "false": `metadata.annotations[porin.dev/audit]`} {
		body := strings.Replace(toWebFrom("client"), "{name: web}", fmt.Sprintf(`{name: web, annotations: {porin.dev/audit: %q}}`, value), 1)
		if status, answer := ask("PUT", "/v1/policy", body); !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %s", value, status, answer, want)
		}
	}
}
