package kubernetes

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/cells/policy/model"
)

// PolicySink takes the policies of the API: see [policy.Policies].
type PolicySink interface {
	ReplaceObjects(ctx context.Context, kind string, objects [][]byte) error
	SetObject(ctx context.Context, object []byte) error
	RemoveObject(ctx context.Context, id model.PolicyID) error
}

// policyKind is a kind of policies that is watched.
type policyKind struct {
	schema.GroupVersionResource
	kind string
	crd  bool // the API server has it only with a CRD
}

func policyKinds() []policyKind {
	of := func(group, version, resource, kind string) policyKind {
		return policyKind{schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, kind, group != "networking.k8s.io"}
	}
	return []policyKind{
		of("networking.k8s.io", "v1", "networkpolicies", model.KindNetworkPolicy),
		of("policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies", model.KindClusterNetworkPolicy),
		of("policy.networking.k8s.io", "v1alpha1", "adminnetworkpolicies", model.KindAdminNetworkPolicy),
		of("policy.networking.k8s.io", "v1alpha1", "baselineadminnetworkpolicies", model.KindBaselineAdminNetworkPolicy),
		of("cilium.io", "v2", "ciliumnetworkpolicies", model.KindCiliumNetworkPolicy),
		of("cilium.io", "v2", "ciliumclusterwidenetworkpolicies", model.KindCiliumClusterwideNetworkPolicy),
	}
}

// policyWatch follows the policies of all kinds. Those of a CRD are watched while the CRD is there.
type policyWatch struct {
	client *Client
	sink   PolicySink
	log    *slog.Logger
	crds   *watch.Loop[struct{}]

	mu      sync.Mutex // guards the fields below
	present map[string]bool
	changed chan struct{}                  // closed when present changes
	loops   map[string]*watch.Loop[[]byte] // of the kinds that are watched, by resource
	ready   chan struct{}                  // closed when every kind was listed once
}

func newPolicyWatch(client *Client, sink PolicySink, log *slog.Logger) (*policyWatch, error) {
	extensions, err := client.Metadata(schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"})
	if err != nil {
		return nil, err
	}
	p := &policyWatch{
		client: client, sink: sink, log: log, present: map[string]bool{}, changed: make(chan struct{}), loops: map[string]*watch.Loop[[]byte]{}, ready: make(chan struct{}),
	}
	source := watch.Metadata(extensions, "customresourcedefinitions", "", func(*metav1.PartialObjectMetadata) (none struct{}) { return none })
	p.crds = watch.New("customresourcedefinitions", source, crdHandler{p}, log)
	return p, nil
}

// run follows all kinds until ctx ends.
func (p *policyWatch) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { _ = p.crds.Run(ctx) })
	for _, k := range policyKinds() {
		all.Go(func() { p.follow(ctx, k) })
	}
	all.Go(func() { p.awaitReady(ctx) })
	<-ctx.Done()
	return nil
}

// follow watches a kind, one with a CRD while that is there.
func (p *policyWatch) follow(ctx context.Context, k policyKind) {
	client, err := p.client.Group(k.GroupVersion())
	if err != nil {
		p.log.Error("policies are not watched", "kind", k.kind, "error", err)
		return
	}
	source := watch.Raw[[]byte]{Client: client, Resource: k.Resource, Slim: func(_ metav1.ObjectMeta, object []byte) []byte { return slimPolicy(k, object) }}
	handler := policyHandler{p, k, ctx}
	absent := func() { handler.Replace(nil) } // an earlier agent may have kept some
	p.whilePresent(ctx, k, absent, func(ctx context.Context) {
		loop := watch.New(k.Resource, source, handler, p.log)
		p.setLoop(k, loop)
		_ = loop.Run(ctx)
		p.setLoop(k, nil)
	})
}

// whilePresent calls present whenever the API server has the kind, and absent whenever it does not, until ctx ends. The
// context of present ends with the kind.
func (p *policyWatch) whilePresent(ctx context.Context, k policyKind, absent func(), present func(context.Context)) {
	if k.crd {
		select {
		case <-p.crds.Synced():
		case <-ctx.Done():
			return
		}
	}
	for {
		if there, _, _ := p.lookup(k); !there {
			absent()
		}
		if !p.await(ctx, k, true) {
			return
		}
		watching, cancel := context.WithCancel(ctx)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			p.await(watching, k, false)
			cancel()
		})
		present(watching)
		cancel()
		waiting.Wait()
	}
}

// lookup reports whether the API server has the kind, and its loop, if there is one. changed is closed when either
// changes.
func (p *policyWatch) lookup(k policyKind) (there bool, loop *watch.Loop[[]byte], changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !k.crd || p.present[k.Resource+"."+k.Group], p.loops[k.Resource], p.changed
}

