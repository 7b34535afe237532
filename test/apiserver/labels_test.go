package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

// TestLabels: pods have the labels of the API before their first packet, and follow it.
func TestLabels(t *testing.T) {
	n := newNode(t, 0)
	n.admin.Apply(t, locked)
	to := n.newSink()
	for _, part := range []struct {
		name string
		test func(*node, *sink)
	}{{"NextUID", (*node).nextUID}, {"StaticPod", (*node).staticPod}, {"LargePod", (*node).largePod}, {"Changes", (*node).changes}} {
		t.Run(part.name, func(t *testing.T) {
			of := *n
			of.T = t
			part.test(&of, to)
		})
	}
}

// changes: labels follow the pod, and endpoints the policies.
func (n *node) changes(to *sink) {
	first, _ := n.attach("first", n.create("first", isLocked()))
	second, _ := n.attach("second", n.create("second", isOpen()))
	n.sends(first, to, false)
	n.sends(second, to, true)
	n.create("first", isOpen())
	n.create("second", isLocked())
	n.sends(first, to, true)
	n.sends(second, to, false)
	n.admin.Delete(n, "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/locked")
	n.sends(second, to, true)
}

// nextUID: a pod that is created again under its name never has the labels of the one before.
func (n *node) nextUID(to *sink) {
	ctx, cancel := context.WithCancel(n.Context())
	var knocking sync.WaitGroup
	defer knocking.Wait()
	defer cancel()
	rounds := 5
	if testutil.Full() {
		rounds = 50
	}
	for i := range rounds {
		n.attach("again", n.create("again", isOpen()))
		n.delete("again")
		uid := n.create("again", isLocked())
		c, name := asPod(testutil.NewContainer(n), "again", uid), fmt.Sprintf("round-%d", i)
		n.knock(ctx, &knocking, c, name, to)
		n.cni.MustAdd(n, c)
		n.sends(c, to, false)
		if got := to.from(name); got > 0 {
			n.Errorf("round %d: %d packets have passed with the labels of the pod before", i, got)
		}
		n.delete("again")
	}
}

// staticPod: a static pod is found by the hash of its configuration, which the kubelet takes for its UID.
func (n *node) staticPod(to *sink) {
	uid, err := n.tryCreate("static", map[string]any{"labels": isLocked(), "annotations": map[string]any{
		"kubernetes.io/config.hash": "hash", "kubernetes.io/config.mirror": "hash", "kubernetes.io/config.source": "file",
	}}, nil)
	if err != nil || uid == "hash" {
		n.Fatalf("create a mirror pod: UID %q, %v", uid, err)
	}
	static, _ := n.attach("static", "hash")
	n.sends(static, to, false)
}

// largePod: a pod of one megabyte is read like any other.
func (n *node) largePod(to *sink) {
	uid, err := n.tryCreate("large", map[string]any{"labels": isLocked()}, map[string]any{"containers": []any{
		map[string]any{"name": "a", "image": "none", "env": []any{map[string]any{"name": "A", "value": strings.Repeat("x", 1<<20)}}},
	}})
	if err != nil {
		n.Fatal(err)
	}
	large, _ := n.attach("large", uid)
	n.sends(large, to, false)
}

// TestLabelsLateWatch: of 200 pods that are created and attached at once, not one packet passes that a policy denies,
// however late a watch is.
func TestLabelsLateWatch(t *testing.T) {
	pods, delays := 50, []time.Duration{time.Second}
	if testutil.Full() {
		pods, delays = 200, []time.Duration{0, time.Second, 5 * time.Second}
	}
	for _, delay := range delays {
		t.Run(delay.String(), func(t *testing.T) { lateWatch(t, pods, delay) })
	}
}

