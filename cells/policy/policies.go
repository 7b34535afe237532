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

// Where a policy comes from.
const (
	SourceFile       = "file"       // porin policy apply
	SourceKubernetes = "kubernetes" // its API
)

// Policies keeps the policies of both sources: on the disk, and in force. Its methods may be called concurrently.
type Policies struct {
	log      *slog.Logger
	queue    *Queue
	view     *View
	store    store         // used by the holder of changing
	changing chan struct{} // the lock of a change: it holds one token then
	diff     chan struct{} // holds one token while a diff is computed, which uses an engine of its own
	// references has a lock of its own.
	references *References
	// collected is the weight of policies that the queue may not have compiled yet. The holder of changing uses it.
	collected int
	// unsaved are policies of the API whose last change is not on the disk. Only the holder of changing uses it.
	unsaved map[model.PolicyID]struct{}

	mu      sync.RWMutex // guards the fields below; their writer holds changing, too
	files   map[model.PolicyID]manifest.Manifest
	objects map[model.PolicyID]object // in force unless a file has the same ID
	parts   map[model.PolicyID]int    // how many specifications a policy in force has
}

// New returns Policies, which enforces policies by the queue. It is to be started before the queue opens.
func New(cfg Config, q *Queue, log *slog.Logger) *Policies {
	return &Policies{
		log: log, queue: q, view: q.View(), store: store{path: cfg.path()}, changing: make(chan struct{}, 1), diff: make(chan struct{}, 1),
		references: newReferences(), unsaved: map[model.PolicyID]struct{}{}, parts: map[model.PolicyID]int{},
		files: map[model.PolicyID]manifest.Manifest{}, objects: map[model.PolicyID]object{},
	}
}

// Start reads what is on the disk.
func (p *Policies) Start() error {
	files, objects, resolved, err := p.store.open()
	if err != nil {
		return err
	}
	p.references.mu.Lock()
	maps.Copy(p.references.resolved, resolved)
	p.references.mu.Unlock()
	p.view.mu.Lock()
	p.view.engine.SetLayer7Key(p.store.key)
	p.view.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	var u update
	for _, o := range objects {
		p.objects[o.Policy.ID] = o
	}
	for _, m := range files {
		p.files[m.Policy.ID] = m
		p.inForceLocked(&u, m.Policy.ID, &m.Policy)
	}
	for id, o := range p.objects {
		if _, byHand := p.files[id]; !byHand {
			p.inForceLocked(&u, id, &o.Policy)
		}
	}
	p.queue.collect(u)
	return nil
}

// Stop closes the file.
func (p *Policies) Stop(ctx context.Context) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	return p.store.close()
}

func (p *Policies) lock(ctx context.Context) error {
	select {
	case p.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another change of policies: %w", ctx.Err())
	}
}

func (p *Policies) unlock() { <-p.changing }

// Put sets the policies of all documents in data, or none, and returns what became of each. Others stay as they are.
// When it returns, they are on the disk and in the datapath, and the proxy has their layer 7 rules. An error of kind
// [fault.Unavailable] may say that they are on the disk alone: they are written as soon as the datapath and the proxy
// take them.
func (p *Policies) Put(ctx context.Context, data []byte) ([]manifest.Manifest, []Outcome, error) {
	given, asksProxy, err := p.read(data)
	if err != nil {
		return nil, nil, err
	}
	if err := p.lock(ctx); err != nil {
		return nil, nil, err
	}
	set, outcomes := p.changed(given)
	err = p.changeLocked(ctx, set, nil)
	p.unlock()
	if err == nil && asksProxy {
		if err = p.queue.awaitProxy(ctx); err != nil {
			err = fault.Wrap(kindOf(err), fmt.Errorf("the policies are set, and what needs their layer 7 rules is denied until the proxy has them: %w", err))
		}
	}
	return given, outcomes, err
}

// Check returns the outcomes that [Policies.Put] would have, or why it would refuse the policies. It changes nothing.
func (p *Policies) Check(ctx context.Context, data []byte) ([]manifest.Manifest, []Outcome, error) {
	given, _, err := p.read(data)
	if err != nil {
		return nil, nil, err
	}
	if err := p.lock(ctx); err != nil {
		return nil, nil, err
	}
	defer p.unlock()
	set, outcomes := p.changed(given)
	return given, outcomes, p.check(set)
}

// read returns the policies of the documents, and whether one of them has layer 7 rules.
func (p *Policies) read(data []byte) (given []manifest.Manifest, asksProxy bool, err error) {
	given, err = manifest.ReadAll(data)
	if err != nil {
		return nil, false, fault.Wrap(fault.Invalid, err)
	}
	if len(given) == 0 {
		return nil, false, fault.New(fault.Invalid, "no policy: want one document or more")
	}
	for _, m := range given {
		if _, ok := p.object(m.Policy.ID); ok {
			return nil, false, fault.New(fault.Conflict, fmt.Sprintf("%s: the policy is one of the Kubernetes API: change it there, with kubectl", m.Policy.ID))
		}
		asks, err := p.supported(m.Policy)
		if err == nil {
			err = p.references.supports(m.Policy)
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", m.Policy.ID, err)
		}
		asksProxy = asksProxy || asks
	}
	return given, asksProxy, nil
}

