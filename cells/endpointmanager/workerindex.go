package endpointmanager

import (
	"cmp"
	"slices"
	"sync"

	"porin.dev/porin/cells/endpoint"
)

// workerIndex finds the endpoints' workers. The registry's lock guards it.
type workerIndex struct {
	byAttachment map[endpoint.Attachment]*worker
	byContainer  map[string]map[*worker]bool
	byPod        map[podInterface]map[*worker]bool
}

// podInterface is what only one attachment at a time can be: one interface of one pod. A pod whose sandbox is made anew
// gets it under another container ID.
type podInterface struct{ uid, ifName string }

// podInterfaceOf is false outside Kubernetes.
func podInterfaceOf(spec endpoint.Spec) (podInterface, bool) {
	return podInterface{spec.Pod.UID, spec.Attachment.IfName}, spec.Pod.UID != ""
}

func newWorkerIndex() workerIndex {
	return workerIndex{
		byAttachment: map[endpoint.Attachment]*worker{}, byContainer: map[string]map[*worker]bool{},
		byPod: map[podInterface]map[*worker]bool{},
	}
}

func (i *workerIndex) add(w *worker) {
	i.byAttachment[w.attachment] = w
	insert(i.byContainer, w.attachment.ContainerID, w)
	if pod, ok := podInterfaceOf(w.spec); ok {
		insert(i.byPod, pod, w)
	}
}

func (i *workerIndex) drop(w *worker) {
	delete(i.byAttachment, w.attachment)
	remove(i.byContainer, w.attachment.ContainerID, w)
	if pod, ok := podInterfaceOf(w.spec); ok {
		remove(i.byPod, pod, w)
	}
}

// ofContainer returns the workers of a container.
func (i *workerIndex) ofContainer(id string) (list []*worker) {
	for w := range i.byContainer[id] {
		list = append(list, w)
	}
	return sorted(list)
}

// olderOfPod returns what has the place of spec in its pod, and is not on its way out for that reason already.
func (i *workerIndex) olderOfPod(spec endpoint.Spec) (list []*worker) {
	pod, ok := podInterfaceOf(spec)
	if !ok {
		return nil
	}
	for w := range i.byPod[pod] {
		if w.attachment != spec.Attachment && !w.superseded.Load() {
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

// all returns every worker.
func (i *workerIndex) all() (list []*worker) {
	for _, w := range i.byAttachment {
		list = append(list, w)
	}
	return sorted(list)
}

// ids gives out endpoint numbers: from 1 to max, and one that was freed comes round again as late as possible, so
// that a stale reference meets nobody rather than somebody else.
type ids struct {
	max uint16

	mu   sync.Mutex // guards the fields below
	used map[uint16]bool
	last uint16
}

func newIDs(max uint16) *ids { return &ids{max: max, used: map[uint16]bool{}} }

// allocate returns a free number or [ErrNoID].
func (i *ids) allocate() (uint16, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for range i.max {
		i.last = i.last%i.max + 1
		if !i.used[i.last] {
			i.used[i.last] = true
			return i.last, nil
		}
	}
	return 0, ErrNoID
}

// reserve takes the very number, for an endpoint of an earlier life of the agent. It is false when it is taken.
func (i *ids) reserve(id uint16) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if id == 0 || i.used[id] {
		return false
	}
	i.used[id] = true
	if id <= i.max {
		i.last = max(i.last, id)
	}
	return true
}

// count returns how many numbers up to max are used. Endpoints of an earlier, larger max may have others.
func (i *ids) count() (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id := range i.used {
		if id <= i.max {
			n++
		}
	}
	return n
}

func (i *ids) free(id uint16) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.used, id)
}
