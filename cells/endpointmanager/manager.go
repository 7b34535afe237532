package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/fx"
	"golang.org/x/sync/errgroup"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/task"
)

// Manager changes endpoints. All methods may be called concurrently; calls for one attachment take their turn.
type Manager interface {
	// Create brings up an endpoint and returns it when every step has succeeded, or undoes all steps. It stops early when
	// ctx ends, and returns after the undo. namespace is the container's network namespace, or nil; Create closes it in
	// any case. The same Spec again returns the existing endpoint. Another Spec for a living attachment replaces it. A
	// Spec for the same interface of the same pod in a newer container supersedes the older container's endpoint. Other
	// Metadata do not make another Spec: they change the existing endpoint, as Update does. A call that began before the
	// deletion of its attachment is [ErrDeleted]. A call that began before the creation for a newer container of its pod
	// is [ErrSuperseded].
	Create(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error)

	// Delete takes down the endpoint of the attachment. The deletion of an unknown attachment is a success, and
	// remembered. An endpoint that began after the deletion is another life, and stays. A deletion goes on after ctx has
	// ended.
	Delete(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig) DeleteResult

	// DeleteContainer takes down every endpoint of the container, and skips the agent's own endpoints. None is a success.
	DeleteContainer(ctx context.Context, containerID string, cfg endpoint.DeleteConfig) DeleteResult

	// Repair restores missing parts of an endpoint that is ready, with each step's Restore, and writes its record. Any
	// other endpoint is [ErrNotReady] or [ErrNotFound].
	Repair(ctx context.Context, attachment endpoint.Attachment) error

	// Update changes the metadata of an endpoint that is ready, and returns it when the steps follow it and it is on
	// record. Any other endpoint is [ErrNotReady] or [ErrNotFound].
	Update(ctx context.Context, attachment endpoint.Attachment, change endpoint.Metadata) (endpoint.Endpoint, error)

	// Collect takes down the endpoints that a network no longer has.
	Collect(ctx context.Context, request GC) GCResult
}

// Lookup reads endpoints. It knows no subscriber, so a subscriber may have it.
type Lookup interface {
	// Get finds one endpoint, or returns [ErrNotFound]. A [endpoint.Ref] that fits several endpoints is [ErrAmbiguous].
	Get(ref endpoint.Ref) (endpoint.Endpoint, error)
	// List returns all endpoints by ascending ID.
	List() []endpoint.Endpoint
}

// Service is a [Manager] with a life of its own: Start before the first call, Stop after the last.
type Service interface {
	Manager
	// Start opens the ledger and brings back what it holds; it blocks until that is done. The steps must have been
	// started.
	Start(ctx context.Context) error
	// Stop waits for what is under way and closes the ledger. The endpoints stay as they are.
	Stop(ctx context.Context) error
	// Restored says what Start found.
	Restored() v1.Restored
}

// Params are the parts of a manager. Config, Log and Table are needed.
type Params struct {
	fx.In

	Config      Config
	Log         *slog.Logger
	Table       *Table
	Steps       endpoint.Steps
	Subscribers []endpoint.Subscriber `group:"endpoint.subscribers"`
	Observers   []endpoint.Observer   `group:"endpoint.observers"`
	PodSources  []PodSource           `group:"endpoint.podsources"`
}

// New returns a manager that has not started.
func New(p Params) Service { return newUnmeasured(p) }

func newUnmeasured(p Params) *manager {
	return build(p, admission.NewQueues(p.Config.Parallel), restored.New())
}

// manager answers the calls. Each call finds its endpoint in the registry, posts a message to it, and waits for the
// answer.
type manager struct {
	cfg         Config
	log         *slog.Logger
	boot        func() time.Duration // CLOCK_BOOTTIME
	here        func() (ledger.Origin, error)
	table       *Table
	registry    *registry
	steps       endpoint.Steps
	subscribers []endpoint.Subscriber // a subscriber may read the table: no lock is held
	observers   []endpoint.Observer
	podSources  []PodSource
	queues      *admission.Queues

	open   func(path string) (ledger.Ledger, error)
	ledger ledger.Ledger // nil until the manager starts
	report v1.Restored   // of the start

	// afterWait is called when a creation that waited for another endpoint goes on. A simulation decides with it which of
	// several creations does so first.
	afterWait func(endpoint.Spec)

	barrier         *restored.Barrier // opens when the endpoints of the ledger are restored
	expiry          *task.Task
	deletionRecords *deletionRecords
}

