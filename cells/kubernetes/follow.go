package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/fault"
)

// updateTimeout bounds the change of one endpoint. A change that failed is made again after firstRetry, which doubles
// up to lastRetry.
const (
	updateTimeout = 30 * time.Second
	firstRetry    = time.Second
	lastRetry     = time.Minute
)

// follower changes endpoints as their pods and namespaces change. It works on the last state: of many changes at once
// it may skip some, never the last one.
type follower struct {
	pods    *Pods
	lookup  endpointmanager.Lookup
	manager endpointmanager.Manager
	log     *slog.Logger
}

// run changes endpoints until ctx ends.
func (f *follower) run(ctx context.Context) error {
	pauses := map[watch.Key]time.Duration{} // of pods whose last change failed
	var seen map[string]Namespace
	for {
		namespaces, changed := f.pods.namespaces.all.Get()
		f.pods.markNamespaces(seen, namespaces)
		seen = namespaces
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			continue
		case <-f.pods.wake:
		}
		for _, key := range f.pods.takeDirty() {
			err := f.update(ctx, key)
			if err == nil {
				delete(pauses, key)
				continue
			}
			pause := min(max(firstRetry, 2*pauses[key]), lastRetry)
			pauses[key] = pause
			f.log.Warn("labels of a pod not applied", "pod", key.Name, "namespace", key.Namespace, "error", err, "retry", pause)
			time.AfterFunc(pause, func() { f.pods.mark(key) })
		}
	}
}

// update gives the endpoints of a pod what the API says of it.
func (f *follower) update(ctx context.Context, key watch.Key) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	var errs []error
	for _, ep := range f.lookup.List() {
		if ep.Spec.Pod.Namespace != key.Namespace || ep.Spec.Pod.Name != key.Name || ep.State != endpoint.Ready {
			continue
		}
		metadata, _, ok := f.pods.known(key, types.UID(ep.Spec.Pod.UID))
		if !ok {
			continue // another pod has the name by now: this one is about to go
		}
		_, err := f.manager.Update(ctx, ep.Spec.Attachment, metadata)
		if fault.KindOf(err) == fault.Invalid { // the permissions of the earlier labels end
			_, denied := f.manager.Update(ctx, ep.Spec.Attachment, endpoint.Metadata{Unknown: true})
			err = errors.Join(err, denied)
		}
		errs = append(errs, endpointmanager.IgnoreNotReady(err))
	}
	return errors.Join(errs...)
}
