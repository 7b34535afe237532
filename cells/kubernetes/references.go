package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/cells/policy/model"
)

// ReferenceSink has the objects that policies name, and takes what they select: see [policy.Policies].
type ReferenceSink interface {
	FollowReferences()
	References() (all []model.Reference, changed <-chan struct{})
	Resolve(ctx context.Context, reference model.Reference, to model.Resolution) error
	PruneReferences(ctx context.Context, followed []model.Reference) error
}

// cidrGroups are watched while their CRD is there.
var cidrGroups = policyKind{schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumcidrgroups"}, "CiliumCIDRGroup", true}

// referenceWatch follows the objects that policies name: each by a watch of its own, while a policy names it.
type referenceWatch struct {
	client   *Client
	sink     ReferenceSink
	policies *policyWatch
	log      *slog.Logger
	// servers are more addresses of the API server, of the flag.
	servers []netip.Prefix
	isHost  func(netip.Addr) bool

	mu    sync.Mutex // guards the field below
	loops map[model.Reference]*watch.Loop[selection]
}

func newReferenceWatch(cfg Config, client *Client, sink ReferenceSink, policies *policyWatch, log *slog.Logger) *referenceWatch {
	sink.FollowReferences()
	return &referenceWatch{
		client: client, sink: sink, policies: policies, log: log, servers: serverAddresses(cfg.Servers), isHost: isHost, loops: map[model.Reference]*watch.Loop[selection]{},
	}
}

// serverAddresses returns the addresses in URLs. Names are not looked up.
func serverAddresses(servers []string) (addresses []netip.Prefix) {
	for _, text := range servers {
		server, err := url.Parse(text)
		if err != nil {
			continue
		}
		if addr, err := netip.ParseAddr(server.Hostname()); err == nil && !addr.IsLoopback() {
			addresses = append(addresses, single(addr))
		}
	}
	return addresses
}

func single(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	return netip.PrefixFrom(addr, addr.BitLen())
}

// isHost reports whether this node has the address.
func isHost(addr netip.Addr) bool {
	all, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(all, func(own net.Addr) bool {
		prefix, err := netip.ParsePrefix(own.String())
		return err == nil && prefix.Addr().Unmap() == addr.Unmap()
	})
}

// maxFollowed limits the watches: one policy can name thousands of Services. The other objects count as not known.
const maxFollowed = 500

// run follows what policies name until ctx ends.
func (r *referenceWatch) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	following := map[model.Reference]context.CancelFunc{}
	for {
		wanted, changed := r.sink.References()
		for reference, cancel := range following {
			if !slices.Contains(wanted, reference) {
				cancel()
				delete(following, reference)
			}
		}
		for _, reference := range wanted {
			if following[reference] != nil {
				continue
			}
			if len(following) == maxFollowed {
				r.log.Warn("policies name more objects than the agent watches: the others count as not known", "named", len(wanted), "watched", maxFollowed)
				break
			}
			watching, cancel := context.WithCancel(ctx)
			following[reference] = cancel
			all.Go(func() {
				defer cancel()
				r.follow(watching, reference)
			})
		}
		if err := r.sink.PruneReferences(ctx, wanted); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow watches what one reference names.
func (r *referenceWatch) follow(ctx context.Context, reference model.Reference) {
	source, kind, err := r.source(reference)
	if err != nil {
		r.log.Error("what policies name is not watched", "reference", reference.String(), "error", err)
		return
	}
	handler := &referenceHandler{r, reference, ctx, map[watch.Key]selection{}}
	if reference.Kind != model.CIDRGroup {
		r.runLoop(ctx, reference, watch.New(kind, source, handler, r.log))
		return
	}
	r.policies.whilePresent(ctx, cidrGroups, func() { handler.Replace(nil) }, func(ctx context.Context) {
		r.runLoop(ctx, reference, watch.New(kind, source, handler, r.log))
	})
}

func (r *referenceWatch) runLoop(ctx context.Context, reference model.Reference, loop *watch.Loop[selection]) {
	r.mu.Lock()
	r.loops[reference] = loop
	r.mu.Unlock()
	_ = loop.Run(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loops[reference] == loop {
		delete(r.loops, reference)
	}
}

// source is one object by its name, or objects by labels: never a whole kind.
func (r *referenceWatch) source(reference model.Reference) (source watch.Raw[selection], kind string, err error) {
	source = watch.Raw[selection]{Namespace: reference.Namespace, Labels: reference.Labels}
	byName := func(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }
	if reference.Name != "" {
		source.Fields = byName(reference.Name)
	}
	var client rest.Interface
	switch reference.Kind {
	case model.KubeAPIServer:
		source.Namespace, source.Fields = metav1.NamespaceDefault, byName("kubernetes")
		source.Resource, source.Slim = "endpointslices", slimEndpointSlice
		client, err = r.client.Group(schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"})
	case model.Service:
		source.Resource, source.Slim = "services", slimService
		client, err = r.client.of(corev1.SchemeGroupVersion, "/api", asJSON)
	case model.CIDRGroup:
		source.Resource, source.Slim = cidrGroups.Resource, slimCIDRGroup
		client, err = r.client.Group(cidrGroups.GroupVersion())
	default:
		err = fmt.Errorf("a reference to an unknown kind %q", reference.Kind)
	}
	source.Client = client
	return source, source.Resource, err
}

// endPauses ends the pauses of all loops.
func (r *referenceWatch) endPauses() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, loop := range r.loops {
		loop.EndPause()
	}
}

// states has one state for all loops of a kind.
func (r *referenceWatch) states() (states []watch.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byKind := map[string]watch.State{}
	for _, loop := range r.loops {
		one := loop.State()
		all, again := byKind[one.Kind]
		if again {
			one.Objects += all.Objects
			one.Synced = one.Synced && all.Synced
			one.Err = errors.Join(all.Err, one.Err)
			if all.Since.Before(one.Since) {
				one.Since = all.Since
			}
			for reason, n := range all.Restarts {
				one.Restarts[reason] += n
			}
		}
		byKind[one.Kind] = one
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		states = append(states, byKind[kind])
	}
	return states
}

// selection is what one object selects.
type selection struct {
	pods     []model.Pods
	prefixes []netip.Prefix
	problem  string // syncError it is not known what it selects
}

func slimService(about metav1.ObjectMeta, object []byte) (s selection) {
	var service corev1.Service
	switch err := json.Unmarshal(object, &service); {
	case err != nil:
		s.problem = fmt.Sprintf("the Service cannot be read: %v", err)
	case service.Spec.Type == corev1.ServiceTypeExternalName || len(service.Spec.Selector) == 0:
		s.problem = fmt.Sprintf("the Service %s/%s has no selector: its endpoints are not known", about.Namespace, about.Name)
	default:
		pods := model.Pods{Namespace: about.Namespace}
		for _, key := range slices.Sorted(maps.Keys(service.Spec.Selector)) {
			pods.Labels = append(pods.Labels, model.Requirement{Key: key, Operator: model.In, Values: []string{service.Spec.Selector[key]}})
		}
		s.pods = []model.Pods{pods}
	}
	return s
}

func slimEndpointSlice(_ metav1.ObjectMeta, object []byte) (s selection) {
	var slice struct {
		Endpoints []struct {
			Addresses []string `json:"addresses"`
		} `json:"endpoints"`
	}
	if err := json.Unmarshal(object, &slice); err != nil {
		s.problem = fmt.Sprintf("the EndpointSlice cannot be read: %v", err)
	}
	for _, endpoint := range slice.Endpoints {
		for _, text := range endpoint.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				s.prefixes = append(s.prefixes, single(addr))
			}
		}
	}
	return s
}

func slimCIDRGroup(about metav1.ObjectMeta, object []byte) (s selection) {
	var group struct {
		Spec struct {
			ExternalCIDRs []string `json:"externalCIDRs"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(object, &group); err != nil {
		s.problem = fmt.Sprintf("the CiliumCIDRGroup cannot be read: %v", err)
	}
	for _, text := range group.Spec.ExternalCIDRs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Addr().Is4In6() {
			s.problem = fmt.Sprintf("the CiliumCIDRGroup %s has %q, which is no CIDR", about.Name, text)
			continue
		}
		s.prefixes = append(s.prefixes, prefix.Masked())
	}
	return s
}

// referenceHandler tells the sink what a reference selects.
type referenceHandler struct {
	*referenceWatch
	reference model.Reference
	ctx       context.Context
	objects   map[watch.Key]selection
}

var _ watch.Handler[selection] = (*referenceHandler)(nil)

// Replace implements [watch.Handler].
func (h *referenceHandler) Replace(objects map[watch.Key]watch.Object[selection]) {
	clear(h.objects)
	for key, object := range objects {
		h.objects[key] = object.Value
	}
	h.notify()
}

// Update implements [watch.Handler].
func (h *referenceHandler) Update(object watch.Object[selection]) {
	h.objects[object.Key] = object.Value
	h.notify()
}

// Delete implements [watch.Handler].
func (h *referenceHandler) Delete(object watch.Object[selection]) {
	delete(h.objects, object.Key)
	h.notify()
}

func (h *referenceHandler) notify() {
	if h.ctx.Err() != nil {
		return
	}
	err := h.sink.Resolve(h.ctx, h.reference, h.resolution())
	if err != nil && h.ctx.Err() == nil {
		h.log.Error("what policies name is not taken", "reference", h.reference.String(), "error", err)
	}
}

// resolution is equal for equal objects.
func (h *referenceHandler) resolution() (to model.Resolution) {
	if len(h.objects) == 0 {
		to.Problem = "the Kubernetes API has none"
	}
	for _, key := range slices.SortedFunc(maps.Keys(h.objects), func(a, b watch.Key) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	}) {
		s := h.objects[key]
		to.Pods, to.Prefixes = append(to.Pods, s.pods...), append(to.Prefixes, s.prefixes...)
		if s.problem != "" {
			to.Unknown, to.Problem = true, s.problem
		}
	}
	if h.reference.Kind == model.KubeAPIServer {
		to.Prefixes = append(to.Prefixes, h.servers...)
		to.Host = slices.ContainsFunc(to.Prefixes, func(p netip.Prefix) bool { return h.isHost(p.Addr()) })
	}
	slices.SortFunc(to.Prefixes, netip.Prefix.Compare)
	to.Prefixes = slices.Compact(to.Prefixes)
	return to
}
