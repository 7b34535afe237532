package endpointmanagertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/keylock"
)

// Manager is an [endpointmanager.Manager] and [endpointmanager.Lookup] in memory. It runs the steps, tells the
// subscribers and orders late calls as the real one does; [TestManager] tests both. It has no ledger, no limit of what
// is at work and no share of GC, and does not try a failed deletion again by itself.
type Manager struct {
	steps     endpoint.Steps
	listeners *listeners
	endpoints *endpointtest.Endpoints
	calls     *calls
	working   keylock.Locks[endpoint.Attachment] // one call after the other

	mu     sync.Mutex // guards the field below
	lastID uint16
}

var (
	_ endpointmanager.Manager = (*Manager)(nil)
	_ endpointmanager.Lookup  = (*Manager)(nil)
	_ endpointmanager.Lookup  = (*endpointtest.Endpoints)(nil)
)

// NewManager returns a manager that has no endpoint.
func NewManager(steps endpoint.Steps, subscribers ...endpoint.Subscriber) *Manager {
	return &Manager{
		steps: steps, listeners: &listeners{subscribers: subscribers, told: map[uint16]bool{}}, endpoints: endpointtest.NewEndpoints(),
		calls: newCalls(),
	}
}

// Set makes these the endpoints that there are, whatever their state. No step runs and no subscriber is told.
func (m *Manager) Set(endpoints ...endpoint.Endpoint) {
	for _, ep := range m.List() {
		m.endpoints.Delete(ep.ID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ep := range endpoints {
		m.endpoints.Put(ep)
		m.listeners.setTold(ep.ID, true)
		m.lastID = max(m.lastID, ep.ID)
	}
}

// Get implements endpointmanager.Lookup.
func (m *Manager) Get(ref endpoint.Ref) (endpoint.Endpoint, error) {
	ep, err := m.endpoints.Get(ref)
	switch {
	case err == nil:
		return ep, nil
	case fault.KindOf(err) == fault.NotFound:
		return endpoint.Endpoint{}, fmt.Errorf("endpoint %s: %w", ref, endpointmanager.ErrNotFound)
	}
	return endpoint.Endpoint{}, fmt.Errorf("endpoint %s: %w", ref, endpointmanager.ErrAmbiguous)
}

// List implements endpointmanager.Lookup.
func (m *Manager) List() []endpoint.Endpoint { return m.endpoints.List() }

// Create implements endpointmanager.Manager.
func (m *Manager) Create(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	if namespace != nil {
		defer namespace.Close()
		spec.NetNSCookie = namespace.Cookie()
	}
	if err := spec.Validate(); err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("create endpoint: %w", err)
	}
	spec.Began = since(spec.Began)
	ctx, over := m.calls.announce(ctx, spec)
	defer over()
	ep, err := m.create(ctx, spec, namespace)
	if err == nil {
		return ep, nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, endpointmanager.ErrDeleted) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return endpoint.Endpoint{}, fmt.Errorf("create endpoint %s: %w", spec.Attachment, err)
}

// create takes the attachment's turn and ends what is there before, unless it is what is asked for.
func (m *Manager) create(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	leave, err := m.working.Acquire(ctx, spec.Attachment)
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	defer leave()
	if err := m.calls.recordAdd(spec); err != nil {
		return endpoint.Endpoint{}, err
	}
	m.supersede(ctx, spec)
	if before, err := m.Get(endpoint.ByAttachment(spec.Attachment)); err == nil {
		switch {
		case spec.Began < before.Spec.Began:
			return endpoint.Endpoint{}, fmt.Errorf("%w: another ADD of it began later", endpointmanager.ErrSuperseded)
		case before.State == endpoint.Ready && before.Spec.SameRequest(spec):
			return m.renew(ctx, before, spec)
		}
		if result := m.takeDown(spec.Attachment, endpoint.DeleteConfig{Began: spec.Began}); len(result.Errors) > 0 {
			return endpoint.Endpoint{}, fault.Wrap(fault.Unavailable, fmt.Errorf("take down the endpoint it had before: %w", result.Errors[0]))
		}
	}
	return m.bringUp(ctx, spec, namespace)
}

// supersede takes down what an older container of the pod has in the place that spec is for. What cannot be taken down
// now stays.
func (m *Manager) supersede(ctx context.Context, spec endpoint.Spec) {
	for _, ep := range m.List() {
		if spec.Pod.UID == "" || ep.Spec.Pod.UID != spec.Pod.UID || ep.Spec.Attachment.IfName != spec.Attachment.IfName || ep.Spec.Attachment == spec.Attachment {
			continue
		}
		cfg := endpoint.DeleteConfig{Began: spec.Began}
		m.calls.recordDelete(ep.Spec.Attachment, cfg.Began)
		if result := m.remove(ctx, ep.Spec.Attachment, cfg); len(result.Errors) > 0 {
			m.listeners.deleted(ep, cfg)
		}
	}
}

func (m *Manager) renew(ctx context.Context, ep endpoint.Endpoint, spec endpoint.Spec) (endpoint.Endpoint, error) {
	before := ep
	ep, err := m.change(ctx, ep, spec.Metadata)
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	ep.Spec.Began, ep.Renewed = spec.Began, true
	for _, step := range m.steps {
		if r, ok := step.(endpoint.Renewer); ok {
			if err := r.Renew(ctx, ep); err != nil {
				return endpoint.Endpoint{}, fmt.Errorf("%s: %w", step.Name(), err)
			}
		}
	}
	m.endpoints.Put(ep)
	m.listeners.updated(before, ep)
	return ep, nil
}

// bringUp runs the steps. When one fails, it undoes all that ran.
func (m *Manager) bringUp(ctx context.Context, spec endpoint.Spec, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	ep := endpoint.Endpoint{
		ID: m.nextID(), Spec: spec, Metadata: spec.Metadata, State: endpoint.Regenerating, Created: time.Now().Round(0).UTC(),
	}
	ep.Spec.Metadata = ""
	m.endpoints.Put(ep)
	for i, step := range m.steps {
		added, err := step.Attach(ctx, ep, namespace)
		if err == nil {
			ep, err = added, checkAddresses(m.List(), added)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			m.finish(ep, endpoint.DeleteConfig{}, m.detach(ep, m.steps[:i+1], endpoint.DeleteConfig{}))
			return endpoint.Endpoint{}, fmt.Errorf("%s: %w", step.Name(), err)
		}
		m.endpoints.Put(ep)
	}
	ep.State = endpoint.Ready
	m.endpoints.Put(ep)
	m.listeners.created(ep)
	return ep, nil
}

// checkAddresses refuses an address that another endpoint has.
func checkAddresses(all []endpoint.Endpoint, ep endpoint.Endpoint) error {
	for _, addr := range ep.Addresses.List() {
		for _, other := range all {
			if other.ID != ep.ID && slices.Contains(other.Addresses.List(), addr) {
				return fmt.Errorf("address %s: %w", addr, endpointmanager.ErrInUse)
			}
		}
	}
	return nil
}

// Repair implements endpointmanager.Manager.
func (m *Manager) Repair(ctx context.Context, a endpoint.Attachment) error {
	leave, err := m.working.Acquire(ctx, a)
	if err != nil {
		return err
	}
	defer leave()
	ep, err := m.Get(endpoint.ByAttachment(a))
	if err == nil && ep.State != endpoint.Ready {
		err = endpointmanager.ErrNotReady
	}
	if err != nil {
		return fmt.Errorf("repair endpoint %s: %w", a, err)
	}
	for _, step := range m.steps {
		if _, err := step.Restore(ctx, ep); err != nil {
			return fmt.Errorf("repair endpoint %s: %s: %w", a, step.Name(), err)
		}
	}
	return nil
}

// Update implements endpointmanager.Manager.
func (m *Manager) Update(ctx context.Context, a endpoint.Attachment, change endpoint.Metadata) (endpoint.Endpoint, error) {
	leave, err := m.working.Acquire(ctx, a)
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	defer leave()
	ep, err := m.Get(endpoint.ByAttachment(a))
	if err == nil && ep.State != endpoint.Ready {
		err = endpointmanager.ErrNotReady
	}
	if err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("update endpoint %s: %w", a, err)
	}
	text, err := change.Encode()
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	spec := ep.Spec
	spec.Metadata = text
	if err := spec.ValidateMetadata(); err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("update endpoint %s: %w", a, err)
	}
	before := ep
	if ep, err = m.change(ctx, ep, text); err != nil {
		return endpoint.Endpoint{}, err
	}
	m.endpoints.Put(ep)
	m.listeners.updated(before, ep)
	return ep, nil
}

// change has the steps follow a change of the endpoint's metadata.
func (m *Manager) change(ctx context.Context, before endpoint.Endpoint, change string) (_ endpoint.Endpoint, err error) {
	ep := before
	if ep.Metadata, err = endpoint.ChangeMetadata(ep.Metadata, change); err != nil || ep == before {
		return ep, err
	}
	for _, step := range m.steps {
		if u, ok := step.(endpoint.Updater); ok && err == nil {
			err = u.Update(ctx, ep)
		}
	}
	if err != nil {
		for _, step := range m.steps {
			if u, ok := step.(endpoint.Updater); ok {
				_ = u.Update(ctx, before)
			}
		}
	}
	return ep, err
}

func (m *Manager) nextID() uint16 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		m.lastID++
		if _, err := m.endpoints.Get(endpoint.ByID(m.lastID)); m.lastID != 0 && err != nil {
			return m.lastID
		}
	}
}

// since is when a caller began: now when it does not say, and never in the future.
func since(began time.Duration) time.Duration {
	if now := boottime.Now(); began <= 0 || began > now {
		return now
	}
	return began
}
