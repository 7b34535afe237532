package policy

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// References are the objects of the Kubernetes API that policies in force name, and what they select.
type References struct {
	mu       sync.Mutex // guards the fields below
	followed bool       // another cell resolves them
	users    map[model.Reference]map[model.PolicyID]struct{}
	resolved map[model.Reference]model.Resolution
	changed  chan struct{} // closed when users has other keys
}

func newReferences() *References {
	return &References{users: map[model.Reference]map[model.PolicyID]struct{}{}, resolved: map[model.Reference]model.Resolution{}, changed: make(chan struct{})}
}

// FollowReferences says that the caller is going to resolve references, with [Policies.Resolve]. Policies of files may
// have some from then on.
func (p *Policies) FollowReferences() {
	p.references.mu.Lock()
	defer p.references.mu.Unlock()
	p.references.followed = true
}

// References returns the references of policies in force. changed is closed when they change.
func (p *Policies) References() (all []model.Reference, changed <-chan struct{}) {
	p.references.mu.Lock()
	defer p.references.mu.Unlock()
	return slices.Collect(maps.Keys(p.references.users)), p.references.changed
}

// Resolve tells what a reference selects. Policies that have it follow soon.
func (p *Policies) Resolve(ctx context.Context, reference model.Reference, to model.Resolution) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	r := p.references
	r.mu.Lock()
	was, known := r.resolved[reference]
	users := slices.Collect(maps.Keys(r.users[reference]))
	// A known one changes also while no policy has the reference: the next one may take it over.
	changed := known && !reflect.DeepEqual(was, to) || !known && users != nil
	if changed {
		r.resolved[reference] = to
	}
	r.mu.Unlock()
	if !changed {
		return nil
	}
	if err := p.store.resolve(reference, &to); err != nil {
		p.log.Error("what policies name is not on the disk: an agent that starts without the API server does not have it", "reference", reference.String(), "error", err)
	}
	p.log.Info("reference of policies resolved", "reference", reference.String(), "pods", len(to.Pods), "prefixes", len(to.Prefixes), "problem", to.Problem)
	var u update
	var set []manifest.Manifest
	for _, id := range users {
		if m, ok := p.Get(id); ok {
			for _, part := range p.references.resolve(m.Policy) {
				u.policies.set(part.ID, &part)
			}
			set = append(set, m)
		}
	}
	p.checkLargeLocked(&u, set)
	p.collectLocked(ctx, u)
	return nil
}

// PruneReferences deletes the resolutions that no policy uses, unless the caller follows their references: it would not
// resolve them again for a policy that takes over a reference.
func (p *Policies) PruneReferences(ctx context.Context, followed []model.Reference) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	r := p.references
	r.mu.Lock()
	var unused []model.Reference
	for reference := range r.resolved {
		if r.users[reference] == nil && !slices.Contains(followed, reference) {
			delete(r.resolved, reference)
			unused = append(unused, reference)
		}
	}
	r.mu.Unlock()
	for _, reference := range unused {
		if err := p.store.resolve(reference, nil); err != nil {
			p.log.Warn("what a policy has named stays on the disk", "reference", reference.String(), "error", err)
		}
	}
	return nil
}

