package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// known is of policies that are known.
var known = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func podObject(uid types.UID, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid, Labels: map[string]string{"app": app}}}
}

func (p *Pods) notify(pod *corev1.Pod) {
	podHandler{p}.Update(watch.Object[Pod]{Key: watch.Key{Namespace: pod.Namespace, Name: pod.Name}, Value: slimPod(pod)})
}

func (p *Pods) tellNamespace(labels map[string]string) {
	p.namespaces.Update(watch.Object[Namespace]{Key: watch.Key{Name: "shop"}, Value: Namespace{Labels: labels}})
}

// asked counts reads of the API server, which answers with a pod or an error.
func asked(pod *corev1.Pod, err error) (read func(context.Context, watch.Key) (*corev1.Pod, error), count *int) {
	count = new(int)
	return func(context.Context, watch.Key) (*corev1.Pod, error) { *count++; return pod, err }, count
}

func TestMetadata(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web")
	static := podObject("of the API", "static")
	static.Annotations = map[string]string{staticPodAnnotation: "u2"}
	for name, row := range map[string]struct {
		known    *corev1.Pod // before the ADD
		after    *corev1.Pod // after a second
		answer   *corev1.Pod
		err      error
		app      string // labels of the result
		fault    string
		requests int
		took     time.Duration
	}{
		"known":                         {known: podObject("u2", "web"), app: "web"},
		"watch is late":                 {after: podObject("u2", "web"), app: "web", took: time.Second},
		"watch knows the pod of before": {known: podObject("u1", "old"), after: podObject("u2", "web"), app: "web", took: time.Second},
		"watch is later than ADD waits": {answer: podObject("u2", "web"), app: "web", requests: 1, took: podWait},
		"pod was replaced meanwhile":    {known: podObject("u3", "new"), answer: podObject("u3", "new"), fault: "replaced", requests: 1, took: podWait},
		"not in the API":                {err: notFound, fault: "pod shop/web is not known", requests: 1, took: podWait},
		"API server away":               {err: errors.New("refused"), fault: "pod shop/web are not known", requests: 1, took: podWait},
		"static pod":                    {known: static, app: "static"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read, requests := asked(row.answer, row.err)
				pods := newPods(&Namespaces{}, known, read)
				pods.tellNamespace(map[string]string{"team": "shop"})
				if row.known != nil {
					pods.notify(row.known)
				}
				if row.after != nil {
					time.AfterFunc(time.Second, func() { pods.notify(row.after) })
				}
				began := time.Now()
				got, err := pods.Metadata(t.Context(), endpoint.Pod{Namespace: "shop", Name: "web", UID: "u2"})
				if row.fault != "" {
					if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), row.fault) {
						t.Errorf("error %v, want unavailable with %q", err, row.fault)
					}
				} else if diff := cmp.Diff(endpoint.Metadata{
					Labels: map[string]string{"app": row.app}, NamespaceLabels: map[string]string{"team": "shop"}, NamedPorts: []endpoint.NamedPort{},
				}, got); diff != "" || err != nil {
					t.Errorf("error %v, metadata (-want +got):\n%s", err, diff)
				}
				if took := time.Since(began); took != row.took || *requests != row.requests {
					t.Errorf("%d requests in %s, want %d in %s", *requests, took, row.requests, row.took)
				}
			})
		})
	}
}