// await returns when the kind is there, or is not; it reports false when ctx has ended.
func (p *policyWatch) await(ctx context.Context, k policyKind, there bool) bool {
	for {
		is, _, changed := p.lookup(k)
		if is == there {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *policyWatch) setLoop(k policyKind, loop *watch.Loop[[]byte]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if loop == nil {
		delete(p.loops, k.Resource)
	} else {
		p.loops[k.Resource] = loop
	}
	p.notifyLocked()
}

// notifyLocked wakes who waits for a change.
func (p *policyWatch) notifyLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// awaitReady closes ready when the policies of every kind that the API server has were told to the sink.
func (p *policyWatch) awaitReady(ctx context.Context) {
	select {
	case <-p.crds.Synced():
	case <-ctx.Done():
		return
	}
	for _, k := range policyKinds() {
		if !p.awaitKind(ctx, k) {
			return
		}
	}
	close(p.ready)
}

// awaitKind returns when the policies of a kind were told, or there are none; it reports false when ctx has ended.
func (p *policyWatch) awaitKind(ctx context.Context, k policyKind) bool {
	for {
		there, loop, changed := p.lookup(k)
		var synced, absent <-chan struct{}
		switch {
		case !there && loop == nil:
			return true
		case loop != nil:
			synced, absent = loop.Synced(), loop.Absent()
		}
		select {
		case <-synced:
			return true
		case <-absent:
			return true
		case <-changed: // the kind may have come or gone
		case <-ctx.Done():
			return false
		}
	}
}

// syncError is an error of a kind that is not known, or nil.
func (p *policyWatch) syncError() error {
	for _, s := range p.states() {
		if !s.Synced && s.Err != nil {
			return s.Err
		}
	}
	return nil
}

// missing returns which of the resources have no CRD. Before the CRDs were read there are none.
func (p *policyWatch) missing(resources []string) (missing []string) {
	if !p.crds.State().Synced {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, resource := range resources {
		if !p.present[resource] {
			missing = append(missing, resource)
		}
	}
	return missing
}

// endPauses ends the pauses of all loops.
func (p *policyWatch) endPauses() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crds.EndPause()
	for _, loop := range p.loops {
		loop.EndPause()
	}
}

func (p *policyWatch) states() []watch.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := []watch.State{p.crds.State()}
	for _, k := range policyKinds() {
		if loop := p.loops[k.Resource]; loop != nil {
			states = append(states, loop.State())
		}
	}
	return states
}

// crdHandler is told of the CRDs that there are.
type crdHandler struct{ *policyWatch }

// Replace implements [watch.Handler].
func (h crdHandler) Replace(objects map[watch.Key]watch.Object[struct{}]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.present)
	for key := range objects {
		h.present[key.Name] = true
	}
	h.notifyLocked()
}

// Update implements [watch.Handler].
func (h crdHandler) Update(object watch.Object[struct{}]) { h.set(object.Key.Name, true) }

// Delete implements [watch.Handler].
func (h crdHandler) Delete(object watch.Object[struct{}]) { h.set(object.Key.Name, false) }

func (h crdHandler) set(name string, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.present[name] != there {
		h.present[name] = there
		h.notifyLocked()
	}
}

// policyHandler gives the sink the policies of a kind.
type policyHandler struct {
	*policyWatch
	kind policyKind
	ctx  context.Context // of the loop, which ends in the middle of a call
}

// Replace implements [watch.Handler].
func (h policyHandler) Replace(objects map[watch.Key]watch.Object[[]byte]) {
	all := make([][]byte, 0, len(objects))
	for _, o := range objects {
		all = append(all, o.Value)
	}
	h.check(h.sink.ReplaceObjects(h.ctx, h.kind.kind, all))
}

// Update implements [watch.Handler].
func (h policyHandler) Update(object watch.Object[[]byte]) {
	h.check(h.sink.SetObject(h.ctx, object.Value))
}

// Delete implements [watch.Handler].
func (h policyHandler) Delete(object watch.Object[[]byte]) {
	h.check(h.sink.RemoveObject(h.ctx, model.PolicyID{Kind: h.kind.kind, Namespace: object.Key.Namespace, Name: object.Key.Name}))
}

func (h policyHandler) check(err error) {
	if err != nil && h.ctx.Err() == nil {
		h.log.Error("policy of the API is not taken", "kind", h.kind.kind, "error", err)
	}
}

// slimPolicy is the document of a policy as a manifest has it: without status, and with Porin's annotations alone.
// Items of a list have no kind.
func slimPolicy(k policyKind, object []byte) []byte {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return object // the sink reports it
	}
	var meta metav1.ObjectMeta
	_ = json.Unmarshal(fields["metadata"], &meta)
	kept := map[string]any{
		"apiVersion": k.GroupVersion().String(), "kind": k.kind,
		"metadata": map[string]any{"name": meta.Name, "namespace": meta.Namespace, "uid": meta.UID, "annotations": ownAnnotations(meta.Annotations)},
	}
	for name, value := range fields {
		switch strings.ToLower(name) {
		case "apiversion", "kind", "metadata", "status":
		default:
			kept[name] = value
		}
	}
	document, err := json.Marshal(kept)
	if err != nil {
		return object
	}
	return document
}
