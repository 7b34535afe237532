package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

// object is a policy of the Kubernetes API. A node cannot refuse it: it is as far in force as it is known here.
type object struct {
	manifest.Manifest
	faults []error // parts that are not known here: the policy denies what they may deny
}

// largeWeight is the weight above which a policy is test-compiled outside the queue. In the queue it would delay all
// other changes.
const largeWeight = 1000

// batchWeight is how much the queue compiles at once of policies of the API: that takes about 50 ms.
const batchWeight = 250

func readObject(data []byte) object {
	m, faults := manifest.ReadObject(data)
	return object{m, faults}
}

// ReplaceObjects tells of all policies of a kind that the Kubernetes API has, as JSON: others of the kind end. It
// returns when they are on the disk and, once everything is restored, in force: a pod that is attached afterwards finds
// them. Policies that cannot be written to the disk are in force, too.
func (p *Policies) ReplaceObjects(ctx context.Context, kind string, objects [][]byte) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	var all []object
	present := map[model.PolicyID]bool{}
	for _, data := range objects {
		o := readObject(data)
		all = append(all, o)
		present[o.Policy.ID] = true
	}
	var gone []model.PolicyID
	for id := range p.objects {
		if id.Kind == kind && !present[id] {
			gone = append(gone, id)
		}
	}
	if last := p.changeObjectsLocked(ctx, all, gone); last != nil && p.queue.isOpen() {
		_ = p.queue.wait(ctx, last) // the queue repeats and reports a write that fails
	}
	return nil
}

// SetObject tells of a policy of the Kubernetes API that is new or has changed: see [Policies.ReplaceObjects]. It is in
// force soon.
func (p *Policies) SetObject(ctx context.Context, data []byte) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	p.changeObjectsLocked(ctx, []object{readObject(data)}, nil)
	return nil
}

// RemoveObject tells that the Kubernetes API has a policy no more.
func (p *Policies) RemoveObject(ctx context.Context, id model.PolicyID) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if id.Namespace == "" && model.Namespaced(id.Kind) { // as manifests are read
		id.Namespace = metav1.NamespaceDefault
	}
	p.changeObjectsLocked(ctx, nil, []model.PolicyID{id})
	return nil
}

// changeObjectsLocked writes the disk, and has the datapath follow. It returns the last request to the queue, or nil.
func (p *Policies) changeObjectsLocked(ctx context.Context, set []object, remove []model.PolicyID) (last *request) {
	set = slices.DeleteFunc(set, func(o object) bool {
		was, ok := p.objects[o.Policy.ID]
		return ok && bytes.Equal(was.JSON, o.JSON)
	})
	remove = slices.DeleteFunc(remove, func(id model.PolicyID) bool { _, ok := p.objects[id]; return !ok })
	if len(set)+len(remove)+len(p.unsaved) == 0 {
		return nil
	}
	var manifests []manifest.Manifest
	for _, o := range set {
		manifests = append(manifests, o.Manifest)
	}
	p.saveObjectsLocked(manifests, remove)
	var u update
	p.checkLargeLocked(&u, manifests)
	p.mu.Lock()
	for _, o := range set {
		id := o.Policy.ID
		p.objects[id] = o
		if _, byHand := p.files[id]; byHand {
			continue
		}
		p.inForceLocked(&u, id, &o.Policy)
		p.log.Info("policy set", "policy", id.String(), "source", SourceKubernetes)
		for _, err := range o.faults {
			p.log.Warn("policy has a part that is not known here, and denies what the part may deny", "policy", id.String(), "error", err)
		}
	}
	for _, id := range remove {
		delete(p.objects, id)
		if _, byHand := p.files[id]; byHand {
			continue
		}
		p.inForceLocked(&u, id, nil)
		p.log.Info("policy deleted", "policy", id.String(), "source", SourceKubernetes)
	}
	p.mu.Unlock()
	last = p.collectLocked(ctx, u)
	if len(remove) > 0 && p.queue.isOpen() {
		p.retryGivenUpLocked(ctx)
	}
	return last
}

// saveObjectsLocked writes changes to the disk, with earlier changes that failed. p.objects must be as before the
// changes.
func (p *Policies) saveObjectsLocked(set []manifest.Manifest, remove []model.PolicyID) {
	changed := map[model.PolicyID]struct{}{}
	for _, m := range set {
		changed[m.Policy.ID] = struct{}{}
	}
	for _, id := range remove {
		changed[id] = struct{}{}
	}
	var again []manifest.Manifest
	for id := range p.unsaved {
		if _, ok := changed[id]; ok {
			continue
		}
		changed[id] = struct{}{}
		if o, ok := p.objects[id]; ok {
			again = append(again, o.Manifest)
		} else {
			remove = append(remove, id)
		}
	}
	if err := p.store.change(objectsBucket, append(again, set...), remove); err != nil {
		p.unsaved = changed
		p.log.Error("policies of the Kubernetes API are not on the disk: an agent that starts without the API server does not have them", "error", err)
		return
	}
	clear(p.unsaved)
}

// collectLocked has the queue take the policies in batches, in their order: an ADD waits for one batch at the most, as
// the next one lets it go first. It returns the last batch.
func (p *Policies) collectLocked(ctx context.Context, all update) *request {
	var batch update
	for _, id := range all.policies.keys {
		policy := all.policies.values[id]
		batch.policies.set(id, policy)
		if why := all.unfit[id]; why != nil {
			batch.setUnfit(id, why)
		}
		p.collected++
		if policy != nil {
			p.collected += weight(*policy)
		}
		if p.collected >= batchWeight && p.queue.isOpen() {
			_ = p.queue.wait(ctx, p.queue.collect(batch)) // the queue repeats and reports a write that fails
			batch, p.collected = update{}, 0
		}
	}
	return p.queue.collect(batch)
}

// Fault is a policy of the Kubernetes API that is not in force as it is written.
type Fault struct {
	Policy model.PolicyID
	UID    string // of the object; "" if an earlier version of the agent has kept it
	Texts  []string
}

// Faults returns the faults of all policies of the Kubernetes API.
func (p *Policies) Faults() (all []Fault) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for id, o := range p.objects {
		if _, byHand := p.files[id]; byHand {
			continue
		}
		f := Fault{Policy: id, Texts: append(o.texts(false), p.gaveUpTexts(o.Policy)...)}
		if len(f.Texts) == 0 {
			continue
		}
		var object struct{ Metadata struct{ UID string } }
		_ = json.Unmarshal(o.JSON, &object) // it has been read before
		f.UID = object.Metadata.UID
		all = append(all, f)
	}
	return all
}

// texts says what authors of the policy should know.
func (o object) texts(byHand bool) (texts []string) {
	if byHand {
		texts = append(texts, "the Kubernetes API has the policy, too: that one is in force when this one is deleted")
	}
	for _, err := range o.faults {
		texts = append(texts, fmt.Sprintf("a part is not known here, and the policy denies what it may deny: %v", err))
	}
	return texts
}