// TestMetadataOfEarlierAttachment: while the API server is away a pod has the labels that its endpoint of before had.
func TestMetadataOfEarlierAttachment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, _ := asked(nil, errors.New("refused"))
		pods := newPods(&Namespaces{}, known, read)
		pod := endpoint.Pod{Namespace: "shop", Name: "web", UID: "u2"}
		ep := endpoint.Endpoint{Spec: endpoint.Spec{Pod: pod}, Metadata: `{"labels":{"app":"web"}}`}
		listener{pods}.EndpointRestored(ep)
		listener{pods}.EndpointDeleted(ep, endpoint.DeleteConfig{})
		got, err := pods.Metadata(t.Context(), pod)
		if err != nil || got.Labels["app"] != "web" {
			t.Errorf("metadata %v, error %v, want the labels of before", got, err)
		}
		again := ep // the runtime makes the sandbox again, and deletes the first one late
		again.Spec.Attachment.ContainerID = "second"
		listener{pods}.EndpointCreated(again)
		listener{pods}.EndpointDeleted(ep, endpoint.DeleteConfig{})
		time.Sleep(2 * keepAttached)
		listener{pods}.EndpointDeleted(endpoint.Endpoint{}, endpoint.DeleteConfig{})
		if got, err := pods.Metadata(t.Context(), pod); err != nil || got.Labels["app"] != "web" {
			t.Errorf("metadata %v, error %v while the second sandbox lives, want its labels", got, err)
		}
		listener{pods}.EndpointDeleted(again, endpoint.DeleteConfig{})
		time.Sleep(2 * keepAttached)
		listener{pods}.EndpointDeleted(endpoint.Endpoint{}, endpoint.DeleteConfig{})
		if _, err := pods.Metadata(t.Context(), pod); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("error %v long after the deletion, want unavailable", err)
		}
	})
}

// TestMetadataNamespaceUnknown: labels of a namespace are not guessed, either.
func TestMetadataNamespaceUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, _ := asked(podObject("u2", "web"), nil)
		pods := newPods(&Namespaces{}, known, read)
		pods.notify(podObject("u2", "web"))
		if _, err := pods.Metadata(t.Context(), endpoint.Pod{Namespace: "shop", Name: "web", UID: "u2"}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("error %v, want unavailable", err)
		}
	})
}

func TestNamedPorts(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	port := func(name string, number int32, protocol corev1.Protocol) corev1.Container {
		return corev1.Container{Ports: []corev1.ContainerPort{{Name: name, ContainerPort: number, Protocol: protocol}}}
	}
	sidecar := port("side", 9, "UDP")
	sidecar.RestartPolicy = &always
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{port("init", 1, "TCP"), sidecar},
		Containers:     []corev1.Container{port("http", 80, ""), port("", 81, "TCP"), port("bad", 0, "TCP")},
	}}
	want := []endpoint.NamedPort{{Name: "side", Port: 9, Protocol: "UDP"}, {Name: "http", Port: 80, Protocol: "TCP"}}
	if diff := cmp.Diff(want, slimPod(pod).Ports); diff != "" {
		t.Errorf("named ports (-want +got):\n%s", diff)
	}
}

// manager keeps the metadata of one endpoint.
type manager struct {
	endpointmanager.Manager
	mu      sync.Mutex
	ep      endpoint.Endpoint
	updates []endpoint.Metadata
	fail    int // so many updates
}

func (m *manager) Update(_ context.Context, _ endpoint.Attachment, change endpoint.Metadata) (endpoint.Endpoint, error) {
	time.Sleep(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail > 0 {
		m.fail--
		return endpoint.Endpoint{}, errors.New("no space left on device")
	}
	m.updates = append(m.updates, change)
	return m.ep, nil
}

func (m *manager) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.updates) == 0 {
		return ""
	}
	last := m.updates[len(m.updates)-1]
	return last.Labels["app"] + " " + last.NamespaceLabels["team"]
}

func (m *manager) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.updates)
}

func (m *manager) List() []endpoint.Endpoint                   { return []endpoint.Endpoint{m.ep} }
func (m *manager) Get(endpoint.Ref) (endpoint.Endpoint, error) { return m.ep, nil }

func runFollower(t *testing.T, m *manager) (*Pods, context.CancelFunc) {
	read, _ := asked(nil, errors.New("not asked for"))
	pods := newPods(&Namespaces{}, known, read)
	m.ep = endpoint.Endpoint{State: endpoint.Ready, Spec: endpoint.Spec{Pod: endpoint.Pod{Namespace: "shop", Name: "web", UID: "u2"}}}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{pods, m, m, slog.New(slog.DiscardHandler)}
	go func() { _ = f.run(ctx) }()
	return pods, cancel
}

