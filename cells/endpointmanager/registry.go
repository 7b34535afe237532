package endpointmanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/task"
)

// registry knows the endpoints and the calls that came for them. Its lock is the only one of the manager and its
// endpoints; the [Table] has its own. The lock is held for look-ups and appends, never while a step, the ledger, a turn
// or a subscriber runs. A function that expects it ends in Locked.
type registry struct {
	running sync.WaitGroup // goroutines of endpoints

	mu           sync.Mutex // guards the fields below, and the shared fields of each endpoint
	stopped      bool       // callers change nothing: the manager has not started yet, or it stops
	closed       bool       // the manager stops: no endpoint may begin
	byAttachment map[endpoint.Attachment]*managed
	byContainer  map[string]map[*managed]bool       // by container ID
	byPod        map[podInterface]map[*managed]bool // all containers of a pod that have, or had, the interface
	unnamed      int                                // links of unknown attachments in byAttachment
	numbers      *ids
	calls        callOrder
	withheld     map[string]withheld // by network: the last GC that wanted too much
	lost         bool                // the file of the ledger, when it was last checked
}

// podInterface is one interface of one pod. Only one attachment at a time can be it. A pod whose sandbox is made again
// gets the interface under another container ID.
type podInterface struct{ uid, ifName string }

// podInterfaceOf is false outside Kubernetes.
func podInterfaceOf(spec endpoint.Spec) (podInterface, bool) {
	return podInterface{spec.Pod.UID, spec.Attachment.IfName}, spec.Pod.UID != ""
}

// newRegistry returns the registry of a manager that has not started.
func newRegistry(maxEndpoints uint16) *registry {
	return &registry{
		stopped: true, byAttachment: map[endpoint.Attachment]*managed{}, byContainer: map[string]map[*managed]bool{},
		byPod: map[podInterface]map[*managed]bool{}, numbers: newIDs(maxEndpoints),
		calls:    callOrder{deleted: map[endpoint.Attachment]time.Duration{}, newest: map[podInterface]latestAdd{}},
		withheld: map[string]withheld{},
	}
}

// close lets no call in any more. Messages that were posted are still served.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped, r.closed = true, true
	for _, e := range r.byAttachment {
		e.closeLocked()
	}
}

// refusal returns [ErrStopped] while callers change nothing.
func (r *registry) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return ErrStopped
	}
	return nil
}

// admit finds the endpoint for an ADD. It is mine, which begins with the message first; or an existing endpoint; or
// none, when others have to go before: the held link of the attachment, or older containers of the pod. Look-up and
// call order have one lock, so an ADD meets either the record of a DEL or the DEL.
func (r *registry) admit(mine *managed, first *message) (e *managed, inTheWay []*managed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	spec := mine.spec
	if r.stopped {
		return nil, nil, ErrStopped
	}
	if err := r.calls.refuse(spec); err != nil {
		return nil, nil, err
	}
	r.calls.rememberAdd(spec)
	if link := r.unnamedLocked(spec.Attachment, spec.Began); link != nil {
		return nil, []*managed{link}, nil
	}
	if older := r.olderLocked(spec); len(older) > 0 {
		for _, one := range older {
			r.calls.rememberDelete(one.attachment, spec.Began)
		}
		return nil, older, nil
	}
	if e := r.byAttachment[spec.Attachment]; e != nil {
		if spec.Began < e.began {
			return nil, nil, fmt.Errorf("%w: another ADD of it began %s later", ErrSuperseded, e.began-spec.Began)
		}
		return e, nil, nil
	}
	mine.mailbox = []*message{first}
	return mine, nil, r.addLocked(mine)
}

// remember records a deletion. It returns the endpoint of the attachment, and the link of the attachment that a start
// holds unnamed. Either may be nil. An unknown attachment gets the endpoint swept, if it is given: the deletion and a
// later ADD are then served in their order. It gets none when the node has no number left, or the manager stops.
func (r *registry) remember(a endpoint.Attachment, began time.Duration, swept *managed) (e, unnamed *managed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls.rememberDelete(a, began)
	unnamed = r.unnamedLocked(a, began)
	if e := r.byAttachment[a]; e != nil || swept == nil || r.closed {
		return e, unnamed
	}
	swept.named = r.stopped // before the agent serves, only a deletion record asks
	if err := r.addLocked(swept); err != nil {
		return nil, unnamed
	}
	return swept, unnamed
}