// use records the references of a policy in force, or with nil that it is not any more.
func (r *References) use(id model.PolicyID, policy *model.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	present := map[model.Reference]bool{}
	if policy != nil {
		for named := range namedIn(*policy) {
			present[named.Reference] = true
		}
	}
	before := len(r.users)
	added := false
	for reference := range present {
		if r.users[reference] == nil {
			r.users[reference] = map[model.PolicyID]struct{}{}
			added = true
		}
		r.users[reference][id] = struct{}{}
	}
	for reference, users := range r.users {
		if !present[reference] {
			delete(users, id)
		}
		if len(users) == 0 {
			delete(r.users, reference)
		}
	}
	if added || len(r.users) != before {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// resolve returns the policies of an object's specifications, with what their references select in their place.
func (r *References) resolve(policy model.Policy) []model.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := policy.Parts()
	for i := range parts {
		for _, part := range []**model.Rules{&parts[i].Egress, &parts[i].Ingress} {
			if *part == nil || !slices.ContainsFunc(**part, hasNamed) {
				continue
			}
			rules := slices.Clone(**part)
			for j, rule := range rules {
				if !hasNamed(rule) {
					continue
				}
				rules[j].Peers = nil
				for _, peer := range rule.Peers {
					if peer.Named == nil {
						rules[j].Peers = append(rules[j].Peers, peer)
						continue
					}
					to, known := r.resolved[peer.Named.Reference]
					to.Unknown = to.Unknown || !known
					rules[j].Peers = append(rules[j].Peers, peer.Named.Peers(to, rule.Action)...)
				}
			}
			*part = &rules
		}
	}
	return parts
}

// problems says which references of a policy select less than their authors may expect.
func (r *References) problems(policy model.Policy) (texts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for named := range namedIn(policy) {
		to, known := r.resolved[named.Reference]
		if !known {
			to = model.Resolution{Unknown: true, Problem: "not known from the Kubernetes API yet"}
		}
		if to.Problem == "" {
			continue
		}
		text := fmt.Sprintf("%s: %s", named.Reference, to.Problem)
		if to.Unknown {
			text += "; rules that accept do not select it, and rules that deny deny everything on their ports"
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// supports returns why a policy of a file cannot be followed.
func (r *References) supports(policy model.Policy) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for named := range namedIn(policy) {
		if !r.followed {
			return fault.New(fault.Invalid, fmt.Sprintf("%s: this agent does not read the Kubernetes API (--kubernetes, --kubeconfig), which says what it is", named.Reference))
		}
	}
	return nil
}

func hasNamed(rule model.Rule) bool {
	return slices.ContainsFunc(rule.Peers, func(p model.Peer) bool { return p.Named != nil })
}

// namedIn are the references of a policy.
func namedIn(policy model.Policy) func(yield func(model.Named) bool) {
	return func(yield func(model.Named) bool) {
		for _, part := range policy.Parts() {
			for _, rules := range []*model.Rules{part.Egress, part.Ingress} {
				if rules == nil {
					continue
				}
				for _, rule := range *rules {
					for _, peer := range rule.Peers {
						if peer.Named != nil && !yield(*peer.Named) {
							return
						}
					}
				}
			}
		}
	}
}

// inForceLocked makes the update set a policy, or with nil remove it. The caller holds p.mu, too.
func (p *Policies) inForceLocked(u *update, id model.PolicyID, policy *model.Policy) {
	p.references.use(id, policy)
	before, now := p.parts[id], 0
	if policy != nil {
		for _, part := range p.references.resolve(*policy) {
			u.policies.set(part.ID, &part)
			now++
		}
	}
	for removed := now; removed < max(before, 1); removed++ {
		gone := id
		gone.Part = removed
		u.policies.set(gone, nil)
	}
	if p.parts[id] = now; now == 0 {
		delete(p.parts, id)
	}
}

// partsFrom returns the parts of a policy in force from a number on.
func (p *Policies) partsFrom(id model.PolicyID, first int) (parts []model.PolicyID) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for id.Part = first; id.Part < p.parts[model.PolicyID{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}]; id.Part++ {
		parts = append(parts, id)
	}
	return parts
}

// gaveUp returns why a part of a policy is not in force as it is, or nil.
func (p *Policies) gaveUp(policy model.Policy) error {
	for _, part := range policy.Parts() {
		if err := p.view.gaveUp(part.ID); err != nil {
			return err
		}
	}
	return nil
}

// gaveUpTexts says to authors of the policy what gaveUp says.
func (p *Policies) gaveUpTexts(policy model.Policy) []string {
	if err := p.gaveUp(policy); err != nil {
		return []string{"not in force as it is: " + err.Error()}
	}
	return nil
}

// checkLargeLocked has the update leave out large policies that do not fit: in the queue they would keep all changes
// waiting.
func (p *Policies) checkLargeLocked(u *update, set []manifest.Manifest) {
	large := slices.DeleteFunc(slices.Clone(set), func(m manifest.Manifest) bool {
		all := 0
		for _, part := range p.references.resolve(m.Policy) {
			all += weight(part)
		}
		return all <= largeWeight
	})
	if len(large) > 1 && p.check(large) == nil {
		return
	}
	for _, m := range large {
		if err := p.check([]manifest.Manifest{m}); err != nil {
			for _, part := range p.references.resolve(m.Policy) {
				u.setUnfit(part.ID, err)
			}
		}
	}
}
