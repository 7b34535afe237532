package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	porinnode "porin.dev/porin/cells/node"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// policyCRDs are the kinds of policies, and of what they name, that are no part of Kubernetes, without their schemas.
var policyCRDs = []struct{ group, version, kind, scope string }{
	{"policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy", "Cluster"},
	{"policy.networking.k8s.io", "v1alpha1", "AdminNetworkPolicy", "Cluster"},
	{"policy.networking.k8s.io", "v1alpha1", "BaselineAdminNetworkPolicy", "Cluster"},
	{"cilium.io", "v2", "CiliumNetworkPolicy", "Namespaced"},
	{"cilium.io", "v2", "CiliumClusterwideNetworkPolicy", "Cluster"},
	{"cilium.io", "v2", "CiliumCIDRGroup", "Cluster"},
}

func (c *cluster) applyPolicyCRDs(t *testing.T) {
	t.Helper()
	for _, k := range policyCRDs {
		plural := strings.ToLower(k.kind) + "s"
		if stem, ok := strings.CutSuffix(plural, "ys"); ok {
			plural = stem + "ies"
		}
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

// roleOf are the rights of a ClusterRole of the manifest, as VERB GROUP/RESOURCE.
func roleOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string]bool{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []struct{ APIGroups, Resources, Verbs []string }
		}
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" || role.Metadata.Name != name {
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

// rightOf is the right that a request needs, as [roleOf] writes it.
func rightOf(r apiserver.Request) string {
	right := r.Verb + " " + r.Group + "/" + r.Resource
	if r.Subresource != "" {
		right += "/" + r.Subresource
	}
	return right
}

// namesAll names each kind of objects that a policy can name, and has a field that is not known.
const namesAll = `
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: names, namespace: default}
spec:
  endpointSelector: {matchLabels: {app: none}}
  egress:
  - toEntities: [kube-apiserver]
  - toServices: [{k8sService: {serviceName: kubernetes, namespace: default}}]
  - toCIDRSet: [{cidrGroupRef: group}]
  - toUnknown: {}
`

// TestRights: the agent runs with its ClusterRole alone, and uses every right of it.
func TestRights(t *testing.T) {
	n := newMachine(t)
	n.applyPolicyCRDs(t)
	err := create(t.Context(), n.admin, "porinpools", pool("default"))
	if err != nil {
		t.Fatal(err)
	}
	n.startAgent("", "--store=kubernetes", "--ipam-mode=multi-pool", "--ipam-pod-cidr=")
	n.admin.Apply(t, "{apiVersion: v1, kind: Node, metadata: {name: "+n.machine.Name+"}, spec: {taints: [{key: porin.dev/agent-not-ready, effect: NoSchedule}]}}")
	used := func(right string) bool {
		return slices.ContainsFunc(n.Requests(t), func(r apiserver.Request) bool { return rightOf(r) == right })
	}
	wait := func(right string) {
		t.Helper()
		testutil.Eventually(t, func() error {
			if !used(right) {
				return fmt.Errorf("the agent has not used %q", right)
			}
			return nil
		})
	}
	n.admin.Apply(t, namesAll)
	web, _ := n.attach("web", n.create("web", nil))
	wait("create porin.dev/porinendpointgroups")
	n.create("web", map[string]any{"app": "web"})
	wait("update porin.dev/porinendpointgroups")
	if _, err := n.cni.Add(asPod(testutil.NewContainer(t), "ghost", "ghost")); err == nil { // the agent asks for a pod that no watch has told of
		t.Error("a pod that is not at the API server is attached")
	}

	wait("create /events") // of two nodes, the other one might write it
	other := porinnode.IDOfName("node2")
	err = create(t.Context(), n.admin, "porinnetworks", object("PorinNetwork", other.RecordName(), map[string]any{ // of a block of this node: whose podCIDR is it?
		"node": id(other.Name, other.Key), "agent": "a", "addresses": []any{"192.0.2.222"}, "routing": "native", "blocks": []any{"10.0.0.0/12"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	wait("get /nodes")

	n.agent.Stop(t) // the next start corrects both records
	n.changeRecord("porinnodes", func(record map[string]any) { record["spec"].(map[string]any)["machineID"] = "another" })
	n.replaceRecord("porinblocks", func(record map[string]any) { record["spec"].(map[string]any)["claim"] = "another" })
	n.agent.Start(t)
	wait("delete porin.dev/porinblocks")
	n.cni.MustDel(t, web)
	wait("delete porin.dev/porinendpointgroups")
	n.eachRecord("porinnodes", func(record map[string]any) { n.admin.Delete(t, pathOf("porinnodes", record)) })
	wait("update porin.dev/porinclusters") // the mark of a recovery

	rights := roleOf(t, "porin-agent")
	testutil.Eventually(t, func() error {
		unused := maps.Clone(rights)
		for _, request := range n.Requests(t) {
			if request.Code == http.StatusForbidden {
				t.Fatalf("the role lacks what the agent asks for: %+v", request)
			}
			delete(unused, rightOf(request))
		}
		if len(unused) > 0 {
			return fmt.Errorf("rights that the agent has not used: %q", slices.Sorted(maps.Keys(unused)))
		}
		return nil
	})
}

// eachRecord calls do with each record of a kind.
func (n *node) eachRecord(resource string, do func(map[string]any)) {
	n.Helper()
	var list struct{ Items []map[string]any }
	if err := n.admin.Do(n.Context(), http.MethodGet, group+resource, nil, &list); err != nil {
		n.Fatal(err)
	}
	if len(list.Items) == 0 {
		n.Fatalf("there is no record in %s", resource)
	}
	for _, record := range list.Items {
		do(record)
	}
}

// changeRecord changes each record of a kind.
func (n *node) changeRecord(resource string, change func(map[string]any)) {
	n.Helper()
	n.eachRecord(resource, func(record map[string]any) {
		change(record)
		if err := n.admin.Do(n.Context(), http.MethodPut, pathOf(resource, record), record, nil); err != nil {
			n.Fatal(err)
		}
	})
}

// replaceRecord deletes each record of a kind and creates another one in its place.
func (n *node) replaceRecord(resource string, change func(map[string]any)) {
	n.Helper()
	n.eachRecord(resource, func(record map[string]any) {
		n.admin.Delete(n, pathOf(resource, record))
		change(record)
		delete(record["metadata"].(map[string]any), "resourceVersion")
		delete(record["metadata"].(map[string]any), "uid")
		if err := create(n.Context(), n.admin, resource, record); err != nil {
			n.Fatal(err)
		}
	})
}
