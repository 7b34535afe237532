package e2e

import (
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
)

const nobodyReachesWeb = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: demo}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}
`

// TestPolicyAudit has a connection that a policy denies pass while the policy, the pod or the node is in audit, and be
// denied after that.
func TestPolicyAudit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	web, client := r.named("demo", "web"), r.named("demo", "client")
	server := web.Echo(t, web.ipv4)
	patch := func(patch v1.EndpointPatch) {
		t.Helper()
		if _, err := r.api.UpdateEndpoint(t.Context(), "pod-name:demo/web", patch); err != nil {
			t.Fatal(err)
		}
	}
	put := func(manifest string) {
		t.Helper()
		if _, err := r.api.PutPolicies(t.Context(), []byte(manifest)); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(when string, allowed bool) {
		t.Helper()
		within := deniedTime
		if allowed {
			within = answerTime
		}
		conn, err := openDialog(client.Namespace, "tcp", 0, server, within)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != allowed {
			t.Errorf("%s: error %v, want it allowed: %t", when, err, allowed)
		}
		x := decoded[v1.PolicyExplanation](r, "policy", "explain", "--from", "demo/client", "--to", "demo/web", "--port", "80")
		if x.Allowed != allowed || x.Datapath.Differs || (x.AuditIngress != nil) != allowed || allowed && x.AuditIngress.Allowed {
			t.Errorf("%s: explained as %+v, without audit %+v", when, x, x.AuditIngress)
		}
	}
	patch(v1.EndpointPatch{Labels: map[string]string{"app": "web"}})
	put(nobodyReachesWeb)
	wants("in force", false)

	put(strings.Replace(nobodyReachesWeb, "namespace: demo", `namespace: demo, annotations: {porin.dev/audit: "true"}`, 1))
	wants("the policy in audit", true)
	put(nobodyReachesWeb)
	wants("after the policy's audit", false)

	patch(v1.EndpointPatch{Audit: new(true)})
	wants("the pod in audit", true)
	r.agent.Kill(t)
	r.agent.Start(t)
	wants("the pod in audit, by the next agent", true)
	patch(v1.EndpointPatch{Audit: new(false)})
	wants("after the pod's audit", false)

	r.agent.Restart(t, "--policy-audit")
	wants("the node in audit", true)
	if done := r.cli("status"); !strings.Contains(done.out, "NO policy is in force: the agent runs with --policy-audit") {
		t.Errorf("status of a node in audit:\n%s", done.out)
	}
	r.agent.Restart(t, "--policy-audit=false")
	wants("after the node's audit", false)
}
