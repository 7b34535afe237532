package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// porin runs the command line where in runs it, and returns what it prints.
func porin(t *testing.T, in func(func() error) error, args ...string) (string, error) {
	t.Helper()
	var text strings.Builder
	cmd := exec.CommandContext(t.Context(), filepath.Join(testutil.Build(t), "porin"), args...)
	cmd.Stdout, cmd.Stderr = &text, &text
	err := in(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return text.String(), err
}

// TestAdministrator: the agent refuses what its role does not cover. An administrator creates the pool with a
// kubeconfig, and pods get addresses of it; a user without rights is told so by the API server.
func TestAdministrator(t *testing.T) {
	n := newMachine(t)
	n.startAgent("", "--store=kubernetes", "--ipam-mode=multi-pool", "--ipam-pod-cidr=")
	run := func(fails bool, says string, args ...string) {
		t.Helper()
		text, err := porin(t, n.machine.Do, args...)
		if (err != nil) != fails || !strings.Contains(text, says) {
			t.Errorf("porin %s: %v: %s, want %q", strings.Join(args, " "), err, text, says)
		}
	}
	testutil.Eventually(t, func() error { // a CRD that is new answers 429 at first
		return n.admin.Do(t.Context(), http.MethodGet, group+"porinblocks", nil, nil)
	})
	socket, admin := "--socket="+n.machine.Socket, "--kubeconfig="+n.AdminKubeconfig(t)
	create := []string{"pool", "create", "default", "--prefix=10.64.0.0/16"}
	run(true, "porin cluster pool create, or pool set", append(create, socket)...)
	run(true, "forbidden", append([]string{"cluster"}, append(create, "--kubeconfig="+n.AccountKubeconfig(t, "porin-node-gc"))...)...)
	run(false, "10.64.0.0/16", append([]string{"cluster"}, append(create, admin)...)...)
	n.attach("web", n.create("web", nil))
	run(false, "10.64.0.0/16", "pool", "list", socket)
	run(false, n.machine.Name, "node", "list", socket)
	run(false, n.machine.Name, "cluster", "node", "list", admin)
	run(true, "porin cluster node delete", "node", "delete", n.machine.Name, "--machine-is-off", socket)
	run(true, "porin cluster ipam recover --end", "ipam", "recover", "--end", socket)
	run(true, "its machine", "cluster", "node", "delete", n.machine.Name, admin)
	run(false, "blue", "cluster", "pool", "create", "blue", "--prefix=10.65.0.0/16", admin)
	run(false, "10.66.0.0/16", "cluster", "pool", "set", "blue", "--prefix=10.65.0.0/16,10.66.0.0/16", admin)
	run(false, "deleted", "cluster", "pool", "delete", "blue", admin)
	for _, request := range n.Requests(t) {
		if request.Code == http.StatusForbidden {
			t.Errorf("the agent has tried what its role does not cover: %+v", request)
		}
	}
}

// TestRightsNodeGC: porin cluster node gc runs with its ClusterRole alone, under the admission policies, and uses every
// right of it. It leaves a node whose Node is there.
func TestRightsNodeGC(t *testing.T) {
	const account = "porin-node-gc"
	c := newCluster(t, apiserver.StartLocal(t))
	kubeconfig := c.AccountKubeconfig(t, account)
	for _, r := range records {
		for node, key := range map[string]string{"node1": keyOf1, "node2": keyOf2} {
			if err := create(t.Context(), c.admin, r.resource, r.of(node, key)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.admin.Apply(t, "{apiVersion: v1, kind: Node, metadata: {name: node2}}")
	testutil.Eventually(t, func() error { // a CRD that is new answers 429 at first
		return c.admin.Do(t.Context(), http.MethodGet, group+"porinclusters", nil, nil)
	})
	here := func(f func() error) error { return f() }
	gc := func(says string) {
		t.Helper()
		if text, err := porin(t, here, "cluster", "node", "gc", "--wait=0s", "--kubeconfig="+kubeconfig); err != nil || !strings.Contains(text, says) {
			t.Errorf("porin cluster node gc: %v: %s, want %q", err, text, says)
		}
	}
	gc("there is no Node node1")
	for _, r := range records {
		if err := c.admin.Do(t.Context(), http.MethodGet, pathOf(r.resource, r.of("node1", keyOf1)), nil, nil); err == nil {
			t.Errorf("a record of the node that is gone is left in %s", r.resource)
		}
		if err := c.admin.Do(t.Context(), http.MethodGet, pathOf(r.resource, r.of("node2", keyOf2)), nil, nil); err != nil {
			t.Errorf("the node that is there has lost its record in %s: %v", r.resource, err)
		}
	}
	c.admin.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	c.admin.Apply(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}")
	c.admin.Apply(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {nodeName: node2, containers: [{name: a, image: none}]}}")
	c.admin.Delete(t, "/api/v1/nodes/node2")
	gc("pod shop/web is bound to it")
	c.admin.Delete(t, "/api/v1/namespaces/shop/pods/web?gracePeriodSeconds=0")
	gc("deleted")

	rights := roleOf(t, account)
	testutil.Eventually(t, func() error {
		unused := maps.Clone(rights)
		for _, request := range c.RequestsOf(t, account) {
			if request.Code == http.StatusForbidden {
				t.Fatalf("the role lacks what porin cluster node gc asks for: %+v", request)
			}
			delete(unused, request.Verb+" "+request.Group+"/"+request.Resource)
		}
		if len(unused) > 0 {
			return fmt.Errorf("rights that porin cluster node gc has not used: %q", slices.Sorted(maps.Keys(unused)))
		}
		return nil
	})
}