func build(p Params, queues *admission.Queues, barrier *restored.Barrier) *manager {
	m := &manager{
		cfg: p.Config, log: p.Log, boot: boottime.Now, here: originHere, table: p.Table, registry: newRegistry(p.Config.MaxEndpoints),
		steps: p.Steps, subscribers: p.Subscribers, observers: p.Observers, podSources: p.PodSources, queues: queues,
		open:      func(path string) (ledger.Ledger, error) { return ledger.Open(path) },
		afterWait: func(endpoint.Spec) {}, barrier: barrier,
	}
	m.deletionRecords = newDeletionRecords(m)
	m.expiry = task.Every(p.Log, task.Round{
		Name: "endpointmanager-expire", Interval: max(p.Config.TombstoneTTL/10, time.Second), Later: true, Run: m.expire,
	})
	return m
}

// Start implements [Service].
func (m *manager) Start(ctx context.Context) (err error) {
	if err := m.cfg.Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	opened, err := m.open(m.cfg.ledgerPath())
	if err != nil {
		return err
	}
	m.ledger = opened
	defer func() {
		if err != nil { // perhaps because ctx has ended
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, m.Stop(ctx))
		}
	}()
	restorer := &restorer{m: m}
	if err := restorer.restore(ctx); err != nil {
		return err
	}
	m.report = restorer.report.Restored
	m.registry.withLock(func() { m.registry.stopped = false })
	m.barrier.Open()              // an endpoint that is not restored is held
	for _, t := range m.tasks() { // a supervisor that starts them, too, does nothing
		t.Start(m.barrier.Done())
	}
	return nil
}

// Restored implements [Service].
func (m *manager) Restored() v1.Restored { return m.report }

// startTime is the start time that a caller gives, or now when it gives none. A time in the future is now, or no later
// call could follow it.
func (m *manager) startTime(began time.Duration) time.Duration {
	if now := m.boot(); began <= 0 || began > now {
		return now
	}
	return began
}

func (m *manager) tasks() []*task.Task { return []*task.Task{m.expiry, m.deletionRecords.task} }

// Stop implements [Service].
func (m *manager) Stop(ctx context.Context) error {
	m.registry.close()
	if m.ledger == nil {
		return nil // it never started
	}
	stopped := task.StopAll(ctx, m.tasks()...)
	closed := make(chan error, 1)
	go func() {
		m.registry.running.Wait()
		closed <- m.ledger.Close()
	}()
	select {
	case err := <-closed:
		return errors.Join(stopped, err)
	case <-ctx.Done():
		return errors.Join(stopped, fmt.Errorf("wait for endpoints: %w", ctx.Err()))
	}
}

// expire removes old tombstones.
func (m *manager) expire(context.Context) error {
	before := m.boot() - m.cfg.TombstoneTTL
	m.registry.withLock(func() {
		calls := m.registry.calls
		maps.DeleteFunc(calls.deleted, func(_ endpoint.Attachment, began time.Duration) bool { return began < before })
		maps.DeleteFunc(calls.newest, func(pod podInterface, add latestAdd) bool {
			return add.began < before && len(m.registry.byPod[pod]) == 0
		})
	})
	if err := m.ledger.Expire(before, math.MaxInt64); err != nil {
		return fmt.Errorf("old tombstones stay: %w", err)
	}
	return nil
}

// Create implements [Manager]. The loop ends when no other endpoint is in the way: an older container of the pod, or an
// earlier life of the attachment with another Spec.
func (m *manager) Create(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	if namespace != nil {
		defer namespace.Close() // no part of the creation runs after Create
		spec.NetNSCookie = namespace.Cookie()
	}
	if err := spec.Validate(); err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("create endpoint: %w", err)
	}
	spec.Began = m.startTime(spec.Began)
	spec, err := withMetadata(ctx, m.podSources, spec)
	first := &message{
		verb: verbCreate, ctx: ctx, namespace: namespace, done: make(chan answer, 1),
		watch: startWatchSince(endpoint.OperationAdd, m.boot()-spec.Began),
	}
	for waited := false; err == nil; waited = true {
		if waited {
			m.afterWait(spec)
		}
		var e *managed
		var inTheWay []*managed
		mine := newManaged(m, spec)
		e, inTheWay, err = m.registry.admit(mine, first)
		switch {
		case err != nil:
		case len(inTheWay) > 0:
			err = m.makeRoom(ctx, spec, inTheWay)
		case e == mine:
			a := <-first.done // it ends soon after ctx does
			if a.err == nil {
				return a.ep, nil
			}
			err = a.err
		default:
			switch a := e.ask(ctx, message{verb: verbRenew, spec: spec}); {
			case a.retry: // an earlier life of the attachment goes; a life that has begun later stays, and the next look-up finds it
				m.afterWait(spec)
				result := m.removeOne(ctx, e, endpoint.DeleteConfig{Began: spec.Began}, startWatch(endpoint.OperationDel))
				if len(result.Errors) > 0 {
					err = fault.Wrap(fault.Unavailable, fmt.Errorf("take down the endpoint it had before: %w", result.Errors[0]))
				}
			case a.err != nil:
				err = a.err
			case !a.gone:
				return a.ep, nil
			}
		}
	}
	return endpoint.Endpoint{}, fmt.Errorf("create endpoint %s: %w", spec.Attachment, err)
}

