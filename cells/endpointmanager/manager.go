package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/task"
)

// Manager changes endpoints. All methods may be called concurrently; calls for one attachment take their turn.
type Manager interface {
	// Create brings up an endpoint and returns it when every step has succeeded, or undoes it all. It stops early
	// when ctx ends, and returns when what it did is undone. namespace is the container's network namespace, or nil; Create
	// closes it in any case.
	// The same Spec again returns the endpoint that is there; another Spec for a living attachment replaces it, and one
	// for the same interface of the same pod in a newer container supersedes the older container's. Metadata is not what
	// makes it another Spec: it changes the endpoint that is there, as Update does.
	// One that began before the deletion of its attachment is [ErrDeleted], one that began before the creation for a
	// newer container of its pod [ErrSuperseded].
	Create(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error)

	// Delete takes down the endpoint of the attachment. One that is unknown is a success, and remembered. One that began
	// after the deletion did is another life, and stays. A deletion goes on after ctx has ended.
	Delete(ctx context.Context, attachment endpoint.Attachment, cfg endpoint.DeleteConfig) DeleteResult

	// DeleteContainer takes down every endpoint of the container, and skips the agent's own ones. None is a success.
	DeleteContainer(ctx context.Context, containerID string, cfg endpoint.DeleteConfig) DeleteResult

	// Repair makes anew what the steps and the ledger lack of an endpoint that is ready: each step's Restore. Any other
	// endpoint is [ErrNotReady] or [ErrNotFound].
	Repair(ctx context.Context, attachment endpoint.Attachment) error

	// Update changes the metadata of an endpoint that is ready, and returns it when the steps follow it and it is on record. Any
	// other endpoint is [ErrNotReady] or [ErrNotFound].
	Update(ctx context.Context, attachment endpoint.Attachment, change endpoint.Metadata) (endpoint.Endpoint, error)

	// Creating returns the attachments of the creations that are under way, also of those that wait for something of before
	// to go and have no endpoint yet.
	Creating() []endpoint.Attachment

	// Collect takes down what a network no longer has.
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
	Restored() Report
}

// Params is what a manager is made of. Config, Log and Table are needed.
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
	return build(p, admission.NewQueues(p.Config.Parallel, func(admission.Lane, time.Duration) {}), newHeldSet(), restored.New())
}

// manager is the whole of its parts, each in a file of its own: the creator makes endpoints, the deleter takes them
// down, the restorer brings them back at a start.
type manager struct {
	*creator
	*deleter
	*repairer
	*updater
	*collector
	*restorer
	*holder

	cfg             Config
	log             *slog.Logger
	table           *Table
	gate            *gate
	registry        *registry
	records         *recorder
	ledgerFile      *ledgerFile
	held            *heldSet
	deletionRecords *deletionRecords
	open            func(path string) (ledger.Ledger, error)

	barrier *restored.Barrier // opens when what the ledger has is restored
	expiry  *task.Task
}

func build(p Params, queues *admission.Queues, held *heldSet, barrier *restored.Barrier) *manager {
	gate := newGate()
	registry := newRegistry(p.Table, p.Log, gate, p.Config.MaxEndpoints)
	clock := clock{boottime.Now}
	records := &recorder{clock: &clock, registry: registry}
	steps := &stepRunner{list: p.Steps, table: p.Table, log: p.Log}
	listeners := &listeners{p.Subscribers, p.Observers}
	m := &manager{
		cfg: p.Config, log: p.Log, table: p.Table, gate: gate, registry: registry, records: records,
		ledgerFile: &ledgerFile{log: p.Log, records: records}, held: held, barrier: barrier,
		open: func(path string) (ledger.Ledger, error) { return ledger.Open(path) },
	}
	m.deleter = &deleter{
		log: p.Log, retryInterval: p.Config.RetryInterval, clock: &clock, gate: gate, registry: registry, records: records,
		steps: steps, listeners: listeners, queues: queues, held: held,
	}
	m.updater = &updater{log: p.Log, registry: registry, records: records, steps: steps, listeners: listeners}
	m.creator = &creator{
		cfg: p.Config, log: p.Log, clock: &clock, registry: registry, creations: newCreations(), records: records, steps: steps,
		listeners: listeners, queues: queues, deleter: m.deleter, updater: m.updater, sources: p.PodSources, afterWait: func(endpoint.Spec) {},
	}
	m.repairer = &repairer{log: p.Log, registry: registry, records: records, steps: steps, listeners: listeners}
	m.holder = &holder{log: p.Log, gate: gate, held: held, deleter: m.deleter}
	m.collector = &collector{share: p.Config.GCShare, clock: &clock, gate: gate, registry: registry, deleter: m.deleter}
	m.deletionRecords = &deletionRecords{
		path: p.Config.deletionsPath(), log: p.Log, clock: &clock, here: originHere, registry: registry, deleter: m.deleter,
	}
	m.deletionRecords.task = m.deletionRecords.newTask(p.Log)
	reader := &ledgerReader{tombstoneTTL: p.Config.TombstoneTTL, clock: &clock, registry: registry, records: records, steps: steps}
	m.restorer = &restorer{
		log: p.Log, here: originHere, registry: registry, records: records, reader: reader,
		steps: steps, listeners: listeners, held: held, deleter: m.deleter, deletionRecords: m.deletionRecords,
	}
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
	m.records.ledger = opened
	defer func() {
		if err != nil { // perhaps because ctx has ended
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, m.Stop(ctx))
		}
	}()
	if err := m.restorer.restore(ctx); err != nil {
		return err
	}
	m.gate.open()
	m.barrier.Open()              // what is not restored is held
	for _, t := range m.tasks() { // a supervisor that starts them, too, does nothing
		t.Start(m.barrier.Done())
	}
	return nil
}

func (m *manager) tasks() []*task.Task { return []*task.Task{m.expiry, m.deletionRecords.task} }

// Stop implements [Service].
func (m *manager) Stop(ctx context.Context) error {
	m.registry.close()
	if m.records.ledger == nil {
		return nil // it never started
	}
	stopped := task.StopAll(ctx, m.tasks()...)
	closed := make(chan error, 1)
	go func() {
		m.registry.background.Wait()
		closed <- m.records.ledger.Close()
	}()
	select {
	case err := <-closed:
		return errors.Join(stopped, err)
	case <-ctx.Done():
		return errors.Join(stopped, fmt.Errorf("wait for endpoints: %w", ctx.Err()))
	}
}

// expire forgets old tombstones.
func (m *manager) expire(context.Context) error {
	before := m.records.clock.boot() - m.cfg.TombstoneTTL
	m.registry.forget(before)
	if err := m.records.expire(before); err != nil {
		return fmt.Errorf("old tombstones stay: %w", err)
	}
	return nil
}
