package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

// podWait is how long an ADD waits for the watch to tell of its pod.
const podWait = 2 * time.Second

// staticPodAnnotation of a mirror pod has the UID that the kubelet gave the static pod, and calls the runtime with.
const staticPodAnnotation = "kubernetes.io/config.hash"

// Pod is what is kept of a pod of this node.
type Pod struct {
	UID         types.UID // as the runtime knows it: of a static pod not the API object's
	Labels      map[string]string
	Annotations map[string]string
	Ports       []endpoint.NamedPort
	// OfNode says that the pod has the node's network namespace.
	OfNode bool
	// Waits is since when the kubelet has waited for the pod's containers; zero if it does not.
	Waits time.Time
	// Running says that the pod's phase is Running, and that it was not deleted.
	Running bool
}

// slimPod clones what it keeps: the strings of an object share the memory of the page that it came with.
func slimPod(p *corev1.Pod) Pod {
	slim := Pod{
		UID: types.UID(strings.Clone(string(p.UID))), Labels: cloneMap(p.Labels), Annotations: ownAnnotations(p.Annotations), Ports: portsOf(p),
		OfNode: p.Spec.HostNetwork, Running: p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil,
	}
	if start := p.Status.StartTime; start != nil && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
		slim.Waits = start.Time
	}
	delete(slim.Labels, model.ServiceAccountLabel) // a label of the pod must not forge it
	if account := p.Spec.ServiceAccountName; account != "" && len(account) <= validation.LabelValueMaxLength {
		slim.Labels[model.ServiceAccountLabel] = strings.Clone(account)
	}
	if hash, ok := p.Annotations[staticPodAnnotation]; ok {
		slim.UID = types.UID(strings.Clone(hash))
	}
	return slim
}

// portsOf are the named ports of the containers that run as long as the pod does.
func portsOf(p *corev1.Pod) []endpoint.NamedPort {
	ports := []endpoint.NamedPort{}
	add := func(c corev1.Container) {
		for _, port := range c.Ports {
			if port.Name != "" && port.ContainerPort > 0 && port.ContainerPort <= 65535 {
				ports = append(ports, endpoint.NamedPort{Name: strings.Clone(port.Name), Port: uint16(port.ContainerPort), Protocol: cmp.Or(strings.Clone(string(port.Protocol)), v1.ProtocolTCP)})
			}
		}
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for _, c := range p.Spec.Containers {
		add(c)
	}
	return ports
}

// ownAnnotations are Porin's. Others may be large.
func ownAnnotations(all map[string]string) map[string]string {
	own := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, "porin.dev/") {
			own[strings.Clone(key)] = strings.Clone(value)
		}
	}
	return own
}

func cloneMap(m map[string]string) map[string]string {
	copied := make(map[string]string, len(m))
	for key, value := range m {
		copied[strings.Clone(key)] = strings.Clone(value)
	}
	return copied
}

// Pods are the pods of this node, in their namespaces. It may be used by several goroutines.
type Pods struct {
	// read reads one pod from the API server.
	read func(ctx context.Context, key watch.Key) (*corev1.Pod, error)
	// policies is closed when the policies of the API are known.
	policies  <-chan struct{}
	listed    chan struct{} // closed after the first list
	syncError func() error  // syncError they are not, if that is known
	endPauses func()        // ends the pauses of all watches

	namespaces *Namespaces

	mu       sync.Mutex // guards the fields below
	pods     map[watch.Key]Pod
	changed  chan struct{} // closed at the next change
	dirty    map[watch.Key]struct{}
	attached map[types.UID]attached
	wake     chan struct{} // holds a token while dirty has something
}

func newPods(namespaces *Namespaces, policies <-chan struct{}, read func(ctx context.Context, key watch.Key) (*corev1.Pod, error)) *Pods {
	return &Pods{
		read: read, policies: policies, listed: make(chan struct{}), syncError: func() error { return nil }, endPauses: func() {}, namespaces: namespaces, pods: map[watch.Key]Pod{}, changed: make(chan struct{}), dirty: map[watch.Key]struct{}{},
		attached: map[types.UID]attached{}, wake: make(chan struct{}, 1),
	}
}

