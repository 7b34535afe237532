package endpointmanager

import (
	"cmp"
	"slices"
)

// roster finds the endpoints' workers. The manager's lock guards it.
type roster struct {
	byAttachment map[Attachment]*worker
	byContainer  map[string]map[*worker]bool
	byPod        map[podInterface]map[*worker]bool
}

// podInterface is what only one attachment at a time can be: one interface of one pod. A pod whose sandbox is made anew
// gets it under another container ID.
type podInterface struct{ uid, ifName string }

// podInterfaceOf is false outside Kubernetes.
func podInterfaceOf(spec Spec) (podInterface, bool) {
	return podInterface{spec.Pod.UID, spec.Attachment.IfName}, spec.Pod.UID != ""
}

func newRoster() roster {
	return roster{
		byAttachment: map[Attachment]*worker{}, byContainer: map[string]map[*worker]bool{},
		byPod: map[podInterface]map[*worker]bool{},
	}
}

func (r *roster) add(w *worker) {
	r.byAttachment[w.attachment] = w
	insert(r.byContainer, w.attachment.ContainerID, w)
	if pod, ok := podInterfaceOf(w.spec); ok {
		insert(r.byPod, pod, w)
	}
}

func (r *roster) drop(w *worker) {
	delete(r.byAttachment, w.attachment)
	remove(r.byContainer, w.attachment.ContainerID, w)
	if pod, ok := podInterfaceOf(w.spec); ok {
		remove(r.byPod, pod, w)
	}
}

// ofContainer returns the workers of a container.
func (r *roster) ofContainer(id string) (list []*worker) {
	for w := range r.byContainer[id] {
		list = append(list, w)
	}
	return sorted(list)
}

// elders returns what has the place of spec in its pod, and is not on its way out for that reason already.
func (r *roster) elders(spec Spec) (list []*worker) {
	pod, ok := podInterfaceOf(spec)
	if !ok {
		return nil
	}
	for w := range r.byPod[pod] {
		if w.attachment != spec.Attachment && !w.superseded {
			list = append(list, w)
		}
	}
	return sorted(list)
}

// sorted makes what is done to several endpoints come in the same order each time.
func sorted(list []*worker) []*worker {
	slices.SortFunc(list, func(a, b *worker) int {
		return cmp.Or(cmp.Compare(a.attachment.ContainerID, b.attachment.ContainerID), cmp.Compare(a.attachment.IfName, b.attachment.IfName))
	})
	return list
}

func insert[K comparable](index map[K]map[*worker]bool, key K, w *worker) {
	if index[key] == nil {
		index[key] = map[*worker]bool{}
	}
	index[key][w] = true
}

func remove[K comparable](index map[K]map[*worker]bool, key K, w *worker) {
	delete(index[key], w)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// each returns every worker.
func (r *roster) each() (list []*worker) {
	for _, w := range r.byAttachment {
		list = append(list, w)
	}
	return sorted(list)
}
