// Package recordstest has the backend of package records on an API server in memory.
package recordstest

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// StartServer returns an API server with Porin's kinds, Nodes and pods, and a kubeconfig for it.
func StartServer(t testing.TB) (server *kubernetestest.Server, kubeconfig string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	core := func(resource, kind string, namespaced bool) kubernetestest.Resource {
		return kubernetestest.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource(resource), Kind: kind, Namespaced: namespaced}
	}
	server = kubernetestest.New(scheme, append(Resources(), core("namespaces", "Namespace", false), core("nodes", "Node", false), core("pods", "Pod", true))...)
	server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-1"}})
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	return server, kubernetestest.Kubeconfig(t, web.URL)
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
