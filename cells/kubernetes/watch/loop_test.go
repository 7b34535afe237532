package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

var (
	pods     = kubernetestest.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true}
	policies = kubernetestest.Resource{GroupVersionResource: networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), Kind: "NetworkPolicy", Namespaced: true}
)

// rig is an API server, and a client of it for a group.
type rig struct {
	*testing.T
	*kubernetestest.Server
	url    string
	scheme *runtime.Scheme
}

func newRig(t *testing.T) *rig {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	s := kubernetestest.New(scheme, pods, policies)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return &rig{t, s, web.URL, scheme}
}

func (r *rig) client(version schema.GroupVersion, path string) rest.Interface {
	c, err := rest.RESTClientFor(&rest.Config{Host: r.url, APIPath: path, QPS: -1, ContentConfig: rest.ContentConfig{
		GroupVersion: &version, NegotiatedSerializer: serializer.NewCodecFactory(r.scheme).WithoutConversion(),
		ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf",
	}})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(c.Client.CloseIdleConnections)
	return c
}

// replica is a handler that keeps one label of each object.
type replica struct {
	mu       sync.Mutex
	objects  map[watch.Key]watch.Object[string]
	replaced int
}

func (r *replica) Replace(objects map[watch.Key]watch.Object[string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects = objects
	r.replaced++
}

func (r *replica) Update(o watch.Object[string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[o.Key] = o
}

func (r *replica) Delete(o watch.Object[string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects, o.Key)
}

func (r *replica) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]string{}
	for key, o := range r.objects {
		all[key.String()] = o.Value
	}
	return fmt.Sprint(all)
}

func follow[T any](t *testing.T, kind string, source watch.Source[T], handler watch.Handler[T]) *watch.Loop[T] {
	l := watch.New(kind, source, handler, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func (r *rig) podSource() watch.Source[string] {
	app := func(p *corev1.Pod) string { return p.Labels["app"] }
	return watch.Objects(r.client(corev1.SchemeGroupVersion, "/api"), "pods", "spec.nodeName=n1", &corev1.PodList{}, app)
}

func pod(name, node, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{NodeName: node}}
}

func (r *replica) becomes(t *testing.T, want string) {
	t.Helper()
	testutil.Eventually(t, func() error {
		if got := r.text(); got != want {
			return fmt.Errorf("the handler knows %s, want %s", got, want)
		}
		return nil
	})
}

func TestFollow(t *testing.T) {
	r := newRig(t)
	r.Put(pod("a", "n1", "web"))
	r.Put(pod("b", "n2", "web"))
	var got replica
	l := follow(t, "pods", r.podSource(), &got)
	got.becomes(t, "map[shop/a:web]")
	r.Put(pod("c", "n1", "db"))
	r.Put(pod("a", "n1", "api"))
	got.becomes(t, "map[shop/a:api shop/c:db]")
	r.Put(pod("a", "n2", "api"))
	r.Delete("pods", "shop", "c")
	got.becomes(t, "map[]")
	if got.replaced != 1 {
		t.Errorf("%d lists, want 1", got.replaced)
	}
	<-l.Synced()
}

func TestFollowMetadataAndRaw(t *testing.T) {
	r := newRig(t)
	r.Put(pod("a", "n1", "web"))
	var names, raws replica
	app := func(p *metav1.PartialObjectMetadata) string { return p.Labels["app"] }
	follow(t, "pods", watch.Metadata(r.client(corev1.SchemeGroupVersion, "/api"), "pods", "", app), &names)
	follow(t, "networkpolicies", watch.Raw[string]{
		Client: r.client(networkingv1.SchemeGroupVersion, "/apis"), Resource: "networkpolicies",
		Slim: func(_ metav1.ObjectMeta, object []byte) string { return fmt.Sprint(len(object) > 0) },
	}, &raws)
	names.becomes(t, "map[shop/a:web]")
	raws.becomes(t, "map[]")
	r.Put(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}})
	r.Put(pod("b", "n2", "db"))
	names.becomes(t, "map[shop/a:web shop/b:db]")
	raws.becomes(t, "map[shop/deny:true]")
	r.Delete("networkpolicies", "shop", "deny")
	raws.becomes(t, "map[]")
}

// awaitWatch returns when a watch has come since the last call.
func (r *rig) awaitWatch() {
	r.Helper()
	testutil.Eventually(r, func() error {
		if !slices.ContainsFunc(r.Requests(), func(q kubernetestest.Request) bool { return q.Verb == "watch" }) {
			return errors.New("no watch")
		}
		return nil
	})
}

// count is how often a loop has begun again for a reason.
func count[T any](t *testing.T, l *watch.Loop[T], reason watch.Reason, want int) {
	t.Helper()
	testutil.Eventually(t, func() error {
		if restarts := l.State().Restarts; restarts[reason] < want {
			return fmt.Errorf("restarts %v, want %d of %s", restarts, want, reason)
		}
		return nil
	})
}