// TestFollowerLast: of many changes at once the last one counts, of the pod and of the namespace.
func TestFollowerLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &manager{fail: 2}
		pods, cancel := runFollower(t, m)
		defer cancel()
		var both sync.WaitGroup
		for i := range 1000 {
			both.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Microsecond)
				pods.notify(podObject("u2", fmt.Sprint(i)))
			})
		}
		both.Wait()
		pods.notify(podObject("u2", "last"))
		pods.tellNamespace(map[string]string{"team": "a"})
		pods.tellNamespace(map[string]string{"team": "b"})
		time.Sleep(5 * time.Second)
		if got := m.last(); got != "last b" {
			t.Errorf("the endpoint has %q, want the last labels", got)
		}
	})
}

// TestFollowerOtherUID: an endpoint does not get the labels of a newer pod under its name.
func TestFollowerOtherUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &manager{}
		pods, cancel := runFollower(t, m)
		defer cancel()
		pods.tellNamespace(nil)
		pods.notify(podObject("u3", "new"))
		time.Sleep(time.Second)
		if n := m.count(); n != 0 {
			t.Errorf("the endpoint of another UID was changed %d times", n)
		}
		pods.notify(podObject("u2", "web"))
		time.Sleep(time.Second)
		if got := m.last(); got != "web " {
			t.Errorf("the endpoint has %q, want web", got)
		}
		listener{pods}.EndpointCreated(m.ep)
		time.Sleep(time.Second)
		if n := m.count(); n != 2 {
			t.Errorf("%d updates, want a second one of an endpoint that has become ready", n)
		}
	})
}

// TestNamespacePool: the pool is the namespace's, and the one of the earlier attachment while the namespace is not
// known.
func TestNamespacePool(t *testing.T) {
	read, _ := asked(nil, errors.New("not asked for"))
	pods := newPods(&Namespaces{}, known, read)
	spec := endpoint.Spec{Pod: endpoint.Pod{Namespace: "shop", Name: "web", UID: "u2"}}
	check := func(when, want string) {
		t.Helper()
		if got, otherwise := (namespacePools{pods}).PoolFor(spec); got != want || !strings.Contains(otherwise, "namespace shop") {
			t.Errorf("%s: pool %q, otherwise %q, want pool %q", when, got, otherwise, want)
		}
	}
	check("at first", "")
	listener{pods}.EndpointRestored(endpoint.Endpoint{Spec: spec, Pool: "green"})
	check("API server away", "green")
	pods.tellNamespace(nil)
	check("no annotation", "")
	pods.namespaces.Update(watch.Object[Namespace]{Key: watch.Key{Name: "shop"}, Value: slimNamespace(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{poolAnnotation: "blue", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
	}})})
	check("annotation", "blue")
}

// TestWaiting: an attached pod does not wait for the container runtime, but for its image or its init containers.
func TestWaiting(t *testing.T) {
	read, _ := asked(nil, errors.New("not asked for"))
	pods := newPods(&Namespaces{}, known, read)
	began := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, change := range map[string]func(*corev1.Pod){
		"waits":    func(*corev1.Pod) {},
		"new":      func(p *corev1.Pod) { now := metav1.Now(); p.Status.StartTime = &now },
		"of-node":  func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"runs":     func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
		"attached": func(*corev1.Pod) {},
	} {
		pod := podObject(types.UID(name), "web")
		pod.Name, pod.Status.Phase, pod.Status.StartTime = name, corev1.PodPending, &began
		change(pod)
		pods.notify(pod)
	}
	listener{pods}.EndpointRestored(endpoint.Endpoint{Spec: endpoint.Spec{Pod: endpoint.Pod{Namespace: "shop", Name: "attached", UID: "attached"}}, Metadata: "{}"})
	if diff := cmp.Diff([]string{"shop/waits"}, pods.Waiting(time.Minute)); diff != "" {
		t.Errorf("waiting pods (-want +got):\n%s", diff)
	}
}

