package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// everything is a role of the test that leaves the admission policies alone to hold the agent.
const everything = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everything}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything}
subjects: [{kind: ServiceAccount, name: porin-agent, namespace: kube-system}]
`

const (
	group  = "/apis/porin.dev/v1alpha1/"
	keyOf1 = "aaaaaaaaaa"
	keyOf2 = "bbbbbbbbbb"
)

// object is an object of one of Porin's kinds.
func object(kind, name string, spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": "porin.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
}

// records are the kinds whose records belong to a node.
var records = []struct {
	resource string
	of       func(node, key string) map[string]any
}{
	{"porinnodes", func(node, key string) map[string]any {
		return object("PorinNode", node+"."+key, map[string]any{"id": id(node, key), "state": "active", "created": "2026-01-01T00:00:00Z"})
	}},
	{"porinsessions", func(node, key string) map[string]any {
		return object("PorinSession", node+"."+key, map[string]any{"node": id(node, key), "id": "s", "boot": "b", "contact": "2026-01-01T00:00:00Z"})
	}},
	{"porinblocks", func(node, key string) map[string]any {
		third := strings.TrimPrefix(node, "node")
		return object("PorinBlock", "10-0-"+third+"-0-26", map[string]any{
			"cidr": "10.0." + third + ".0/26", "pool": "default", "poolUID": "u", "owner": id(node, key), "claim": "c", "created": "2026-01-01T00:00:00Z",
		})
	}},
	{"porinnetworks", func(node, key string) map[string]any {
		return object("PorinNetwork", node+"."+key, map[string]any{"node": id(node, key), "agent": "a", "addresses": []string{"192.0.2.1"}, "routing": "native"})
	}},
	{"porinendpointgroups", func(node, key string) map[string]any {
		return object("PorinEndpointGroup", node+"."+key+".0", map[string]any{"node": id(node, key), "slot": 0})
	}},
}

func id(node, key string) map[string]any { return map[string]any{"name": node, "key": key} }

func pathOf(resource string, object map[string]any) string {
	return group + resource + "/" + object["metadata"].(map[string]any)["name"].(string)
}

// hostile is a cluster whose agents have every right, so that the admission policies alone hold them.
type hostile struct {
	*testing.T
	*cluster
	agent *apiserver.Client // of node1
}

// TestHostile has every row on one API server.
func TestHostile(t *testing.T) {
	testutil.Root(t)
	h := &hostile{T: t, cluster: newCluster(t, apiserver.Start(t, testutil.NewFabric(t)))}
	h.admin.Apply(t, everything)
	h.admin.Apply(t, "{apiVersion: v1, kind: Node, metadata: {name: node2}}")
	h.agent = h.Client(h.Agent(t, "node1", "").Token)
	t.Cleanup(h.agent.Close)
	for _, probe := range []string{group + "porinpools/probe", "/api/v1/nodes/node2"} { // until the API server has read both policies
		testutil.Eventually(t, func() error {
			err := h.agent.Patch(t.Context(), probe+"?fieldManager=test&dryRun=All", apiserver.MergePatch, map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "b"}}})
			if strings.HasSuffix(probe, "probe") {
				err = h.agent.Do(t.Context(), http.MethodPost, group+"porinpools?dryRun=All", pool("probe"), nil)
			}
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				return fmt.Errorf("answer to %s: %v, want a refusal by a policy", probe, err)
			}
			return nil
		})
	}
	for _, part := range []struct {
		name string
		test func(*hostile)
	}{{"Records", (*hostile).records}, {"Token", (*hostile).token}, {"ClusterRecord", (*hostile).clusterRecord}, {"Node", (*hostile).node}} {
		t.Run(part.name, func(t *testing.T) { part.test(&hostile{t, h.cluster, h.agent}) })
	}
}

func pool(name string) map[string]any {
	return object("PorinPool", name, map[string]any{"name": name, "uid": "u", "state": "accepted", "ipv4BlockBits": 26, "ipv6BlockBits": 122, "quarantine": 0, "prefixes": []string{"10.0.0.0/16"}})
}

// refused checks that a request was refused, and with which reason.
func (h *hostile) refused(what string, err error, says string) {
	h.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		h.Errorf("%s: %v, want a refusal that says %q", what, err, says)
	}
}

func (h *hostile) passes(what string, err error) {
	h.Helper()
	if err != nil {
		h.Errorf("%s: %v", what, err)
	}
}

// create makes an object by POST.
func create(ctx context.Context, c *apiserver.Client, resource string, object map[string]any) error {
	return c.Do(ctx, http.MethodPost, group+resource, object, nil)
}

// change merges into an object.
func change(ctx context.Context, c *apiserver.Client, path string, patch map[string]any) error {
	return c.Patch(ctx, path, apiserver.MergePatch, patch)
}

func (h *hostile) remove(c *apiserver.Client, path string) error {
	return c.Do(h.Context(), http.MethodDelete, path, nil, nil)
}

func spec(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
func meta(fields map[string]any) map[string]any { return map[string]any{"metadata": fields} }

const ownRecords = "records of its own node alone, node1"

// records: an agent writes records of its own node alone.
func (h *hostile) records() {
	ctx := h.Context()
	for _, r := range records {
		mine, others := r.of("node1", keyOf1), r.of("node2", keyOf2)
		path, pathOfOthers := pathOf(r.resource, mine), pathOf(r.resource, others)
		what := func(does string) string { return does + " in " + r.resource }

		h.refused(what("create of another node's record"), create(ctx, h.agent, r.resource, others), ownRecords)
		h.passes(what("create by the administrator"), create(ctx, h.admin, r.resource, others))
		owned := r.of("node1", keyOf1)
		owned["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}}
		h.refused(what("create with an owner"), create(ctx, h.agent, r.resource, owned), "no owner")
		h.passes(what("create of the own record"), create(ctx, h.agent, r.resource, mine))
		h.passes(what("a label of the own record"), change(ctx, h.agent, path, meta(map[string]any{"labels": map[string]any{"a": "b"}})))
		h.refused(what("a finalizer of the own record"), change(ctx, h.agent, path, meta(map[string]any{"finalizers": []string{"example.com/hold"}})), "no finalizer")
		h.refused(what("a label of another node's record"), change(ctx, h.agent, pathOfOthers, meta(map[string]any{"labels": map[string]any{"a": "b"}})), ownRecords)
		for key, of := range mine["spec"].(map[string]any) {
			if node, ok := of.(map[string]any); ok && node["name"] == "node1" { // the CRD refuses this before the policy
				h.refused(what("giving the own record to another node"), change(ctx, h.agent, path, spec(map[string]any{key: id("node2", keyOf1)})), "never changes")
				h.refused(what("taking another node's record"), change(ctx, h.agent, pathOfOthers, spec(map[string]any{key: id("node1", keyOf2)})), "never changes")
			}
		}
		h.refused(what("delete of another node's record"), h.remove(h.agent, pathOfOthers), ownRecords)
		h.passes(what("delete of the own record"), h.remove(h.agent, path))
		h.refused(what("delete of the collection"), h.remove(h.agent, group+r.resource), ownRecords)
		h.passes(what("another node's record"), h.admin.Do(ctx, http.MethodGet, pathOfOthers, nil, nil))
	}
	hashed := object("PorinSession", strings.Repeat("a", 32)+"."+keyOf1, map[string]any{"node": id("node1", keyOf1), "id": "s", "boot": "b", "contact": "2026-01-01T00:00:00Z"})
	h.refused("create under the name of a node with a long name", create(ctx, h.agent, "porinsessions", hashed), ownRecords)
	for what, row := range map[string]struct {
		name string
		slot int
	}{
		"a group under the name of a node whose name begins with the own one": {"node1.b." + keyOf2 + ".0", 0},
		"a group whose slot is written in another way":                        {"node1." + keyOf2 + ".00", 0},
	} {
		err := create(ctx, h.agent, "porinendpointgroups", object("PorinEndpointGroup", row.name, map[string]any{"node": id("node1", keyOf2), "slot": row.slot}))
		h.refused(what, err, "the name")
	}
	h.refused("create of a pool", create(ctx, h.agent, "porinpools", pool("own")), ownRecords)
	h.passes("create of a pool by the administrator", create(ctx, h.admin, "porinpools", pool("theirs")))
	h.refused("change of a pool", change(ctx, h.agent, group+"porinpools/theirs", spec(map[string]any{"disabled": true})), ownRecords)
	h.refused("delete of a pool", h.remove(h.agent, group+"porinpools/theirs"), ownRecords)
}

// token: a token that names no node writes nothing.
func (h *hostile) token() {
	ctx := h.Context()
	var answer struct{ Status struct{ Token string } }
	err := h.admin.Do(ctx, http.MethodPost, "/api/v1/namespaces/kube-system/serviceaccounts/porin-agent/token",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}, &answer)
	if err != nil {
		h.Fatal(err)
	}
	agent := h.Client(answer.Status.Token)
	h.Cleanup(agent.Close)
	for _, r := range records {
		h.refused("create in "+r.resource, create(ctx, agent, r.resource, r.of("node1", keyOf1)), "bound to its pod")
	}
	h.refused("the record of the cluster", create(ctx, agent, "porinclusters", object("PorinCluster", "cluster", map[string]any{"id": "x"})), "bound to its pod")
	h.refused("a taint", change(ctx, agent, "/api/v1/nodes/node1", spec(map[string]any{"taints": []any{}, "unschedulable": true})), "own node")
}

// clusterRecord: every agent may create the record of the cluster and set the mark of a recovery; none may take it
// away.
func (h *hostile) clusterRecord() {
	ctx := h.Context()
	const path = group + "porinclusters/cluster"
	mark := func(id string) map[string]any {
		return map[string]any{"id": id, "began": "2026-01-01T00:00:00Z", "reason": "test"}
	}
	as := func(c *apiserver.Client, fields map[string]any) error { return change(ctx, c, path, spec(fields)) }
	record := func(fields map[string]any) map[string]any { return object("PorinCluster", "cluster", fields) }

	h.refused("create with a removed node", create(ctx, h.agent, "porinclusters", record(map[string]any{"id": "x", "removed": []string{keyOf2}})), "removes a node")
	h.refused("create without a default pool", create(ctx, h.agent, "porinclusters", record(map[string]any{"id": "x", "defaultPoolRemoved": true})), "default pool")
	h.refused("create with an ended recovery", create(ctx, h.agent, "porinclusters", record(map[string]any{"id": "x", "endedRecoveries": []string{"a"}})), "endedRecoveries only")
	h.passes("create with a mark", create(ctx, h.agent, "porinclusters", record(map[string]any{"id": "x", "recovery": mark("r0")})))
	h.refused("delete", h.remove(h.agent, path), "administrator")
	h.passes("delete by the administrator", h.remove(h.admin, path))
	h.passes("create", create(ctx, h.agent, "porinclusters", record(map[string]any{"id": "x"})))

	h.refused("another ID", as(h.agent, map[string]any{"id": "y"}), "administrator")
	h.refused("an owner", change(ctx, h.agent, path, meta(map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}}})), "no owner")
	h.refused("no default pool", as(h.agent, map[string]any{"defaultPoolRemoved": true}), "default pool")
	h.refused("an ended recovery that never was", as(h.agent, map[string]any{"endedRecoveries": []string{"a"}}), "endedRecoveries only")
	h.passes("the mark", as(h.agent, map[string]any{"recovery": mark("r1")}))
	h.refused("the end of the recovery", as(h.agent, map[string]any{"recovery": nil}), "ends a recovery")
	h.refused("the end of the recovery, as the administrator does it", as(h.agent, map[string]any{"recovery": nil, "endedRecoveries": []string{"r1"}}), "ends a recovery")
	h.passes("another mark in its place", as(h.agent, map[string]any{"recovery": mark("r2"), "endedRecoveries": []string{"r1"}}))
	h.passes("the end of the recovery by the administrator", as(h.admin, map[string]any{"recovery": nil, "endedRecoveries": []string{"r1", "r2"}}))

	h.refused("a removed node", as(h.agent, map[string]any{"removed": []string{keyOf2}}), "removes a node")
	keys := make([]string, 1000) // as many as there may be
	for i := range keys {
		keys[i] = fmt.Sprintf("key%07d", i)
	}
	h.passes("removed nodes by the administrator", as(h.admin, map[string]any{"removed": keys}))
	h.refused("another node in the place of one that is there again", as(h.agent, map[string]any{"removed": append(keys[1:len(keys):len(keys)], keyOf2)}), "removes a node")
	h.passes("a node that is there again", as(h.agent, map[string]any{"removed": keys[1:]}))
}

// node: of its Node an agent changes the condition NetworkUnavailable and taints of porin.dev alone, and of others
// nothing.
func (h *hostile) node() {
	ctx := h.Context()
	taint := func(key string) map[string]any { return map[string]any{"key": key, "effect": "NoSchedule"} }
	images := make([]any, 50) // as many as the kubelet tells of
	for i := range images {
		images[i] = map[string]any{"names": []string{fmt.Sprintf("registry.example.com/%d@sha256:%064d", i, i), fmt.Sprintf("registry.example.com/%d:v1", i)}, "sizeBytes": i}
	}
	for _, node := range []string{"node1", "node2"} {
		h.passes("taints by the administrator", change(ctx, h.admin, "/api/v1/nodes/"+node, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"team": "a"}},
			"spec":     map[string]any{"podCIDRs": []string{"10.0.0.0/24"}, "podCIDR": "10.0.0.0/24", "taints": []any{taint("porin.dev/agent-not-ready"), taint("team")}},
		}))
		h.passes("status by the administrator", change(ctx, h.admin, "/api/v1/nodes/"+node+"/status", map[string]any{"status": map[string]any{
			"capacity": map[string]any{"pods": "110"}, "images": images, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "NetworkUnavailable", "status": "True"}},
		}}))
	}
	own, others := "/api/v1/nodes/node1", "/api/v1/nodes/node2"
	operations := func(list ...map[string]any) []map[string]any { return list }
	test := func(path string, value any) map[string]any {
		return map[string]any{"op": "test", "path": path, "value": value}
	}
	conditions := func(network, ready string) map[string]any {
		return map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "NetworkUnavailable", "status": network}, map[string]any{"type": "Ready", "status": ready},
		}}}
	}
	const strategic = "application/strategic-merge-patch+json"

	for what, patch := range map[string]map[string]any{
		"another's taint":         spec(map[string]any{"taints": []any{taint("porin.dev/agent-not-ready")}}),
		"another taint":           spec(map[string]any{"taints": []any{taint("porin.dev/agent-not-ready"), taint("team"), taint("new")}}),
		"all taints":              spec(map[string]any{"taints": nil}),
		"unschedulable":           spec(map[string]any{"unschedulable": true}),
		"the provider's ID":       spec(map[string]any{"providerID": "x"}),
		"a label":                 meta(map[string]any{"labels": map[string]any{"node-role.kubernetes.io/control-plane": ""}}),
		"no label":                meta(map[string]any{"labels": nil}),
		"an annotation":           meta(map[string]any{"annotations": map[string]any{"a": "b"}}),
		"a finalizer":             meta(map[string]any{"finalizers": []string{"example.com/hold"}}),
		"an owner":                meta(map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}}}),
		"a taint and a condition": {"spec": map[string]any{"taints": nil}, "status": map[string]any{"conditions": nil}},
	} {
		h.refused(what, change(ctx, h.agent, own, patch), "an agent")
	}
	for what, patch := range map[string]map[string]any{
		"capacity":          {"status": map[string]any{"capacity": map[string]any{"pods": "0"}}},
		"addresses":         {"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "192.0.2.9"}}}},
		"images":            {"status": map[string]any{"images": []any{map[string]any{"names": []string{"a"}}}}},
		"another condition": conditions("False", "False"),
		"a label by status": meta(map[string]any{"labels": map[string]any{"team": "b"}}),
	} {
		h.refused("status: "+what, h.agent.Patch(ctx, own+"/status", strategic, patch), "an agent")
	}
	h.refused("the condition of another node", h.agent.Patch(ctx, others+"/status", strategic, conditions("False", "True")), "own node alone, node1")
	h.refused("a taint of another node", h.agent.Patch(ctx, others, apiserver.JSONPatch, operations(
		test("/spec/taints/0/key", "porin.dev/agent-not-ready"), map[string]any{"op": "remove", "path": "/spec/taints/0"})), "own node alone, node1")
	h.refused("a label of another node", change(ctx, h.agent, others, meta(map[string]any{"labels": map[string]any{"team": "b"}})), "own node alone, node1")

	h.passes("the own condition", h.agent.Patch(ctx, own+"/status", strategic, conditions("False", "True")))
	h.passes("the own taint", h.agent.Patch(ctx, own, apiserver.JSONPatch, operations(
		test("/spec/taints/0/key", "porin.dev/agent-not-ready"), map[string]any{"op": "remove", "path": "/spec/taints/0"})))
	h.passes("another own taint", h.agent.Patch(ctx, own, apiserver.JSONPatch, operations(
		map[string]any{"op": "add", "path": "/spec/taints/-", "value": taint("porin.dev/agent-not-ready")})))
}
