package policy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// The faults that callers tell apart.
var (
	ErrNotFound = fault.New(fault.NotFound, "no such policy")
	errStarting = fault.New(fault.Unavailable, "the agent has not restored its endpoints yet")
)

// Outcome is what became of a policy that was put.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"
	Changed   Outcome = "changed"
	Unchanged Outcome = "unchanged"
)

// Policies keeps the policies that the API sets: on the disk, and in force. Its methods may be called concurrently.
type Policies struct {
	log   *slog.Logger
	queue *Queue
	view  *View
	store store         // used by who has the turn
	turn  chan struct{} // holds one token while a change is under way
	diff  chan struct{} // holds one token while a diff is computed, which takes an engine of its own

	mu  sync.RWMutex // guards the field below
	all map[model.PolicyID]manifest.Manifest
}

// New returns what has policies enforced by the queue. It is to be started before the queue opens.
func New(cfg Config, q *Queue, log *slog.Logger) *Policies {
	return &Policies{
		log: log, queue: q, view: q.View(), store: store{path: cfg.path()}, turn: make(chan struct{}, 1), diff: make(chan struct{}, 1),
		all: map[model.PolicyID]manifest.Manifest{},
	}
}

// Start reads what is on the disk.
func (p *Policies) Start() error {
	read, err := p.store.open()
	if err != nil {
		return err
	}
	p.queue.setLayer7Key(p.store.key)
	p.mu.Lock()
	defer p.mu.Unlock()
	var u update
	for _, m := range read {
		p.all[m.Policy.ID] = m
		u.policies.set(m.Policy.ID, &m.Policy)
	}
	p.queue.collect(u)
	return nil
}

// Stop closes the file.
func (p *Policies) Stop(ctx context.Context) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer p.end()
	return p.store.close()
}

func (p *Policies) begin(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another change of policies: %w", ctx.Err())
	}
}

func (p *Policies) end() { <-p.turn }

// Put sets the policies of all documents in data, or none, and returns what became of each. Others stay as they are. When it returns, they
// are in the datapath and on the disk. It waits for the proxy if they have layer 7 rules; others may change policies meanwhile.
func (p *Policies) Put(ctx context.Context, data []byte) ([]manifest.Manifest, []Outcome, error) {
	given, err := manifest.ReadAll(data)
	if err != nil {
		return nil, nil, fault.Wrap(fault.Invalid, err)
	}
	if len(given) == 0 {
		return nil, nil, fault.New(fault.Invalid, "no policy: want one document or more")
	}
	for _, m := range given {
		if err := p.supported(m.Policy); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.Policy.ID, err)
		}
	}
	var outcomes []Outcome
	err = p.queue.withProxy(ctx, func() error {
		outcomes, err = p.tryPut(ctx, given)
		return err
	})
	return given, outcomes, err
}

// supported returns why the proxy cannot apply the policy's layer 7 rules.
func (p *Policies) supported(policy model.Policy) error {
	for _, d := range []model.Direction{model.Egress, model.Ingress} {
		if policy.Part(d) == nil {
			continue
		}
		for i, r := range *policy.Part(d) {
			if r.Layer7 == nil {
				continue
			}
			if err := p.queue.layer7.proxy.Supports(*r.Layer7); err != nil {
				return fmt.Errorf("%s rule %d: %w", d, i, err)
			}
		}
	}
	return nil
}

// tryPut does not wait for the proxy.
func (p *Policies) tryPut(ctx context.Context, given []manifest.Manifest) ([]Outcome, error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	defer p.end()
	outcomes := make([]Outcome, len(given))
	var set []manifest.Manifest
	for i, m := range given {
		switch was, ok := p.Get(m.Policy.ID); {
		case ok && bytes.Equal(was.JSON, m.JSON):
			outcomes[i] = Unchanged
			continue
		case ok:
			outcomes[i] = Changed
		default:
			outcomes[i] = Created
		}
		set = append(set, m)
	}
	if err := p.change(ctx, set, nil); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// Delete ends a policy.
func (p *Policies) Delete(ctx context.Context, id model.PolicyID) error {
	return p.queue.withProxy(ctx, func() error { return p.tryDelete(ctx, id) })
}

// tryDelete does not wait for the proxy.
func (p *Policies) tryDelete(ctx context.Context, id model.PolicyID) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer p.end()
	if _, ok := p.Get(id); !ok {
		return fmt.Errorf("delete %s: %w", id, ErrNotFound)
	}
	return p.change(ctx, nil, []model.PolicyID{id})
}

// change has the datapath follow, then the disk. What fails is taken back. It expects the turn.
func (p *Policies) change(ctx context.Context, set []manifest.Manifest, remove []model.PolicyID) error {
	if len(set)+len(remove) == 0 {
		return nil
	}
	if !p.queue.isOpen() {
		return errStarting
	}
	var u, undo update
	for _, m := range set {
		u.policies.set(m.Policy.ID, &m.Policy)
		undo.policies.set(m.Policy.ID, p.before(m.Policy.ID))
	}
	for _, id := range remove {
		u.policies.set(id, nil)
		undo.policies.set(id, p.before(id))
	}
	// A caller who leaves must not leave the datapath with what is not on the disk.
	ctx = context.WithoutCancel(ctx)
	if err := p.queue.try(ctx, u, false); err != nil {
		return err
	}
	if err := p.store.change(set, remove); err != nil {
		if undoErr := p.queue.do(ctx, undo, true); undoErr != nil {
			p.log.Error("policies that are not on the disk are in force until the datapath can be written", "error", undoErr)
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range set {
		p.all[m.Policy.ID] = m
		p.log.Info("policy set", "policy", m.Policy.ID.String())
	}
	for _, id := range remove {
		delete(p.all, id)
		p.log.Info("policy deleted", "policy", id.String())
	}
	return nil
}

func (p *Policies) before(id model.PolicyID) *model.Policy {
	if was, ok := p.Get(id); ok {
		return &was.Policy
	}
	return nil
}

// Get returns a policy.
func (p *Policies) Get(id model.PolicyID) (manifest.Manifest, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	m, ok := p.all[id]
	return m, ok
}

// List returns all policies in the order of their evaluation, those of a tier without priorities by namespace and name.
func (p *Policies) List() []manifest.Manifest {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.SortedFunc(maps.Values(p.all), func(a, b manifest.Manifest) int {
		x, y := a.Policy, b.Policy
		return cmp.Or(cmp.Compare(x.Tier, y.Tier), cmp.Compare(x.Priority, y.Priority), cmp.Compare(x.ID.Kind, y.ID.Kind),
			cmp.Compare(x.ID.Namespace, y.ID.Namespace), cmp.Compare(x.ID.Name, y.ID.Name))
	})
}

// Reports returns what authors of policies should know, in the order of evaluation.
func (p *Policies) Reports() (reports []engine.Report) {
	p.view.read(func(e *engine.Engine) { reports = e.Reports() })
	return reports
}
