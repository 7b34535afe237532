package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/testutil"
)

// referenceSink is a ReferenceSink.
type referenceSink struct {
	mu       sync.Mutex // guards the fields below
	wanted   []model.Reference
	changed  chan struct{}
	resolved map[model.Reference]model.Resolution
}

func (s *referenceSink) FollowReferences() {}

func (s *referenceSink) References() ([]model.Reference, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wanted), s.changed
}

func (s *referenceSink) Resolve(_ context.Context, reference model.Reference, to model.Resolution) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resolved[reference] = to
	return nil
}

func (s *referenceSink) PruneReferences(_ context.Context, followed []model.Reference) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.resolved, func(r model.Reference, _ model.Resolution) bool { return !slices.Contains(followed, r) })
	return nil
}

func (s *referenceSink) want(references ...model.Reference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = references
	close(s.changed)
	s.changed = make(chan struct{})
}

// text is a short form of what the references select.
func (s *referenceSink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for reference, to := range s.resolved {
		pods := []string{}
		for _, p := range to.Pods {
			pods = append(pods, p.Namespace+"/"+p.Labels[0].Values[0])
		}
		lines = append(lines, fmt.Sprintf("%s: pods %v, prefixes %v, host %t, unknown %t, %s", reference, pods, to.Prefixes, to.Host, to.Unknown, to.Problem))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func objectOf(version, kind, namespace, name string, labels map[string]any, more map[string]any) map[string]any {
	metadata := map[string]any{"name": name, "labels": labels}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	o := map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata}
	maps.Copy(o, more)
	return o
}

func serviceOf(name, role string, selector map[string]any) map[string]any {
	return objectOf("v1", "Service", "shop", name, map[string]any{"role": role}, map[string]any{"spec": map[string]any{"selector": selector}})
}

// TestReferenceWatch follows objects by name and by labels while policies name them, and asks for nothing else.
func TestReferenceWatch(t *testing.T) {
	resource := func(group, version, name, kind string, namespaced bool) kubernetestest.Resource {
		return kubernetestest.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: name}, Kind: kind, Namespaced: namespaced}
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	server := kubernetestest.New(scheme, resource("", "v1", "services", "Service", true), resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
		resource("cilium.io", "v2", "ciliumcidrgroups", "CiliumCIDRGroup", false), resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
		resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true))
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	server.Put(serviceOf("db", "data", map[string]any{"app": "db"}))
	server.Put(serviceOf("cache", "data", map[string]any{"app": "cache"}))
	server.Put(serviceOf("other", "web", map[string]any{"app": "other"}))
	server.Put(serviceOf("outside", "web", nil))
	endpoints := func(addresses ...any) map[string]any {
		return objectOf("discovery.k8s.io/v1", "EndpointSlice", "default", "kubernetes", nil, map[string]any{"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": addresses}}})
	}
	server.Put(endpoints("192.0.2.1"))
	server.Put(objectOf("discovery.k8s.io/v1", "EndpointSlice", "default", "another", nil, nil))

	cfg := Config{Kubeconfig: kubernetestest.Kubeconfig(t, web.URL), Servers: []string{web.URL, "https://[2001:db8::1]:6443", "https://api.example.org"}}
	client, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	quiet := slog.New(slog.DiscardHandler)
	policies, err := newPolicyWatch(client, &sink{has: map[string]string{}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	got := &referenceSink{changed: make(chan struct{}), resolved: map[model.Reference]model.Resolution{}}
	r := newReferenceWatch(cfg, client, got, policies, quiet)
	r.isHost = func(addr netip.Addr) bool { return addr == netip.MustParseAddr("192.0.2.2") }
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = policies.run(ctx) })
	ended.Go(func() { _ = r.run(ctx) })
	t.Cleanup(func() { cancel(); ended.Wait() })
	wants := func(when string, lines ...string) {
		t.Helper()
		testutil.Eventually(t, func() error {
			if text := got.text(); text != strings.Join(lines, "\n") {
				return fmt.Errorf("%s:\n%s\nwant\n%s", when, text, strings.Join(lines, "\n"))
			}
			return nil
		})
	}
	const group = "CiliumCIDRGroup office: pods [], prefixes [], host false, unknown false, the Kubernetes API has none"
	got.want(model.Reference{Kind: model.Service, Namespace: "shop", Name: "db"}, model.Reference{Kind: model.Service, Namespace: "shop", Labels: "role=data"},
		model.Reference{Kind: model.Service, Namespace: "shop", Name: "outside"}, model.Reference{Kind: model.KubeAPIServer}, model.Reference{Kind: model.CIDRGroup, Name: "office"})
	wants("at first", group,
		"Service shop/(role=data): pods [shop/cache shop/db], prefixes [], host false, unknown false, ",
		"Service shop/db: pods [shop/db], prefixes [], host false, unknown false, ",
		"Service shop/outside: pods [], prefixes [], host false, unknown true, the Service shop/outside has no selector: its endpoints are not known",
		"kube-apiserver: pods [], prefixes [192.0.2.1/32 2001:db8::1/128], host false, unknown false, ")

	server.Put(objectOf("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "ciliumcidrgroups.cilium.io", nil, nil))
	server.Put(objectOf("cilium.io/v2", "CiliumCIDRGroup", "", "office", nil, map[string]any{"spec": map[string]any{"externalCIDRs": []any{"198.51.100.0/24", "2001:db8::/32"}}}))
	server.Put(endpoints("192.0.2.2"))
	server.Delete("services", "shop", "cache")
	server.Put(serviceOf("outside", "web", map[string]any{"app": "inside"}))
	const groupKnown = "CiliumCIDRGroup office: pods [], prefixes [198.51.100.0/24 2001:db8::/32], host false, unknown false, "
	const after = "kube-apiserver: pods [], prefixes [192.0.2.2/32 2001:db8::1/128], host true, unknown false, "
	wants("after changes", groupKnown,
		"Service shop/(role=data): pods [shop/db], prefixes [], host false, unknown false, ",
		"Service shop/db: pods [shop/db], prefixes [], host false, unknown false, ",
		"Service shop/outside: pods [shop/inside], prefixes [], host false, unknown false, ", after)
	server.Delete("customresourcedefinitions", "", "ciliumcidrgroups.cilium.io")
	server.Delete("services", "shop", "db")
	wants("after deletions", group,
		"Service shop/(role=data): pods [], prefixes [], host false, unknown false, the Kubernetes API has none",
		"Service shop/db: pods [], prefixes [], host false, unknown false, the Kubernetes API has none",
		"Service shop/outside: pods [shop/inside], prefixes [], host false, unknown false, ", after)

	got.want()
	testutil.Eventually(t, func() error {
		if states := r.states(); len(states) > 0 {
			return fmt.Errorf("watches that no policy asks for: %v", states)
		}
		return nil
	})
	for _, request := range server.Requests() {
		if kind := request.Resource; request.Selector == "" && (kind == "services" || kind == "endpointslices" || kind == "ciliumcidrgroups") {
			t.Errorf("%+v asks for a whole kind", request)
		}
	}
}