// TestFollowEnded: after the end of a watch the loop goes on from the last version. It compares versions, and does not
// list again.
func TestFollowEnded(t *testing.T) {
	r := newRig(t)
	r.Put(pod("a", "n1", "web"))
	var got replica
	l := follow(t, "pods", r.podSource(), &got)
	got.becomes(t, "map[shop/a:web]")
	r.awaitWatch()
	r.EndWatches()
	count(t, l, watch.Closed, 1)
	r.Put(pod("b", "n1", "db"))
	got.becomes(t, "map[shop/a:web shop/b:db]")
	if got.replaced != 1 {
		t.Errorf("%d lists, want 1", got.replaced)
	}
}

// TestFollowGone: the version was compacted while no watch ran. An object that was deleted meanwhile is gone
// afterwards.
func TestFollowGone(t *testing.T) {
	r := newRig(t)
	r.Put(pod("a", "n1", "web"))
	r.Put(pod("c", "n1", "web"))
	var got replica
	l := follow(t, "pods", r.podSource(), &got)
	got.becomes(t, "map[shop/a:web shop/c:web]")
	r.Fault(func(q kubernetestest.Request) *kubernetestest.Fault { return &kubernetestest.Fault{Code: 503} })
	r.EndWatches()
	count(t, l, watch.Failed, 1)
	if l.State().Err == nil {
		t.Error("no error while the API server is away")
	}
	r.Delete("pods", "shop", "a")
	r.Put(pod("b", "n1", "db"))
	r.Compact()
	if text := got.text(); text != "map[shop/a:web shop/c:web]" {
		t.Errorf("the handler knows %s while the API server is away", text)
	}
	r.Fault(nil)
	got.becomes(t, "map[shop/b:db shop/c:web]")
	count(t, l, watch.Gone, 1)
	if err := l.State().Err; err != nil {
		t.Errorf("error %v after the API server is back", err)
	}
}

// TestFollowRestore sets the API server back, with and without later versions.
func TestFollowRestore(t *testing.T) {
	for name, bump := range map[string]uint64{"lower versions": 0, "bumped versions": 1_000_000} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Put(pod("a", "n1", "web"))
			backup := r.Backup()
			var got replica
			l := follow(t, "pods", r.podSource(), &got)
			got.becomes(t, "map[shop/a:web]")
			r.Put(pod("b", "n1", "db"))
			got.becomes(t, "map[shop/a:web shop/b:db]")
			r.Restore(backup, bump)
			got.becomes(t, "map[shop/a:web]")
			reason := watch.SetBack
			if bump > 0 {
				reason = watch.Gone
			}
			count(t, l, reason, 1)
		})
	}
}

// TestFollowRestoreOvertaken sets the API server back while the agent does not follow it. By the time the agent is
// back, the server has later versions than the last version that the agent has seen, and takes a watch from there.
func TestFollowRestoreOvertaken(t *testing.T) {
	for name, lost := range map[string]func(*rig){
		"created": func(r *rig) { r.Put(pod("b", "n1", "db")) },
		"changed": func(r *rig) { r.Put(pod("a", "n1", "db")) },
		"deleted": func(r *rig) { r.Delete("pods", "shop", "a") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Put(pod("a", "n1", "web"))
			backup := r.Backup()
			var got replica
			l := follow(t, "pods", r.podSource(), &got)
			got.becomes(t, "map[shop/a:web]")
			r.awaitWatch()
			lost(r)
			testutil.Eventually(t, func() error {
				if text := got.text(); text == "map[shop/a:web]" {
					return errors.New("the loop has not seen the change")
				}
				return nil
			})
			r.Fault(func(kubernetestest.Request) *kubernetestest.Fault { return &kubernetestest.Fault{Code: 503} })
			r.Restore(backup, 0)
			for range 10 {
				r.Put(pod("other", "n2", "web"))
			}
			r.Fault(nil)
			r.awaitWatch()
			r.Bookmark() // the first event of the watch is not the lost change
			got.becomes(t, "map[shop/a:web]")
			count(t, l, watch.Relist, 1)
		})
	}
}

// TestFollowPages reads more than a page, and begins again when the server forgets the list's version in the middle.
func TestFollowPages(t *testing.T) {
	r := newRig(t)
	for i := range 1201 {
		r.Put(pod(fmt.Sprint("p", i), "n1", "web"))
	}
	var lists int
	watched := make(chan struct{})
	r.Fault(func(q kubernetestest.Request) *kubernetestest.Fault {
		if q.Verb == "watch" {
			close(watched)
			return nil
		}
		if lists++; lists == 2 {
			r.Put(pod("p0", "n2", "web"))
			r.Compact()
		}
		return nil
	})
	var got replica
	l := follow(t, "pods", r.podSource(), &got)
	testutil.Eventually(t, func() error {
		if n := l.State().Objects; n != 1200 {
			return fmt.Errorf("%d objects, want 1200", n)
		}
		return nil
	})
	count(t, l, watch.Gone, 1)
	<-watched
	if lists != 5 { // two requests of the first list, three of the second
		t.Errorf("%d requests of lists, want 5", lists)
	}
}