// Metadata is what policies know of a pod that is being attached. It waits for the watch to tell of the pod, reads it
// once from the API server if the watch does not, and then fails with [fault.Unavailable]: labels are never guessed. It
// also waits for the policies after a start.
func (p *Pods) Metadata(ctx context.Context, pod endpoint.Pod) (endpoint.Metadata, error) {
	key := watch.Key{Namespace: pod.Namespace, Name: pod.Name}
	late := time.NewTimer(podWait)
	defer late.Stop()
	p.endPausesUnless(key, types.UID(pod.UID))
	select {
	case <-p.policies:
	case <-late.C:
		if earlier, ok := p.lastAttached(types.UID(pod.UID)); ok {
			if metadata, _, ok := p.known(key, types.UID(pod.UID)); ok {
				return metadata, nil
			}
			return earlier, nil
		}
		err := fmt.Errorf("pod %s is not attached before the policies of the API server are known", key)
		if why := p.syncError(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return endpoint.Metadata{}, fault.Wrap(fault.Unavailable, err)
	case <-ctx.Done():
		return endpoint.Metadata{}, fmt.Errorf("wait for the policies of the API server: %w", ctx.Err())
	}
	for {
		_, namespaces := p.namespaces.all.Get()
		metadata, changed, ok := p.known(key, types.UID(pod.UID))
		if ok {
			return metadata, nil
		}
		select {
		case <-changed:
		case <-namespaces:
		case <-late.C:
			return p.ask(ctx, key, types.UID(pod.UID))
		case <-ctx.Done():
			return endpoint.Metadata{}, fmt.Errorf("wait for pod %s: %w", key, ctx.Err())
		}
	}
}

// endPausesUnless ends the watches' pauses unless the pod's metadata and the policies are known: the API server may be
// back.
func (p *Pods) endPausesUnless(key watch.Key, uid types.UID) {
	if _, _, ok := p.known(key, uid); ok {
		select {
		case <-p.policies:
			return
		default:
		}
	}
	p.endPauses()
}

func (p *Pods) known(key watch.Key, uid types.UID) (m endpoint.Metadata, changed <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod, known := p.pods[key]
	namespace, knownNamespace := p.namespace(key.Namespace)
	if !known || !knownNamespace || (uid != "" && pod.UID != uid) {
		return m, p.changed, false
	}
	return metadataOf(pod, namespace), nil, true
}

func metadataOf(pod Pod, namespace Namespace) endpoint.Metadata {
	return endpoint.Metadata{Labels: pod.Labels, NamespaceLabels: namespace.Labels, NamedPorts: pod.Ports}
}

// ask reads the pod once. Of another UID under its name the API server has the newer one.
func (p *Pods) ask(ctx context.Context, key watch.Key, uid types.UID) (endpoint.Metadata, error) {
	object, err := p.read(ctx, key)
	if apierrors.IsNotFound(err) {
		return endpoint.Metadata{}, fault.Wrap(fault.Unavailable, fmt.Errorf("pod %s is not known to the API server (yet)", key))
	}
	if err != nil {
		if metadata, ok := p.lastAttached(uid); ok {
			return metadata, nil
		}
		return endpoint.Metadata{}, fault.Wrap(fault.Unavailable, fmt.Errorf("the labels of pod %s are not known: read it from the API server: %w", key, err))
	}
	pod := slimPod(object)
	if uid != "" && pod.UID != uid {
		return endpoint.Metadata{}, fault.Wrap(fault.Unavailable, fmt.Errorf("pod %s with UID %s was replaced by one with UID %s", key, uid, pod.UID))
	}
	namespace, ok := p.namespace(key.Namespace)
	if !ok {
		return endpoint.Metadata{}, fault.Wrap(fault.Unavailable, fmt.Errorf("the labels of namespace %s are not known (yet)", key.Namespace))
	}
	return metadataOf(pod, namespace), nil
}

// running returns the pods that run, and have a network namespace of their own.
func (p *Pods) running() (keys []watch.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, pod := range p.pods {
		if pod.Running && !pod.OfNode {
			keys = append(keys, key)
		}
	}
	return keys
}

// Waiting returns the pods without an endpoint that have waited for longer than d for their containers, sorted, as
// namespace/name.
func (p *Pods) Waiting(d time.Duration) (pods []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, pod := range p.pods {
		_, attached := p.attached[pod.UID]
		if !attached && !pod.OfNode && !pod.Waits.IsZero() && time.Since(pod.Waits) > d {
			pods = append(pods, key.String())
		}
	}
	slices.Sort(pods)
	return pods
}

// changedLocked wakes who waits for a pod.
func (p *Pods) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// mark marks a pod for the follower.
func (p *Pods) mark(key watch.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.markLocked(key)
}

// takeDirty returns the pods that are marked, and clears the marks.
func (p *Pods) takeDirty() []watch.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := slices.Collect(maps.Keys(p.dirty))
	clear(p.dirty)
	return keys
}

func (p *Pods) markLocked(key watch.Key) {
	p.dirty[key] = struct{}{}
	task.Wake(p.wake)
}

// podHandler is the handler of the watch of pods.
type podHandler struct{ *Pods }

// Replace implements [watch.Handler].
func (p podHandler) Replace(objects map[watch.Key]watch.Object[Pod]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods = make(map[watch.Key]Pod, len(objects))
	for key, object := range objects {
		p.pods[key] = object.Value
		p.markLocked(key)
	}
	p.changedLocked()
	select {
	case <-p.listed:
	default:
		close(p.listed)
	}
}

// Update implements [watch.Handler].
func (p podHandler) Update(object watch.Object[Pod]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[object.Key] = object.Value
	p.markLocked(object.Key)
	p.changedLocked()
}

// Delete implements [watch.Handler].
func (p podHandler) Delete(object watch.Object[Pod]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, object.Key)
}

// markNamespaces marks the pods of namespaces whose labels differ.
func (p *Pods) markNamespaces(before, now map[string]Namespace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.pods {
		if !maps.Equal(before[key.Namespace].Labels, now[key.Namespace].Labels) {
			p.markLocked(key)
		}
	}
}

// namespace returns false for a namespace that is not known (yet).
func (p *Pods) namespace(name string) (Namespace, bool) {
	all, _ := p.namespaces.all.Get()
	namespace, ok := all[name]
	return namespace, ok
}
