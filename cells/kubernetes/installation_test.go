package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/internal/testutil"
)

var daemonSets = kubernetestest.Resource{
	GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, Kind: "DaemonSet", Namespaced: true,
}

// installationOf is an agent's part of a fake API server with Nodes and DaemonSets.
func installationOf(t *testing.T, daemonSet string) (i *Installation, server *kubernetestest.Server, policies chan struct{}) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	server = kubernetestest.New(scheme, kubernetestest.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Kind: "Node"}, daemonSets)
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	client, err := NewClient(Config{Kubeconfig: kubernetestest.Kubeconfig(t, web.URL)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	own, err := newOwnNode(client, "n1", "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	policies = make(chan struct{})
	namespaces, err := newNamespaces(client, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	crds, err := newPolicyWatch(client, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	watches, err := newWatches(client, own, namespaces, crds, &referenceWatch{}, "n1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	watches.store = &Pods{policies: policies, wake: make(chan struct{}, 1), changed: make(chan struct{}), listed: make(chan struct{})}
	i, err = newInstallation(Config{DaemonSet: daemonSet, NeedPodCIDRs: true}, client, watches, own, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	own.task.Start(nil)
	i.task.Start(nil)
	t.Cleanup(func() {
		if err := errors.Join(i.task.Stop(context.Background()), own.task.Stop(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return i, server, policies
}

func TestInstallationWaitKnown(t *testing.T) {
	i, server, policies := installationOf(t, "")
	server.Put(nodeObjectOf("n1", "u1"))
	isKnown := make(chan error, 1)
	go func() { isKnown <- i.WaitKnown(t.Context()) }()
	for _, step := range []struct {
		missing string
		add     func()
	}{
		{"policies", func() { close(policies) }},
		{"pods", func() { podHandler{i.watches.store}.Replace(nil) }},
		{"namespaces", func() { i.watches.namespaces.Replace(nil) }},
		{"podCIDRs", func() { server.Put(nodeObjectOf("n1", "u1", "10.1.0.0/24")) }},
	} {
		select {
		case err := <-isKnown:
			t.Fatalf("all is known without %s, error %v", step.missing, err)
		case <-time.After(10 * time.Millisecond):
		}
		if missing, _ := i.missing(); !strings.Contains(missing, step.missing) {
			t.Errorf("%q is missing, want %s", missing, step.missing)
		}
		step.add()
	}
	if err := <-isKnown; err != nil {
		t.Error(err)
	}
}

// The Node loses the taint and gets the condition when pods can start, and again when they are set later.
func TestInstallationNodeReady(t *testing.T) {
	i, server, _ := installationOf(t, "kube-system/unreadable")
	notReady := nodeObjectOf("n1", "u1", "10.1.0.0/24")
	other := corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoSchedule}
	notReady.Spec.Taints = []corev1.Taint{{Key: NotReadyTaint, Effect: corev1.TaintEffectNoSchedule}, other, {Key: NotReadyTaint, Effect: corev1.TaintEffectNoExecute}}
	notReady.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"},
	}
	server.Put(notReady)
	testutil.Eventually(t, func() error {
		if node, _ := i.node.value.Get(); !node.NotReady {
			return errors.New("the watch has not told of the Node")
		}
		return nil
	})
	for _, request := range server.Requests() {
		if request.Verb == "patch" {
			t.Error("the Node was changed before pods can start")
		}
	}
	i.SetReady()
	for round := range 2 {
		testutil.Eventually(t, func() error {
			var node corev1.Node
			if err := i.node.core.Get().Resource("nodes").Name("n1").Do(t.Context()).Into(&node); err != nil {
				return err
			}
			if hasTaint(&node) || len(node.Spec.Taints) != 1 || !hasNetwork(&node) || len(node.Status.Conditions) != 2 || node.Status.Addresses[0].Address != "192.0.2.1" {
				return fmt.Errorf("round %d: taints %v, conditions %v", round, node.Spec.Taints, node.Status.Conditions)
			}
			return nil
		})
		server.Put(notReady)
	}
}

func TestInstallationUninstalled(t *testing.T) {
	set := func(deleted bool) map[string]any {
		metadata := map[string]any{"name": "porin-agent", "namespace": "kube-system"}
		if deleted {
			metadata["deletionTimestamp"] = "2026-11-28T00:00:00Z"
		}
		return map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
	}
	code := func(code int) func(*kubernetestest.Server) {
		return func(s *kubernetestest.Server) {
			s.Fault(func(r kubernetestest.Request) *kubernetestest.Fault {
				if r.Resource == "daemonsets" {
					return &kubernetestest.Fault{Code: code}
				}
				return nil
			})
		}
	}
	for name, c := range map[string]struct {
		daemonSet string
		then      func(*kubernetestest.Server)
		want      bool
	}{
		"there":                      {"kube-system/porin-agent", func(*kubernetestest.Server) {}, false},
		"gone":                       {"kube-system/porin-agent", func(s *kubernetestest.Server) { s.Delete("daemonsets", "kube-system", "porin-agent") }, true},
		"being deleted":              {"kube-system/porin-agent", func(s *kubernetestest.Server) { s.Put(set(true)) }, true},
		"401":                        {"kube-system/porin-agent", code(401), true},
		"403":                        {"kube-system/porin-agent", code(403), true},
		"500":                        {"kube-system/porin-agent", code(500), false},
		"429":                        {"kube-system/porin-agent", code(429), false},
		"no flag":                    {"", code(403), false},
		"never read, as by mistake":  {"kube-system/other", func(*kubernetestest.Server) {}, false},
		"never read, and being gone": {"kube-system/other", code(403), false},
	} {
		i, server, _ := installationOf(t, c.daemonSet)
		server.Put(nodeObjectOf("n1", "u1"))
		server.Put(set(false))
		i.SetReady()
		testutil.Eventually(t, func() error {
			if c.daemonSet != "" && !i.seen.Load() && i.task.Status().Err == nil {
				return errors.New("the agent has not asked for the DaemonSet")
			}
			return nil
		})
		c.then(server)
		if is := i.Uninstalled(t.Context()); is != c.want {
			t.Errorf("%s: uninstalled %t, want %t", name, is, c.want)
		}
	}
}
