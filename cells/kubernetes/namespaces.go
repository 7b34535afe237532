package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// Namespace is what is kept of a namespace.
type Namespace struct {
	Labels      map[string]string
	Annotations map[string]string
}

func slimNamespace(m *metav1.PartialObjectMetadata) Namespace {
	return Namespace{Labels: cloneMap(m.Labels), Annotations: ownAnnotations(m.Annotations)}
}

// Namespaces are the namespaces of the cluster. It is the handler of their watch.
type Namespaces struct {
	all  watchable.Value[map[string]Namespace] // by name; nil before the first list
	loop *watch.Loop[Namespace]
	task *task.Task
}

func newNamespaces(client *Client, log *slog.Logger) (*Namespaces, error) {
	core, err := client.Core()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	n := &Namespaces{}
	n.loop = watch.New("namespaces", watch.Metadata(core, "namespaces", "", slimNamespace), n, log)
	n.task = task.Forever(log, "kubernetes-namespaces", n.loop.Run)
	return n, nil
}

// start begins the watch before endpoints are restored: policies that select pods of other nodes wait for the labels.
func (n *Namespaces) start(context.Context) error {
	n.task.Start(nil)
	return nil
}

// Labels returns the labels of each namespace, nil before they are known, and a channel that is closed when there are
// others.
func (n *Namespaces) Labels() (labels map[string]map[string]string, changed <-chan struct{}) {
	all, changed := n.all.Get()
	if all == nil {
		return nil, changed
	}
	labels = make(map[string]map[string]string, len(all))
	for name, namespace := range all {
		labels[name] = namespace.Labels
	}
	return labels, changed
}

// Replace implements [watch.Handler].
func (n *Namespaces) Replace(objects map[watch.Key]watch.Object[Namespace]) {
	all := make(map[string]Namespace, len(objects))
	for key, object := range objects {
		all[key.Name] = object.Value
	}
	n.all.Set(all)
}

// Update implements [watch.Handler].
func (n *Namespaces) Update(object watch.Object[Namespace]) {
	n.edit(func(all map[string]Namespace) { all[object.Key.Name] = object.Value })
}

// Delete implements [watch.Handler].
func (n *Namespaces) Delete(object watch.Object[Namespace]) {
	n.edit(func(all map[string]Namespace) { delete(all, object.Key.Name) })
}

// edit changes a copy. The loop of the watch alone calls it.
func (n *Namespaces) edit(change func(map[string]Namespace)) {
	all, _ := n.all.Get()
	all = maps.Clone(all)
	if all == nil {
		all = map[string]Namespace{}
	}
	change(all)
	n.all.Set(all)
}

// poolAnnotation of a namespace names the pool of its pods' addresses.
const poolAnnotation = "porin.dev/pool"

// namespacePools knows the pools that namespaces of the API name.
type namespacePools struct{ *Pods }

var _ ipam.PoolSource = namespacePools{}

// PoolFor implements [ipam.PoolSource]. While the API server is away and the namespace is not known, it is the pool of
// the pod's earlier attachment.
func (p namespacePools) PoolFor(spec endpoint.Spec) (pool, otherwise string) {
	otherwise = fmt.Sprintf("correct the annotation %s of namespace %s", poolAnnotation, spec.Pod.Namespace)
	if namespace, ok := p.namespace(spec.Pod.Namespace); ok {
		return namespace.Annotations[poolAnnotation], otherwise
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attached[types.UID(spec.Pod.UID)].pool, otherwise
}
