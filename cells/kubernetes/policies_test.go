package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/testutil"
)

// sink keeps the names of policies by kind.
type sink struct {
	mu  sync.Mutex // guards the field below
	has map[string]string
}

func (s *sink) add(data []byte) {
	var o struct {
		Kind     string
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(data, &o); err != nil {
		panic(err)
	}
	s.has[o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = string(data)
}

func (s *sink) ReplaceObjects(_ context.Context, kind string, objects [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.has, func(key, _ string) bool { return strings.HasPrefix(key, kind+" ") })
	for _, data := range objects {
		s.add(data)
	}
	return nil
}

func (s *sink) SetObject(_ context.Context, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(data)
	return nil
}

func (s *sink) RemoveObject(_ context.Context, id model.PolicyID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.has, id.Kind+" "+id.Namespace+"/"+id.Name)
	return nil
}

func (s *sink) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(s.has)), ", ")
}

// resourceOf is one whose objects the server has as JSON.
func resourceOf(k policyKind) kubernetestest.Resource {
	return kubernetestest.Resource{GroupVersionResource: k.GroupVersionResource, Kind: k.kind, Namespaced: model.Namespaced(k.kind)}
}

// policyObject has a status and another program's annotation, which are not kept.
func policyObject(k policyKind, name string) map[string]any {
	metadata := map[string]any{"name": name, "annotations": map[string]any{"other": "x", "porin.dev/audit": "true"}}
	if model.Namespaced(k.kind) {
		metadata["namespace"] = "shop"
	}
	return map[string]any{"apiVersion": k.GroupVersion().String(), "kind": k.kind, "metadata": metadata, "spec": map[string]any{}, "status": map[string]any{}}
}

func crdOf(k policyKind) map[string]any {
	return map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": k.Resource + "." + k.Group}}
}

// startPolicyWatch follows the policies of a server with NetworkPolicies and CiliumNetworkPolicies that fill fills.
func startPolicyWatch(t *testing.T, fill func(*kubernetestest.Server)) (*kubernetestest.Server, *policyWatch, *sink) {
	t.Helper()
	crds := kubernetestest.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Kind: "CustomResourceDefinition"}
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	kinds := policyKinds()
	server := kubernetestest.New(scheme, crds, resourceOf(kinds[0]), resourceOf(kinds[4]))
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	fill(server)
	client, err := NewClient(Config{Kubeconfig: kubernetestest.Kubeconfig(t, web.URL)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	got := &sink{has: map[string]string{"CiliumClusterwideNetworkPolicy /old": "of an earlier agent, whose CRD is gone"}}
	p, err := newPolicyWatch(client, got, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return server, p, got
}

// TestPolicyWatch: NetworkPolicies are watched from the start, and policies of a CRD while that is there, whenever it
// comes.
func TestPolicyWatch(t *testing.T) {
	kinds := policyKinds()
	network, cilium, clusterwide := kinds[0], kinds[4], kinds[5]
	server, p, got := startPolicyWatch(t, func(s *kubernetestest.Server) {
		s.Put(policyObject(network, "n"))
		s.Put(policyObject(cilium, "c"))
		s.Put(crdOf(cilium))
	})
	select {
	case <-p.ready:
	case <-time.After(testutil.Patience):
		t.Fatalf("not ready: %v", p.syncError())
	}
	if names := got.names(); !strings.HasSuffix(names, "CiliumNetworkPolicy shop/c, NetworkPolicy shop/n") {
		t.Errorf("ready with %s", names)
	}
	if document := got.has["NetworkPolicy shop/n"]; strings.Contains(document, "status") || strings.Contains(document, "other") || !strings.Contains(document, "porin.dev/audit") {
		t.Errorf("document %s, want no status and Porin's annotations alone", document)
	}
	becomes := func(want string) {
		t.Helper()
		testutil.Eventually(t, func() error {
			if names := got.names(); names != want {
				return fmt.Errorf("policies %s, want %s", names, want)
			}
			return nil
		})
	}
	becomes("CiliumNetworkPolicy shop/c, NetworkPolicy shop/n") // the earlier agent's end
	server.Serve(resourceOf(clusterwide))
	server.Put(policyObject(clusterwide, "w"))
	server.Put(crdOf(clusterwide))
	becomes("CiliumClusterwideNetworkPolicy /w, CiliumNetworkPolicy shop/c, NetworkPolicy shop/n")
	server.Delete("customresourcedefinitions", "", "ciliumnetworkpolicies.cilium.io")
	becomes("CiliumClusterwideNetworkPolicy /w, NetworkPolicy shop/n")
	server.Delete("networkpolicies", "shop", "n")
	becomes("CiliumClusterwideNetworkPolicy /w")
	server.Put(crdOf(cilium))
	becomes("CiliumClusterwideNetworkPolicy /w, CiliumNetworkPolicy shop/c")
}

// TestPolicyWatchCRDGone: a CRD that goes before its policies could be listed holds up no pod.
func TestPolicyWatchCRDGone(t *testing.T) {
	kinds := policyKinds()
	server, p, _ := startPolicyWatch(t, func(s *kubernetestest.Server) {
		s.Fault(func(q kubernetestest.Request) *kubernetestest.Fault {
			if q.Resource == kinds[4].Resource {
				return &kubernetestest.Fault{Code: 403}
			}
			return nil
		})
		s.Put(crdOf(kinds[4]))
	})
	testutil.Eventually(t, func() error {
		if err := p.syncError(); err == nil {
			return errors.New("the kind is not refused yet")
		}
		return nil
	})
	select {
	case <-p.ready:
		t.Error("ready without the policies of a kind that the API server has")
	default:
	}
	server.Delete("customresourcedefinitions", "", crdOf(kinds[4])["metadata"].(map[string]any)["name"].(string))
	select {
	case <-p.ready:
	case <-time.After(testutil.Patience):
		t.Error("not ready after the CRD is gone")
	}
}
