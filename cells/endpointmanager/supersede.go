package endpointmanager

import (
	"context"
	"errors"
)

// supersede takes down what an older container of the pod has in the place that spec is for: an address a pod, however
// often its sandbox is made anew and whether or not anybody deletes the old ones. What cannot be taken down at once stays
// on record and is tried again; the pod need not wait for it, and who is told of endpoints hears of its end at once, for
// it is the pod's older container that goes and not the newer one.
func (m *manager) supersede(ctx context.Context, spec Spec, elders []*worker) error {
	cfg := DeleteConfig{Began: spec.Began}
	for _, w := range elders {
		m.mu.Lock()
		m.history.noteDeletion(w.attachment, spec.Began)
		m.mu.Unlock()
		m.log.Info("endpoint is superseded by a newer container of its pod", "container", w.attachment.ContainerID,
			"ifname", w.attachment.IfName, "pod", spec.Pod.String(), "by", spec.Attachment.ContainerID)
		result := m.deleteWorker(ctx, w, cfg, startWatch(Del))
		err := errors.Join(result.Errors...)
		if errors.Is(err, ErrPending) || errors.Is(err, ErrStopped) {
			return err
		}
		if err != nil {
			m.log.Warn("superseded endpoint is not gone yet, which is tried again", "container", w.attachment.ContainerID, "error", err)
			m.tellEarly(w, cfg)
		}
		m.mu.Lock()
		w.superseded = true
		m.mu.Unlock()
	}
	return nil
}

// tellEarly tells of the end of an endpoint whose deletion has failed and goes on.
func (m *manager) tellEarly(w *worker, cfg DeleteConfig) {
	done := make(chan struct{})
	queued := w.queue.push(func() {
		defer close(done)
		if w.isGone() {
			return
		}
		m.tellDeleted(w, cfg)
		w.born = false
		if err := m.ledger.put(m.recordOf(w, deleting, cfg)); err != nil {
			m.log.Warn("subscribers may hear twice of the end of an endpoint", attrs(w.ep), "error", err)
		}
	})
	if queued {
		<-done
	}
}