// makeRoom takes down what is in the way of an ADD. A pod has one address, however often its sandbox is made and
// whether or not a DEL of an older sandbox comes. The removal of an older container that fails is tried again: the pod
// does not wait for it, and the subscribers hear of its end now, before they hear of the newer container. The held link
// of the attachment has to go.
func (m *manager) makeRoom(ctx context.Context, spec endpoint.Spec, inTheWay []*managed) error {
	config := endpoint.DeleteConfig{Began: spec.Began}
	for _, e := range inTheWay {
		if !e.attachment.IsUnnamed() {
			m.log.Info("endpoint is superseded by a newer container of its pod", "container", e.attachment.ContainerID,
				"ifname", e.attachment.IfName, "pod", spec.Pod.String(), "by", spec.Attachment.ContainerID)
		}
		result := m.removeOne(ctx, e, config, startWatch(endpoint.OperationDel))
		err := errors.Join(result.Errors...)
		switch {
		case err != nil && e.attachment.IsUnnamed():
			return fault.Wrap(fault.Unavailable, fmt.Errorf("take down the link it had before: %w", result.Errors[0]))
		case errors.Is(err, ErrPending), errors.Is(err, ErrStopped):
			return err
		case err != nil:
			m.log.Warn("superseded endpoint is not gone yet, its removal is tried again", "container", e.attachment.ContainerID, "error", err)
			if a := e.ask(ctx, message{verb: verbAnnounce, config: config}); a.err != nil {
				return a.err
			}
		}
		if result.Skipped == 0 { // it was not renewed meanwhile
			m.registry.withLock(func() { e.superseded = true })
		}
	}
	return nil
}

// DeleteResult counts the outcome of a deletion. The deletions in Errors stay on record and are tried again, except for
// [ErrStopped] and [ErrPending]: after these the caller asks again.
type DeleteResult struct {
	Deleted int
	Skipped int // endpoints that stay: they began after the deletion, or the agent made them for itself
	Errors  []error
	GivenUp []error // failed steps of endpoints that were deleted by force
}

func (r *DeleteResult) add(other DeleteResult) {
	r.Deleted += other.Deleted
	r.Skipped += other.Skipped
	r.Errors = append(r.Errors, other.Errors...)
	r.GivenUp = append(r.GivenUp, other.GivenUp...)
}

// Delete implements [Manager].
func (m *manager) Delete(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig) DeleteResult {
	if err := m.registry.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("delete endpoint %s: %w", attachment, err)}}
	}
	cfg.Began = m.startTime(cfg.Began)
	return m.removeEndpoint(ctx, attachment, cfg, startWatchSince(endpoint.OperationDel, m.boot()-cfg.Began))
}

// DeleteContainer implements [Manager].
func (m *manager) DeleteContainer(ctx context.Context, containerID string, cfg endpoint.DeleteConfig) DeleteResult {
	if err := m.registry.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("delete the endpoints of container %.64s: %w", containerID, err)}}
	}
	cfg.Began = m.startTime(cfg.Began)
	return m.removeContainer(ctx, containerID, cfg)
}

// removeEndpoint makes it the goal of the attachment's endpoint to be gone, unless it is of a later life, and waits
// until it is gone or ctx ends. It remembers the deletion, as an ADD that began before it may come late.
func (m *manager) removeEndpoint(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig, watch *stopwatch) (result DeleteResult) {
	var swept *managed
	if cfg.Sweep {
		swept = newSwept(m, attachment, cfg)
	}
	e, unnamed := m.registry.remember(attachment, cfg.Began, swept)
	var unnamedErrors []error
	if unnamed != nil {
		unnamedErrors = m.removeOne(ctx, unnamed, cfg, startWatch(endpoint.OperationDel)).Errors
	}
	switch {
	case e == nil:
	case e == swept: // the agent had no endpoint, so none is deleted
		result = m.removeOne(ctx, e, cfg, watch)
		result.Deleted = 0
	case m.registry.beganAt(e) > cfg.Began:
		m.registry.withLock(func() { e.named = false }) // a deletion record of an earlier life is done
		result.Skipped = 1
	default:
		result = m.removeOne(ctx, e, cfg, watch)
	}
	// A deletion that has removed an endpoint, or goes on, is on record already.
	if result.Deleted == 0 && len(result.Errors) == 0 && (e == nil || e != swept) {
		result.Errors = append(result.Errors, m.recordDeletion(attachment, cfg.Began)...)
	}
	result.Errors = append(result.Errors, unnamedErrors...)
	return result
}