// rememberDeletionRecord marks the endpoints whose end a deletion record asks for: all of a container without an
// interface name.
func (r *registry) rememberDeletionRecord(a endpoint.Attachment, began time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.byContainer[a.ContainerID] {
		if (a.IfName == "" && !e.isReserved() || a.IfName == e.attachment.IfName) && e.began <= began {
			e.named = true
		}
	}
}

// addLocked gives the endpoint a number, unless it has one, and starts its goroutine.
func (r *registry) addLocked(e *managed) (err error) {
	if e.ep.ID == 0 {
		if e.ep.ID, err = r.numbers.allocate(); err != nil {
			return err
		}
	}
	r.byAttachment[e.attachment] = e
	insert(r.byContainer, e.attachment.ContainerID, e)
	if pod, ok := podInterfaceOf(e.spec); ok {
		insert(r.byPod, pod, e)
	}
	if e.attachment.IsUnnamed() {
		r.unnamed++
	}
	r.running.Go(e.run)
	return nil
}

// remove removes an endpoint that is gone. The next life of its attachment may begin.
func (r *registry) remove(e *managed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byAttachment, e.attachment)
	discard(r.byContainer, e.attachment.ContainerID, e)
	if pod, ok := podInterfaceOf(e.spec); ok {
		discard(r.byPod, pod, e)
	}
	if e.attachment.IsUnnamed() {
		r.unnamed--
	}
	e.cancel()
	close(e.gone)
	e.closeLocked()
}

// release frees the number of an endpoint whose goroutine has ended. Nothing of this life can meet the next endpoint of
// the number.
func (r *registry) release(e *managed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.isGone() {
		r.numbers.free(e.ep.ID)
	}
	close(e.ended)
}

// post appends a message to the mailbox of an endpoint. It is false when the mailbox is closed. A removal ends a
// creation at once.
func (r *registry) post(e *managed, msg *message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if msg.verb == verbRemove {
		e.cancel()
	}
	if e.closed {
		return false
	}
	e.mailbox = append(e.mailbox, msg)
	task.Wake(e.wake)
	return true
}

// take returns the next message of an endpoint, if there is one, and whether the mailbox is closed.
func (r *registry) take(e *managed) (msg *message, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(e.mailbox) == 0 {
		e.mailbox = nil // an array that a burst has grown is freed
		return nil, e.closed
	}
	msg, e.mailbox = e.mailbox[0], e.mailbox[1:]
	return msg, e.closed
}

// find returns the endpoint of the attachment, or nil.
func (r *registry) find(a endpoint.Attachment) *managed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byAttachment[a]
}

// list returns the endpoints that are wanted, in the order of their attachments. wanted runs with the lock.
func (r *registry) list(wanted func(*managed) bool) []*managed {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[*managed]bool{}
	for _, e := range r.byAttachment {
		if wanted(e) {
			found[e] = true
		}
	}
	return sorted(found)
}

// olderLocked returns the endpoints that have the place of spec in its pod, and do not end for that reason already.
func (r *registry) olderLocked(spec endpoint.Spec) []*managed {
	pod, ok := podInterfaceOf(spec)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(sorted(r.byPod[pod]), func(e *managed) bool { return e.attachment == spec.Attachment || e.superseded })
}

// unnamedLocked returns the link of the attachment when a start holds it unnamed, found by the name of its host end; or
// nil.
func (r *registry) unnamedLocked(a endpoint.Attachment, began time.Duration) *managed {
	if r.unnamed == 0 || a.IsUnnamed() {
		return nil // HostEnd computes a hash
	}
	if e := r.byAttachment[endpoint.Unnamed(a.HostEnd())]; e != nil && e.held != nil && e.began <= began {
		return e
	}
	return nil
}