func lateWatch(t *testing.T, pods int, delay time.Duration) {
	n := newNode(t, delay)
	n.admin.Apply(t, locked)
	to := n.newSink()
	ctx, cancel := context.WithCancel(t.Context())
	var knocking, adding sync.WaitGroup
	defer knocking.Wait()
	defer cancel()
	name := func(i int) string { return fmt.Sprintf("pod-%d", i) }
	open := func(i int) bool { return i%10 == 0 }
	var containers []*testutil.Container
	for i := range pods {
		c := testutil.NewContainer(t)
		n.knock(ctx, &knocking, c, name(i), to)
		containers = append(containers, c)
	}
	began := time.Now()
	for i, c := range containers {
		adding.Go(func() {
			labels := isLocked()
			if open(i) {
				labels = isOpen()
			}
			uid, err := n.tryCreate(name(i), map[string]any{"labels": labels}, nil)
			if err == nil {
				_, err = n.cni.Add(asPod(c, name(i), uid))
			}
			if err != nil {
				t.Errorf("%s: %v", name(i), err)
			}
		})
	}
	adding.Wait()
	t.Logf("%d pods attached in %v", pods, time.Since(began))
	time.Sleep(delay + time.Second) // the watch tells of them
	for i := range pods {
		if got := to.from(name(i)); (got > 0) != open(i) {
			t.Errorf("%d packets of %s have passed, want any: %t", got, name(i), open(i))
		}
	}
}

// full leaves out a test that is for changes of cells/kubernetes.
func full(t *testing.T) {
	t.Helper()
	if !testutil.Full() {
		t.Skip("FULL=1: for each change of cells/kubernetes")
	}
}

