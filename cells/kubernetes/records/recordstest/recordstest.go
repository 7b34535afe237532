// Package recordstest has the backend of package records on an API server in memory.
package recordstest

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records"
)

// Resources are the kinds of deploy/chart/templates/crds.yaml.
func Resources() (all []kubernetestest.Resource) {
	for resource, kind := range map[string]string{
		"porinnodes": "PorinNode", "porinsessions": "PorinSession", "porinpools": "PorinPool", "porinblocks": "PorinBlock", "porinclusters": "PorinCluster",
		"porinnetworks": "PorinNetwork", "porinendpointgroups": "PorinEndpointGroup",
	} {
		all = append(all, kubernetestest.Resource{GroupVersionResource: records.Version.WithResource(resource), Kind: kind})
	}
	return all
}

// Start returns an API server with Porin's kinds, and the backend on it.
func Start(t testing.TB) (*kubernetestest.Server, cluster.Backend) {
	t.Helper()
	server, kubeconfig := StartServer(t)
	return server, Backend(t, kubeconfig)
}

// StartServer returns an API server as [NewServer] does, and a kubeconfig for it.
func StartServer(t testing.TB) (server *kubernetestest.Server, kubeconfig string) {
	t.Helper()
	server = NewServer(t)
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	return server, kubernetestest.Kubeconfig(t, web.URL)
}

// NewServer returns an API server with the kinds that an agent reads and writes, and the definitions of Porin's kinds.
func NewServer(t testing.TB) *kubernetestest.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	kind := func(group, version, resource, kind string, namespaced bool) kubernetestest.Resource {
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		return kubernetestest.Resource{GroupVersionResource: gvr, Kind: kind, Namespaced: namespaced}
	}
	server := kubernetestest.New(scheme, append(Resources(),
		kind("", "v1", "namespaces", "Namespace", false), kind("", "v1", "nodes", "Node", false),
		kind("", "v1", "pods", "Pod", true), kind("", "v1", "services", "Service", true), kind("", "v1", "events", "Event", true),
		kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
		kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
	)...)
	server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-1"}})
	for _, name := range records.Definitions() {
		server.Put(Definition(name))
	}
	return server
}

// Definition is a custom resource definition with a name and nothing else.
func Definition(name string) map[string]any {
	return map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name}}
}

// Wipe deletes all records at the API server of a kubeconfig.
func Wipe(t testing.TB, kubeconfig string) {
	t.Helper()
	group, err := client(t, kubeconfig).Group(records.Version)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Resources() {
		if err := group.Delete().Resource(r.Resource).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// Backend is the backend on the API server of a kubeconfig.
func Backend(t testing.TB, kubeconfig string) cluster.Backend {
	t.Helper()
	b, err := kubernetes.NewBackend(client(t, kubeconfig), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func client(t testing.TB, kubeconfig string) *kubernetes.Client {
	t.Helper()
	c, err := kubernetes.NewClient(kubernetes.Config{Mode: kubernetes.ModeAuto, Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