// TestUnattached: pods that run with a network of their own, and that have no endpoint.
func TestUnattached(t *testing.T) {
	read, _ := asked(nil, errors.New("not asked for"))
	pods := newPods(&Namespaces{}, known, read)
	now := metav1.Now()
	for name, change := range map[string]func(*corev1.Pod){
		"attached": func(*corev1.Pod) {},
		"other":    func(*corev1.Pod) {},
		"begins":   func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending },
		"ends":     func(p *corev1.Pod) { p.DeletionTimestamp = &now },
		"of-node":  func(p *corev1.Pod) { p.Spec.HostNetwork = true },
	} {
		pod := podObject("u2", "web")
		pod.Name, pod.Status.Phase = name, corev1.PodRunning
		change(pod)
		pods.notify(pod)
	}
	m := &manager{ep: endpoint.Endpoint{Spec: endpoint.Spec{Pod: endpoint.Pod{Namespace: "shop", Name: "attached"}}}}
	if diff := cmp.Diff([]string{"shop/other"}, newReporter(&watches{store: pods}, m).unattached()); diff != "" {
		t.Errorf("unattached pods (-want +got):\n%s", diff)
	}
}

func TestVerbAndKind(t *testing.T) {
	for request, want := range map[string]string{
		"GET /api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Da": "watch pods",
		"GET /api/v1/pods?limit=500":                                  "list pods",
		"GET /api/v1/namespaces/shop/pods/web":                        "get pods",
		"GET /api/v1/namespaces":                                      "list namespaces",
		"GET /api/v1/namespaces/shop":                                 "get namespaces",
		"GET /apis/networking.k8s.io/v1/networkpolicies":              "list networkpolicies",
		"POST /apis/porin.dev/v1alpha1/porinnodes":                    "create porinnodes",
		"PUT /apis/porin.dev/v1alpha1/porinnodes/a":                   "update porinnodes",
		"PATCH /api/v1/nodes/a/status":                                "patch nodes",
		"DELETE /apis/porin.dev/v1alpha1/porinblocks/10.0.0.0":        "delete porinblocks",
		"GET /version":                "get other",
		"GET /apis/networking.k8s.io": "get other",
	} {
		method, target, _ := strings.Cut(request, " ")
		if verb, kind := verbAndKind(httptest.NewRequest(method, target, nil)); verb+" "+kind != want {
			t.Errorf("%s: %s %s, want %s", request, verb, kind, want)
		}
	}
}

// TestMetadataAwaitsPolicies: no new pod is attached before the policies are known.
func TestMetadataAwaitsPolicies(t *testing.T) {
	for name, row := range map[string]struct {
		known    time.Duration // when the policies are; 0: never
		attached bool          // the pod was, before
		fault    string
	}{
		"soon":                  {known: time.Second},
		"never":                 {fault: "policies of the API server are known: networkpolicies is forbidden"},
		"attached before":       {attached: true},
		"too late for this ADD": {known: 3 * time.Second, fault: "pod shop/web is not attached before"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read, _ := asked(podObject("u2", "web"), nil)
				policies := make(chan struct{})
				pods := newPods(&Namespaces{}, policies, read)
				pods.syncError = func() error { return errors.New("networkpolicies is forbidden") }
				pods.tellNamespace(nil)
				pods.notify(podObject("u2", "web"))
				pod := endpoint.Pod{Namespace: "shop", Name: "web", UID: "u2"}
				if row.attached {
					listener{pods}.EndpointRestored(endpoint.Endpoint{Spec: endpoint.Spec{Pod: pod}, Metadata: `{"labels":{"app":"earlier"}}`})
				}
				if row.known > 0 {
					defer time.AfterFunc(row.known, func() { close(policies) }).Stop()
				}
				got, err := pods.Metadata(t.Context(), pod)
				if row.fault != "" {
					if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), row.fault) {
						t.Errorf("error %v, want unavailable with %q", err, row.fault)
					}
				} else if err != nil || got.Labels["app"] != "web" {
					t.Errorf("metadata %v, error %v, want the pod's labels", got, err)
				}
			})
		})
	}
}

// TestSlimPodServiceAccount: the service account is a label, which the pod's own labels cannot change.
func TestSlimPodServiceAccount(t *testing.T) {
	const key = "io.cilium.k8s.policy.serviceaccount"
	for account, want := range map[string]map[string]string{
		"shop":                  {"app": "a", key: "shop"},
		strings.Repeat("x", 64): {"app": "a"},
		"":                      {"app": "a"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a", key: "forged"}}, Spec: corev1.PodSpec{ServiceAccountName: account}}
		if diff := cmp.Diff(want, slimPod(pod).Labels); diff != "" {
			t.Errorf("%q (-want +got):\n%s", account, diff)
		}
	}
}
