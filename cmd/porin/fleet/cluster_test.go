package fleet

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestNodeOf: an address of a pod's second family may be written in any way.
func TestNodeOf(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if r.URL.Query().Get("fieldSelector") == "" {
			pod := corev1.Pod{}
			pod.Spec.NodeName, pod.Status.PodIPs = "n1", []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
			list.Items = append(list.Items, pod)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	cluster, err := Connect(&rest.Config{Host: server.URL}, DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"fd00::1", "FD00::1", "fd00:0::1", "::ffff:10.0.0.1"} {
		if node, err := cluster.NodeOf(t.Context(), address); err != nil || node != "n1" {
			t.Errorf("%s: node %q, %v", address, node, err)
		}
	}
	if _, err := cluster.NodeOf(t.Context(), "web-1"); err == nil {
		t.Error("a name without a namespace is taken")
	}
}
