package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// naming is a policy for pods of the app client whose rules have peers that name objects.
func naming(rules string) []byte {
	return []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"n","namespace":"default"},"spec":{"endpointSelector":{"matchLabels":{"app":"client"}},` + rules + `}}`)
}

const (
	toService  = `"egress":[{"toServices":[{"k8sService":{"serviceName":"web"}}]}]`
	notService = `"egressDeny":[{"toServices":[{"k8sService":{"serviceName":"web"}}]}],"egress":[{"toEntities":["all"]}]`
)

// TestReferences has policies follow what their references select: an accepting rule selects nothing unknown, and a
// denying rule denies everything.
func TestReferences(t *testing.T) {
	dir := t.TempDir()
	n := servingNode(t, dir)
	client, web, other := pod(1, "client"), pod(2, "web"), pod(3, "other")
	for _, ep := range []endpoint.Endpoint{client, web, other} {
		n.attach(t, ep)
	}
	service := model.Reference{Kind: model.Service, Namespace: "default", Name: "web"}
	set := func(rules string) {
		t.Helper()
		if err := n.policies.SetObject(t.Context(), naming(rules)); err != nil {
			t.Fatal(err)
		}
		n.flush(t)
	}
	resolve := func(to model.Resolution) {
		t.Helper()
		if err := n.policies.Resolve(t.Context(), service, to); err != nil {
			t.Fatal(err)
		}
		n.flush(t)
	}
	wants := func(when string, toWeb, toOther bool) {
		t.Helper()
		n.wants(t, client, web, toWeb, when)
		n.wants(t, client, other, toOther, when)
	}
	selected := model.Resolution{Pods: []model.Pods{{Namespace: "default", Labels: model.Selector{{Key: "app", Operator: model.In, Values: []string{"web"}}}}}}
	_, changed := n.policies.References()
	set(toService)
	select {
	case <-changed:
	default:
		t.Error("nobody is told of a new reference")
	}
	wants("accept, not known", false, false)
	resolve(selected)
	wants("accept, known", true, false)
	resolve(model.Resolution{Problem: "there is no such Service"})
	wants("accept, gone", false, false)
	set(notService)
	wants("deny, gone", true, true)
	resolve(selected)
	wants("deny, known", false, true)
	resolve(model.Resolution{Unknown: true, Problem: "the Service has no selector"})
	wants("deny, not known", false, false)
	if _, got := call(n)("GET", "/v1/policy/CiliumNetworkPolicy/default/n", ""); !strings.Contains(got, "Service default/web: the Service has no selector") {
		t.Errorf("%s, want the problem", got)
	}

	resolve(selected)
	n.stop(t)
	n = servingNode(t, dir)
	for _, ep := range []endpoint.Endpoint{client, web, other} {
		n.attach(t, ep)
	}
	n.flush(t)
	wants("after a restart", false, true)
	followed, _ := n.policies.References()
	remove := func(followed []model.Reference) {
		t.Helper()
		id := model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "default", Name: "n"}
		if err := errors.Join(n.policies.RemoveObject(t.Context(), id), n.policies.PruneReferences(t.Context(), followed)); err != nil {
			t.Fatal(err)
		}
		n.flush(t)
		if references, _ := n.policies.References(); len(references) > 0 {
			t.Errorf("references %v of no policy", references)
		}
	}
	remove(followed)
	set(toService)
	wants("accept, known from the policy before", true, false)
	remove(nil)
	set(toService)
	wants("accept, not known any more", false, false)
}

// TestReferencesOfFiles: policies of files may name objects only if another cell resolves them.
func TestReferencesOfFiles(t *testing.T) {
	n := servingNode(t, t.TempDir())
	client, web := pod(1, "client"), pod(2, "web")
	n.attach(t, client)
	n.attach(t, web)
	if _, _, err := n.policies.Put(t.Context(), naming(toService)); fault.KindOf(err) != fault.Invalid || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "--kubernetes") {
		t.Errorf("error %v, want one that names the flag", err)
	}
	n.policies.FollowReferences()
	if _, _, err := n.policies.Put(t.Context(), naming(`"egress":[{"toEntities":["kube-apiserver"]}]`)); err != nil {
		t.Fatal(err)
	}
	n.wants(t, client, web, false, "not known")
	if err := n.policies.Resolve(t.Context(), model.Reference{Kind: model.KubeAPIServer}, model.Resolution{Prefixes: []netip.Prefix{netip.PrefixFrom(web.Addresses.List()[0], 32)}}); err != nil {
		t.Fatal(err)
	}
	n.flush(t)
	n.wants(t, client, web, true, "the API server's address")
}

// TestNamedPeers: blocks without exceptions, and what is not known.
func TestNamedPeers(t *testing.T) {
	prefix := netip.MustParsePrefix
	group := model.Named{Reference: model.Reference{Kind: model.CIDRGroup, Name: "a"}, Except: []netip.Prefix{prefix("10.1.0.0/16"), prefix("192.0.2.0/24")}}
	got := group.Peers(model.Resolution{Prefixes: []netip.Prefix{prefix("10.0.0.0/8"), prefix("192.0.2.0/25"), prefix("2001:db8::/32")}}, model.Accept)
	if len(got) != 2 || !got[0].Block.OutsideOnly || len(got[0].Block.Except) != 1 || got[1].Block.CIDR != prefix("2001:db8::/32") {
		t.Errorf("%+v, want 10.0.0.0/8 without 10.1.0.0/16, and 2001:db8::/32, outside of the cluster", got)
	}
	server := model.Named{Reference: model.Reference{Kind: model.KubeAPIServer}}
	if got := server.Peers(model.Resolution{Prefixes: []netip.Prefix{prefix("192.0.2.1/32")}, Host: true}, model.Accept); len(got) != 2 || got[0].Block.OutsideOnly || !got[1].Kinds.Has(model.Host) {
		t.Errorf("%+v, want the address, also of a node, and this node", got)
	}
}

// TestSpecs: all specifications of an object are in force, until a later version does not have them.
func TestSpecs(t *testing.T) {
	dir := t.TempDir()
	n := servingNode(t, dir)
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	attach := func() {
		t.Helper()
		for _, ep := range []endpoint.Endpoint{web, client, other} {
			n.attach(t, ep)
		}
		n.flush(t)
	}
	wants := func(when string, toWeb, toOther bool) {
		t.Helper()
		n.wants(t, client, web, toWeb, when)
		n.wants(t, client, other, toOther, when)
	}
	deny := func(app string) string {
		return `{"endpointSelector":{"matchLabels":{"app":"` + app + `"}},"ingressDeny":[{"fromEndpoints":[{"matchLabels":{"app":"client"}}]}],"enableDefaultDeny":{"ingress":false}}`
	}
	set := func(specs string) {
		t.Helper()
		object := `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"s","namespace":"default"},"specs":[` + specs + `]}`
		if err := n.policies.SetObject(t.Context(), []byte(object)); err != nil {
			t.Fatal(err)
		}
		n.flush(t)
	}
	attach()
	set(deny("web") + "," + deny("other"))
	wants("two specifications", false, false)
	n.stop(t)
	n = servingNode(t, dir)
	attach()
	wants("after a restart", false, false)
	if _, got := call(n)("GET", "/v1/policy/CiliumNetworkPolicy/default/s", ""); !strings.Contains(got, `"ingress":2`) {
		t.Errorf("%s, want the rules of both", got)
	}
	set(deny("other"))
	wants("one specification", true, false)
	set(deny("other") + "," + deny("web"))
	if err := n.policies.RemoveObject(t.Context(), model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "default", Name: "s"}); err != nil {
		t.Fatal(err)
	}
	n.flush(t)
	wants("none", true, true)
}

// TestReferenceTakenOver: a Service changes while no policy names it. The next policy that names it follows the change.
func TestReferenceTakenOver(t *testing.T) {
	n := servingNode(t, t.TempDir())
	client, web, other := pod(1, "client"), pod(2, "web"), pod(3, "other")
	n.attach(t, client)
	n.attach(t, web)
	n.attach(t, other)
	service := model.Reference{Kind: model.Service, Namespace: "default", Name: "web"}
	selects := func(app string) model.Resolution {
		return model.Resolution{Pods: []model.Pods{{Namespace: "default", Labels: model.Selector{{Key: "app", Operator: model.In, Values: []string{app}}}}}}
	}
	id := model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "default", Name: "n"}
	err := errors.Join(
		n.policies.SetObject(t.Context(), naming(toService)), n.policies.Resolve(t.Context(), service, selects("web")),
		n.policies.RemoveObject(t.Context(), id), n.policies.Resolve(t.Context(), service, selects("other")), n.policies.SetObject(t.Context(), naming(toService)),
	)
	if err != nil {
		t.Fatal(err)
	}
	n.flush(t)
	n.wants(t, client, web, false, "the Service selects other pods by now")
	n.wants(t, client, other, true, "the Service selects other pods by now")
}