// TestLabelsChurn: labels of pods and of their namespace that change a hundred times a second end as the API has them.
func TestLabelsChurn(t *testing.T) {
	full(t)
	n := newNode(t, 0)
	n.admin.Apply(t, locked)
	n.admin.Apply(t, strings.NewReplacer("name: locked", "name: team", `{podSelector: {matchLabels: {locked: "yes"}}, policyTypes: [Egress]}`,
		"{podSelector: {matchLabels: {role: sink}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: shop}}}]}]}").Replace(locked))
	to := n.newSink()
	n.create("sink", map[string]any{"role": "sink"})
	var pods []*testutil.Container
	for i := range 10 {
		name := fmt.Sprintf("pod-%d", i)
		c, _ := n.attach(name, n.create(name, isOpen()))
		pods = append(pods, c)
	}
	still, _ := n.attach("still", n.create("still", isLocked()))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	n.knock(ctx, &running, still, "still", to)

	const seconds = 30
	change := func(path string, labels map[string]any) {
		t.Helper()
		if err := n.admin.Patch(t.Context(), path, apiserver.MergePatch, map[string]any{"metadata": map[string]any{"labels": labels}}); err != nil {
			t.Error(err)
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for i := range 100 * seconds {
		labels := isLocked()
		if i%3 == 0 {
			labels = isOpen()
		}
		change(fmt.Sprintf("/api/v1/namespaces/shop/pods/pod-%d", i%len(pods)), labels)
		if i%10 == 0 {
			change("/api/v1/namespaces/shop", map[string]any{"team": []string{"shop", "other"}[i/10%2]})
		}
		<-tick.C
	}
	t.Logf("%d changes in %v", 110*seconds, time.Since(began))
	change("/api/v1/namespaces/shop", map[string]any{"team": "shop"})
	for i := range pods {
		labels := isLocked()
		if i%2 == 0 {
			labels = isOpen()
		}
		change(fmt.Sprintf("/api/v1/namespaces/shop/pods/pod-%d", i), labels)
	}
	for i, c := range pods {
		n.sends(c, to, i%2 == 0)
	}
	change("/api/v1/namespaces/shop", map[string]any{"team": "other"})
	n.sends(pods[0], to, false)
	if got := to.from("still"); got > 0 {
		t.Errorf("%d packets have passed of a pod whose labels did not change", got)
	}
}

// TestLabelsServerAway: while the API server is away, also over a restart of the agent, labels and policies stay, and a
// pod that the agent does not know is not attached. After it is back, also with an etcd from a backup, the agent
// follows it again.
func TestLabelsServerAway(t *testing.T) {
	full(t)
	n := newNode(t, 0)
	n.admin.Apply(t, locked)
	to := n.newSink()
	shut, _ := n.attach("shut", n.create("shut", isLocked()))
	open, _ := n.attach("open", n.create("open", isOpen()))
	n.sends(shut, to, false)
	uid := n.create("late", isLocked())
	backup := n.Save(t)
	n.Stop()
	n.agent.Restart(t)
	n.sends(shut, to, false)
	n.sends(open, to, true)
	_, err := n.cni.Add(asPod(testutil.NewContainer(t), "late", uid))
	if failure, ok := errors.AsType[*types.Error](err); !ok || failure.Code != types.ErrTryAgainLater {
		t.Errorf("ADD of a pod that is not known, without API server: %v, want code %d", err, types.ErrTryAgainLater)
	}
	n.Start(t)
	late, _ := n.attach("late", uid)
	n.sends(late, to, false)
	n.create("late", isOpen())
	n.sends(late, to, true)

	for i := range 500 { // more changes than the API server itself makes when it starts, so that the version of pods is a later one than after the restore
		annotations := map[string]any{"annotations": map[string]any{"i": fmt.Sprint(i)}}
		if err := n.admin.Patch(t.Context(), "/api/v1/namespaces/shop/pods/open", apiserver.MergePatch, map[string]any{"metadata": annotations}); err != nil {
			t.Fatal(err)
		}
	}
	for _, bump := range []uint64{0, 1e9} {
		n.Restore(t, backup, bump)
		n.sends(late, to, false) // as the backup has it
		n.create("late", isOpen())
		n.sends(late, to, true)
	}
}

// TestUnknownFieldOfPeer: the API server drops a field that it does not know, or refuses it. The field of a kind
// without a schema reaches the agent, and its rule matches nothing.
func TestUnknownFieldOfPeer(t *testing.T) {
	full(t)
	n := newNode(t, 0)
	n.applyPolicyCRDs(t)
	n.admin.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: shop}}}")
	const policies = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies"
	policy := func(peer map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": map[string]any{"name": "unknown"},
			"spec": map[string]any{"podSelector": map[string]any{}, "policyTypes": []string{"Egress"}, "egress": []any{map[string]any{"to": []any{peer}}}},
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodPost, policies, policy(map[string]any{"newSelector": map[string]any{}}), nil); err == nil {
		t.Error("the API server takes a peer with nothing that it knows")
	}
	if err := n.admin.Do(t.Context(), http.MethodPost, policies+"?fieldValidation=Strict", policy(map[string]any{"podSelector": map[string]any{}, "newSelector": map[string]any{}}), nil); err == nil {
		t.Error("the API server takes a field that it does not know, although it is strict")
	}
	var got map[string]any
	if err := n.admin.Do(t.Context(), http.MethodPost, policies+"?dryRun=All", policy(map[string]any{"podSelector": map[string]any{}, "newSelector": map[string]any{}}), &got); err != nil || strings.Contains(fmt.Sprint(got["spec"]), "newSelector") {
		t.Errorf("the API server keeps a field that it does not know: %v (%v)", got, err)
	}
	to := n.newSink()
	pod, _ := n.attach("pod", n.create("pod", map[string]any{"app": "pod"}))
	n.sends(pod, to, true)
	const cilium = `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: unknown, namespace: shop}, spec: {endpointSelector: {matchLabels: {app: pod}}, egress: [{toEndpoints: [{}]%s}]}}`
	n.admin.Apply(t, fmt.Sprintf(cilium, ", toSomethingNew: [{}]"))
	n.sends(pod, to, false)
	n.admin.Apply(t, fmt.Sprintf(cilium, ""))
	n.sends(pod, to, true)
}