// removeContainer takes down the present endpoints of the container, one after the other. It remembers the deletion of
// the container, as the ADD of another interface may come late.
func (m *manager) removeContainer(ctx context.Context, containerID string, cfg endpoint.DeleteConfig) (sum DeleteResult) {
	container := endpoint.Attachment{ContainerID: containerID}
	var present []*managed
	m.registry.withLock(func() {
		m.registry.calls.rememberDelete(container, cfg.Began)
		present = sorted(m.registry.byContainer[containerID])
	})
	for _, e := range present {
		if e.isReserved() {
			sum.Skipped++
			continue
		}
		sum.add(m.removeEndpoint(ctx, e.attachment, cfg, startWatch(endpoint.OperationDel)))
	}
	sum.Errors = append(sum.Errors, m.recordDeletion(container, cfg.Began)...)
	return sum
}

// removeOne takes down this life of an attachment, in its turn.
func (m *manager) removeOne(ctx context.Context, e *managed, cfg endpoint.DeleteConfig, watch *stopwatch) DeleteResult {
	a := e.ask(ctx, message{verb: verbRemove, config: cfg, watch: watch})
	switch {
	case errors.Is(a.err, ErrStopped):
		a.Errors = []error{fmt.Errorf("delete endpoint %s: %w", e.attachment, ErrStopped)}
	case a.err != nil:
		a.Errors = []error{fmt.Errorf("delete endpoint %s: %w: %w", e.attachment, ErrPending, a.err)}
	}
	return a.DeleteResult
}

// recordDeletion records a deletion that has no other record. A failure is no error while the agent serves: a full disk
// does not keep a pod from going, and the deletion is known as long as this agent lives.
func (m *manager) recordDeletion(a endpoint.Attachment, began time.Duration) []error {
	err := m.ledger.RecordDeletion(ledger.DeletionNote{Attachment: a, Began: began, Boot: m.boot()})
	switch {
	case err == nil:
		return nil
	case m.registry.refusal() != nil:
		return []error{fmt.Errorf("delete endpoint %s: %w", a, ErrStopped)}
	}
	m.log.Warn("deletion is remembered until the agent ends, and not on record", "container", a.ContainerID, "ifname", a.IfName, "error", err)
	return nil
}

// Update implements [Manager].
func (m *manager) Update(ctx context.Context, attachment endpoint.Attachment, change endpoint.Metadata) (endpoint.Endpoint, error) {
	text, err := change.Encode()
	e := m.registry.find(attachment)
	if err == nil && e == nil {
		err = ErrNotFound
	}
	if err == nil {
		spec := e.spec
		spec.Metadata = text
		err = spec.ValidateMetadata()
	}
	var a answer
	if err == nil {
		a, err = e.askReady(ctx, message{verb: verbUpdate, metadata: text})
	}
	if err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("update endpoint %s: %w", attachment, err)
	}
	return a.ep, nil
}

// Repair implements [Manager].
func (m *manager) Repair(ctx context.Context, attachment endpoint.Attachment) error {
	e, err := m.registry.find(attachment), ErrNotFound
	if e != nil {
		_, err = e.askReady(ctx, message{verb: verbRepair})
	}
	if err != nil {
		return fmt.Errorf("repair endpoint %s: %w", attachment, err)
	}
	return nil
}

// Held implements [Holder].
func (m *manager) Held() (list []Held) {
	m.registry.withLock(func() {
		for _, e := range m.registry.byAttachment {
			if e.held != nil {
				list = append(list, *e.held)
			}
		}
	})
	slices.SortFunc(list, func(a, b Held) int {
		return strings.Compare(a.Endpoint.Spec.Attachment.String(), b.Endpoint.Spec.Attachment.String())
	})
	return list
}

// Accept implements [Holder].
func (m *manager) Accept(ctx context.Context, a endpoint.Attachment) (sum DeleteResult) {
	if err := m.registry.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("accept what the restore holds: %w", err)}}
	}
	isAll := a == endpoint.Attachment{}
	list := m.registry.list(func(e *managed) bool { return e.held != nil && (isAll || e.attachment == a) })
	if !isAll && len(list) == 0 {
		return DeleteResult{Errors: []error{fmt.Errorf("accept %s: %w", a, ErrNotHeld)}}
	}
	var mu sync.Mutex // guards sum
	var group errgroup.Group
	group.SetLimit(deletionsAtOnce)
	for _, e := range list {
		group.Go(func() error {
			result := m.removeOne(ctx, e, endpoint.DeleteConfig{}, startWatch(endpoint.OperationDel))
			mu.Lock()
			defer mu.Unlock()
			sum.add(result)
			return nil
		})
	}
	_ = group.Wait()
	asked := "all"
	if !isAll {
		asked = a.String()
	}
	m.log.Info("held attachments are accepted as gone", "asked", asked, "held", len(list), "removed", sum.Deleted,
		"failed", len(sum.Errors), "left", len(m.Held()))
	return sum
}
