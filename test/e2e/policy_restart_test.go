package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
)

const clientsReachWeb = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: demo}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]
`

// TestPolicyOverRestart applies a policy and labels two pods: what follows from them outlives the agent.
func TestPolicyOverRestart(t *testing.T) {
	r := newRig(t)
	r.named("demo", "web")
	r.named("demo", "client")
	for _, name := range []string{"web", "client"} {
		patch := v1.EndpointPatch{Labels: map[string]string{"app": name}}
		if ep, err := r.api.UpdateEndpoint(t.Context(), "pod-name:demo/"+name, patch); err != nil || ep.Labels["app"] != name {
			t.Fatalf("labels of %s: %+v, %v", name, ep, err)
		}
	}
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(clientsReachWeb), 0o600); err != nil {
		t.Fatal(err)
	}
	if done := r.cli("policy", "apply", "-f", file); done.code != 0 || done.out != "NetworkPolicy demo/web created\n" {
		t.Fatalf("policy apply: %+v", done)
	}
	explain := func(from, to string) v1.PolicyExplanation {
		x := decoded[v1.PolicyExplanation](r, "policy", "explain", "--from", from, "--to", to, "--port", "80")
		if d := x.Datapath; d.Ingress == nil || *d.Ingress != x.Ingress.Allowed || d.Differs || d.NotAsked != "" {
			t.Errorf("%s to %s: the kernel says %+v of ingress, want what the engine says: %t", from, to, d, x.Ingress.Allowed)
		}
		return x
	}
	for _, end := range []func(){func() {}, func() { r.agent.Kill(t); r.agent.Start(t) }, func() { r.agent.Stop(t); r.agent.Start(t) }} {
		end()
		if x := explain("demo/client", "demo/web"); !x.Allowed || x.Ingress.Rule == nil || x.Ingress.Rule.Policy != "web" {
			t.Errorf("client to web: %+v, want it allowed by policy web", x)
		}
		if x := explain("192.0.2.7", "demo/web"); x.Allowed || x.Ingress.Reason != "default deny" {
			t.Errorf("somebody to web: %+v, want it denied", x)
		}
		if x := explain(r.node.IPv4.String(), "demo/web"); !x.Allowed || x.From.Kind != "host" {
			t.Errorf("the node to web: %+v, want it allowed", x)
		}
		if x := explain("demo/web", "demo/client"); !x.Allowed {
			t.Errorf("web to client: %+v, want it allowed", x)
		}
		if s := r.status(); s.Policy.Policies != 1 || s.Policy.Revision == 0 || s.Policy.Error != "" {
			t.Errorf("status %+v", s.Policy)
		}
		if ep, err := r.api.Endpoint(t.Context(), "pod-name:demo/web"); err != nil || ep.Policy == nil || !ep.Policy.Ingress || ep.Policy.Egress {
			t.Errorf("endpoint %+v, %v, want ingress restricted", ep.Policy, err)
		}
	}
	if done := r.cli("policy", "delete", "demo/web"); done.code != 0 {
		t.Errorf("policy delete: %+v", done)
	}
	if x := explain("192.0.2.7", "demo/web"); !x.Allowed {
		t.Errorf("after the policy's end: %+v, want it allowed", x)
	}
}

// TestDoctorPolicyMaps empties the map from addresses to classes: a client is denied although its label is allowed,
// until the doctor repairs the map.
func TestDoctorPolicyMaps(t *testing.T) {
	r := newRig(t, "--doctor-interval=0")
	r.named("demo", "web")
	r.named("demo", "client")
	for _, name := range []string{"web", "client"} {
		patch := v1.EndpointPatch{Labels: map[string]string{"app": name}}
		if _, err := r.api.UpdateEndpoint(t.Context(), "pod-name:demo/"+name, patch); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.api.PutPolicies(t.Context(), []byte(clientsReachWeb)); err != nil {
		t.Fatal(err)
	}
	r.agrees()
	addresses, err := ebpf.LoadPinnedMap(filepath.Join(r.node.BPFRoot, "maps", bpf.Addresses), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer addresses.Close()
	var keys []abi.AddressKey
	var key abi.AddressKey
	var class uint32
	for entries := addresses.Iterate(); entries.Next(&key, &class); {
		keys = append(keys, key)
	}
	for _, key := range keys {
		if err := addresses.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	explain := func() string {
		return r.cli("policy", "explain", "--from", "demo/client", "--to", "demo/web", "--port", "80").out
	}
	if text := explain(); !strings.Contains(text, "egress allowed, ingress denied: NOT as the engine says") {
		t.Errorf("explained without the addresses:\n%s", text)
	}
	if found := r.answered().Findings; len(found) < 2 || found[0].Kind != "policy-entry-missing" || found[0].Owner != "policy" {
		t.Errorf("found %+v, want the addresses", found)
	}
	if done := r.cli("doctor", "--repair"); done.code != 0 || !strings.Contains(done.out, "policy-entry-missing of policy, map entry addresses") {
		t.Errorf("doctor --repair: %+v", done)
	}
	if text := explain(); !strings.Contains(text, "Datapath:  the same\n") {
		t.Errorf("explained after the repair:\n%s", text)
	}
}

// TestStartWithDamagedPolicies: an agent that cannot read its policies does not start, and says what to do.
func TestStartWithDamagedPolicies(t *testing.T) {
	r := newRig(t)
	if _, err := r.api.PutPolicies(t.Context(), []byte(clientsReachWeb)); err != nil {
		t.Fatal(err)
	}
	r.agent.Stop(t)
	path := filepath.Join(r.node.Dir, "store", "policies.db")
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if err := r.agent.TryStart(); err == nil {
		t.Error("the agent has started")
	}
	if log := r.agent.Log(); !strings.Contains(log, path) || !strings.Contains(log, "restore the file; or move it away") {
		t.Errorf("the log does not name %s and say what to do:\n%s", path, log)
	}
}
