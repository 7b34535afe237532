package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"porin.dev/porin/internal/testutil"
)

// policyCRDs are the kinds of policies that are no part of Kubernetes, without their schemas.
var policyCRDs = []struct{ group, version, kind, scope string }{
	{"policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy", "Cluster"},
	{"policy.networking.k8s.io", "v1alpha1", "AdminNetworkPolicy", "Cluster"},
	{"policy.networking.k8s.io", "v1alpha1", "BaselineAdminNetworkPolicy", "Cluster"},
	{"cilium.io", "v2", "CiliumNetworkPolicy", "Namespaced"},
	{"cilium.io", "v2", "CiliumClusterwideNetworkPolicy", "Cluster"},
}

func (c *cluster) applyPolicyCRDs(t *testing.T) {
	t.Helper()
	for _, k := range policyCRDs {
		plural := strings.TrimSuffix(strings.ToLower(k.kind), "y") + "ies"
		c.admin.Apply(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s, annotations: {api-approved.kubernetes.io: "unapproved, a test"}}
spec:
  group: %[2]s
  scope: %[5]s
  names: {kind: %[4]s, plural: %[1]s, singular: %[3]s}
  versions: [{name: %[6]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, plural, k.group, strings.ToLower(k.kind), k.kind, k.scope, k.version))
	}
}

// agentRole are the rights of the agent's ClusterRole, as VERB GROUP/RESOURCE.
func agentRole(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kubernetes", "agent-role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string]bool{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role struct {
			Kind  string
			Rules []struct{ APIGroups, Resources, Verbs []string }
		}
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights[verb+" "+group+"/"+resource] = true
					}
				}
			}
		}
	}
	return rights
}

// ofRecords reports whether a right is for --store kubernetes.
func ofRecords(right string) bool {
	return strings.Contains(right, " porin.dev/") || right == "get /namespaces"
}

// TestRights: the agent runs with its ClusterRole alone, and uses every right of it.
func TestRights(t *testing.T) {
	n := newNode(t, 0)
	n.applyPolicyCRDs(t)
	n.attach("web", n.create("web", nil))
	if _, err := n.cni.Add(asPod(testutil.NewContainer(t), "ghost", "ghost")); err == nil { // the agent asks for a pod that no watch has told of
		t.Error("a pod that is not at the API server is attached")
	}
	rights := agentRole(t)
	maps.DeleteFunc(rights, func(right string, _ bool) bool { return ofRecords(right) })
	testutil.Eventually(t, func() error {
		unused := maps.Clone(rights)
		for _, request := range n.Requests(t) {
			if request.Code == http.StatusForbidden {
				t.Fatalf("the role lacks what the agent asks for: %+v", request)
			}
			delete(unused, request.Verb+" "+request.Group+"/"+request.Resource)
		}
		if len(unused) > 0 {
			return fmt.Errorf("rights that the agent has not used: %q", slices.Sorted(maps.Keys(unused)))
		}
		return nil
	})
}