// supported reports whether the policy has layer 7 rules, and why the proxy cannot apply them.
func (p *Policies) supported(policy model.Policy) (some bool, err error) {
	for _, part := range policy.Parts() {
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if part.Part(d) == nil {
				continue
			}
			for i, r := range *part.Part(d) {
				if r.Layer7 == nil {
					continue
				}
				some = true
				if err := p.queue.layer7.proxy.Supports(*r.Layer7); err != nil {
					return true, fmt.Errorf("%s rule %d: %w", d, i, err)
				}
			}
		}
	}
	return some, nil
}

// changed returns the policies that are new or other than before, and the outcomes of all.
func (p *Policies) changed(given []manifest.Manifest) (set []manifest.Manifest, outcomes []Outcome) {
	outcomes = make([]Outcome, len(given))
	for i, m := range given {
		switch was, ok := p.file(m.Policy.ID); {
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
	return set, outcomes
}

// Delete ends a policy.
func (p *Policies) Delete(ctx context.Context, id model.PolicyID) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if _, ok := p.file(id); !ok {
		if _, ok := p.object(id); ok {
			return fault.New(fault.Conflict, fmt.Sprintf("delete %s: the policy is one of the Kubernetes API: delete it there, with kubectl", id))
		}
		return fmt.Errorf("delete %s: %w", id, ErrNotFound)
	}
	return p.changeLocked(ctx, nil, []model.PolicyID{id})
}

// changeLocked writes the disk, and has the datapath follow.
func (p *Policies) changeLocked(ctx context.Context, set []manifest.Manifest, remove []model.PolicyID) error {
	if len(set)+len(remove) == 0 {
		return nil
	}
	if !p.queue.isOpen() {
		return errStarting
	}
	if err := p.check(set); err != nil {
		return err
	}
	if err := p.store.change(policiesBucket, set, remove); err != nil {
		return err
	}
	var u update
	p.mu.Lock()
	for _, m := range set {
		p.files[m.Policy.ID] = m
		p.inForceLocked(&u, m.Policy.ID, &m.Policy)
		p.log.Info("policy set", "policy", m.Policy.ID.String())
	}
	for _, id := range remove {
		delete(p.files, id)
		if o, ok := p.objects[id]; ok {
			p.inForceLocked(&u, id, &o.Policy)
		} else {
			p.inForceLocked(&u, id, nil)
		}
		p.log.Info("policy deleted", "policy", id.String())
	}
	p.mu.Unlock()
	if err := p.queue.set(ctx, u); err != nil {
		return fmt.Errorf("the policies are on the disk, and in force when they can be written: %w", err)
	}
	for _, m := range set {
		if err := p.gaveUp(m.Policy); err != nil {
			return fmt.Errorf("%s is on the disk, and not in force: %w", m.Policy.ID, err)
		}
	}
	if len(remove) > 0 {
		p.retryGivenUpLocked(ctx)
	}
	return nil
}

// retryGivenUpLocked has policies that were given up in force, if they fit by now.
func (p *Policies) retryGivenUpLocked(ctx context.Context) {
	ids := p.view.notInForce()
	if len(ids) == 0 || p.queue.set(ctx, update{}) != nil { // removed policies are counted until now
		return
	}
	for _, id := range ids {
		id.Part = 0
		m, ok := p.Get(id)
		if !ok || p.check([]manifest.Manifest{m}) != nil {
			continue
		}
		var u update
		for _, part := range p.references.resolve(m.Policy) {
			u.policies.set(part.ID, &part)
		}
		if err := p.queue.set(ctx, u); err != nil {
			return // it is tried again
		}
		p.log.Info("policy fits again", "policy", id.String())
	}
}

// check returns why the policies would not fit beside the present ones.
func (p *Policies) check(set []manifest.Manifest) error {
	if len(set) == 0 {
		return nil
	}
	var u engine.Update
	for _, m := range set {
		u.SetPolicies = append(u.SetPolicies, p.references.resolve(m.Policy)...)
	}
	e := p.view.copyEngine(true)
	if e.Apply(u); e.Exceeded() {
		return errTooLarge
	}
	p.view.mu.RLock()
	locals := maps.Clone(p.view.locals)
	p.view.mu.RUnlock()
	return p.queue.enforcer.Fits(e, locals) // which skips an endpoint that has come since
}

func (p *Policies) file(id model.PolicyID) (manifest.Manifest, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	m, ok := p.files[id]
	return m, ok
}

func (p *Policies) object(id model.PolicyID) (object, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	o, ok := p.objects[id]
	return o, ok
}

// Get returns the policy of an ID that is in force.
func (p *Policies) Get(id model.PolicyID) (manifest.Manifest, bool) {
	if m, ok := p.file(id); ok {
		return m, true
	}
	o, ok := p.object(id)
	return o.Manifest, ok
}

// List returns all policies that are in force, in the order of their evaluation; in a tier without priorities, by
// namespace and name.
func (p *Policies) List() []manifest.Manifest {
	p.mu.RLock()
	all := maps.Clone(p.files)
	for id, o := range p.objects {
		if _, ok := all[id]; !ok {
			all[id] = o.Manifest
		}
	}
	p.mu.RUnlock()
	return slices.SortedFunc(maps.Values(all), func(a, b manifest.Manifest) int {
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
