package kubernetes

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/kubernetes/watch"
)

// keepAttached is how long the labels of a pod are kept whose endpoint is gone: the runtime may make its sandbox again.
const keepAttached = time.Hour

// attached is what the last endpoint of a pod had.
type attached struct {
	attachment endpoint.Attachment
	metadata   endpoint.Metadata
	pool       string
	deleted    time.Time // zero while there is an endpoint
}

// lastAttached has the labels that an endpoint of the same pod has or had. They are used while the API server is away.
func (p *Pods) lastAttached(uid types.UID) (endpoint.Metadata, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.attached[uid]
	return a.metadata, ok && uid != ""
}

// listener keeps the labels of endpoints, and marks pods whose endpoints have become ready: what changed meanwhile is
// applied.
type listener struct{ pods *Pods }

var _ endpoint.Subscriber = listener{}

func (l listener) ready(ep endpoint.Endpoint) {
	l.EndpointUpdated(ep)
	l.pods.mark(watch.Key{Namespace: ep.Spec.Pod.Namespace, Name: ep.Spec.Pod.Name})
}

// EndpointCreated implements [endpoint.Subscriber].
func (l listener) EndpointCreated(ep endpoint.Endpoint) { l.ready(ep) }

// EndpointRestored implements [endpoint.Subscriber].
func (l listener) EndpointRestored(ep endpoint.Endpoint) { l.ready(ep) }

// EndpointUpdated implements [endpoint.Subscriber].
func (l listener) EndpointUpdated(ep endpoint.Endpoint) {
	metadata, err := endpoint.DecodeMetadata(ep.Metadata)
	if ep.Spec.Pod.UID == "" || err != nil {
		return
	}
	l.pods.mu.Lock()
	defer l.pods.mu.Unlock()
	l.pods.attached[types.UID(ep.Spec.Pod.UID)] = attached{attachment: ep.Spec.Attachment, metadata: metadata, pool: ep.Pool}
}

// EndpointDeleted implements [endpoint.Subscriber].
func (l listener) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	l.pods.mu.Lock()
	defer l.pods.mu.Unlock()
	now := time.Now()
	if a, ok := l.pods.attached[types.UID(ep.Spec.Pod.UID)]; ok && a.attachment == ep.Spec.Attachment { // else the runtime has made the sandbox again
		a.deleted = now
		l.pods.attached[types.UID(ep.Spec.Pod.UID)] = a
	}
	maps.DeleteFunc(l.pods.attached, func(_ types.UID, a attached) bool { return !a.deleted.IsZero() && now.Sub(a.deleted) > keepAttached })
}