// withLock runs a function that reads or changes shared fields of endpoints.
func (r *registry) withLock(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// beganAt is when the latest ADD of the endpoint began.
func (r *registry) beganAt(e *managed) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.began
}

// sorted returns the endpoints in the order of their attachments, so that work on several of them has the same order
// each time.
func sorted(set map[*managed]bool) []*managed {
	return slices.SortedFunc(maps.Keys(set), func(a, b *managed) int {
		return cmp.Or(cmp.Compare(a.attachment.ContainerID, b.attachment.ContainerID), cmp.Compare(a.attachment.IfName, b.attachment.IfName))
	})
}

func insert[K comparable](index map[K]map[*managed]bool, key K, e *managed) {
	if index[key] == nil {
		index[key] = map[*managed]bool{}
	}
	index[key][e] = true
}

func discard[K comparable](index map[K]map[*managed]bool, key K, e *managed) {
	delete(index[key], e)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// ids gives out endpoint numbers from 1 to max. A number that was freed is given out again as late as possible, so that
// a stale reference finds no endpoint instead of another one. The lock of the registry guards it.
type ids struct {
	max  uint16
	used map[uint16]bool
	last uint16
}

func newIDs(max uint16) *ids { return &ids{max: max, used: map[uint16]bool{}} }

// allocate returns a free number or [ErrNoID].
func (i *ids) allocate() (uint16, error) {
	for range i.max {
		i.last = i.last%i.max + 1
		if !i.used[i.last] {
			i.used[i.last] = true
			return i.last, nil
		}
	}
	return 0, ErrNoID
}

// reserve takes this number, for an endpoint of an earlier life of the agent. It is false when the number is taken.
func (i *ids) reserve(id uint16) bool {
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
	for id := range i.used {
		if id <= i.max {
			n++
		}
	}
	return n
}

func (i *ids) free(id uint16) { delete(i.used, id) }

// callOrder remembers when the latest calls began, by the boot clock: of two calls that contradict each other the later
// one is right. The lock of the registry guards it.
//
// An ADD that began before its attachment was deleted, and arrives after that, is late: its runtime has given it up and
// would never delete the endpoint. The same holds for an ADD that began before the ADD of another container of its pod.
// An ADD that began afterwards is a new life.
type callOrder struct {
	deleted map[endpoint.Attachment]time.Duration // when the latest DEL began; without an IfName it was for the whole container
	newest  map[podInterface]latestAdd
}

// latestAdd is the latest ADD of an interface of a pod.
type latestAdd struct {
	began       time.Duration
	containerID string
}

// rememberDelete records a deletion that a caller began at that time; 0 is a deletion without a caller.
func (c *callOrder) rememberDelete(a endpoint.Attachment, began time.Duration) {
	if began > 0 {
		c.deleted[a] = max(c.deleted[a], began)
	}
}

// rememberAdd records an ADD that was not refused.
func (c *callOrder) rememberAdd(spec endpoint.Spec) {
	pod, ok := podInterfaceOf(spec)
	if ok && spec.Began >= c.newest[pod].began {
		c.newest[pod] = latestAdd{spec.Began, spec.Attachment.ContainerID}
	}
}

// refuse returns [ErrDeleted] or [ErrSuperseded] for an ADD that is late.
func (c *callOrder) refuse(spec endpoint.Spec) error {
	for _, a := range []endpoint.Attachment{spec.Attachment, {ContainerID: spec.Attachment.ContainerID}} {
		if deleted, ok := c.deleted[a]; ok && spec.Began < deleted {
			return fmt.Errorf("%w: this ADD began %s before the DEL", ErrDeleted, deleted-spec.Began)
		}
	}
	pod, _ := podInterfaceOf(spec)
	newer, ok := c.newest[pod]
	if ok && newer.containerID != spec.Attachment.ContainerID && spec.Began < newer.began {
		return fmt.Errorf("%w: this ADD began %s before that of container %.64s", ErrSuperseded, newer.began-spec.Began, newer.containerID)
	}
	return nil
}
