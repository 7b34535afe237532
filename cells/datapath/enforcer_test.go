package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/testutil"
)

const denyAllEgress = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny, namespace: shop}\nspec: {podSelector: {}, policyTypes: [Egress]}\n"

// restrictedEngine knows one pod, which may send nothing.
func restrictedEngine(t *testing.T, p *pod) (*engine.Engine, map[string]policy.Local) {
	t.Helper()
	policies, err := manifest.Read([]byte(denyAllEgress))
	must(t, err)
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{SetPolicies: policies, SetEndpoints: []model.Endpoint{
		{Key: "shop/client", Kind: model.Pod, Local: true, Namespace: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
	}})
	return e, map[string]policy.Local{"shop/client": {ID: 1, Link: p.index()}}
}

// TestEnforcerFailedRelease has the last policy stay in force, uplinks included, when one without restrictions cannot
// be written.
func TestEnforcerFailedRelease(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	n.attach(t, p)
	uplink := n.addUplink(t, "eth0")
	e, locals := restrictedEngine(t, p)
	must(t, n.datapath.Enforcer().Apply(e, nil, locals))
	n.wantAttached(t, uplink)
	e.Apply(engine.Update{RemovePolicies: []model.PolicyID{{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "deny"}}})
	locals["shop/unknown"] = policy.Local{ID: 2}
	if err := n.datapath.Enforcer().Apply(e, nil, locals); err == nil {
		t.Fatal("an endpoint that the engine does not know is no error")
	}
	n.wantAttached(t, uplink)
	delete(locals, "shop/unknown")
	must(t, n.datapath.Enforcer().Apply(e, nil, locals))
	n.wantAttached(t)
}

// TestEnforcerUnknownPod has the uplinks decide for a restricted pod that the next agent does not know yet: the maps
// deny it everything.
func TestEnforcerUnknownPod(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	n.attach(t, p)
	uplink := n.addUplink(t, "eth0")
	e, locals := restrictedEngine(t, p)
	must(t, n.datapath.Enforcer().Apply(e, nil, locals))
	n.wantEgress(t, uplink, n.toUplink(t))
	n.stop(t)
	n.start(t)
	must(t, n.datapath.Enforcer().Apply(engine.New(engine.Config{}), nil, nil))
	n.wantEgress(t, uplink, n.toUplink(t))
	must(t, n.datapath.Enforcer().RemoveEndpoint(1)) // it is gone
	n.wantAttached(t)
}

// addressEntries reads the map of addresses' classes.
func (n *node) addressEntries(t *testing.T) (keys []abi.AddressKey) {
	t.Helper()
	m := n.pinned(t, bpf.Addresses)
	var key abi.AddressKey
	var class uint32
	for entries := m.Iterate(); entries.Next(&key, &class); {
		keys = append(keys, key)
	}
	return keys
}

// TestEnforcerCompare damages a map of policies behind the back of the enforcer.
func TestEnforcerCompare(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	n.attach(t, p)
	e, locals := restrictedEngine(t, p)
	x := n.datapath.Enforcer()
	must(t, x.Apply(e, nil, locals))
	compare := func() []policy.Difference {
		t.Helper()
		found, err := x.Compare(e, locals)
		must(t, err)
		return found
	}
	if found := compare(); len(found) > 0 {
		t.Errorf("before: %+v", found)
	}
	must(t, n.pinned(t, bpf.Addresses).Delete(n.addressEntries(t)[0]))
	if found := compare(); len(found) != 1 || found[0].Kind != "missing" || found[0].Map != "addresses" || found[0].Key != "10.0.0.1" {
		t.Errorf("without the pod's address: %+v", found)
	}
	must(t, x.Apply(e, nil, locals))
	if found := compare(); len(found) > 0 {
		t.Errorf("written anew: %+v", found)
	}
	n.stop(t)
	if _, err := x.Compare(e, locals); !errors.Is(err, datapath.ErrNotStarted) {
		t.Errorf("after the stop: error %v, want %v", err, datapath.ErrNotStarted)
	}
}

// TestEnforcerRemovesOtherCopy has the task that follows nftables remove, soon, the copy of the policy that is not
// active any more.
func TestEnforcerRemovesOtherCopy(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	n.attach(t, p)
	e, locals := restrictedEngine(t, p)
	x := n.datapath.Enforcer()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- x.Follow(ctx) }()
	must(t, x.Apply(e, nil, locals))
	must(t, x.Apply(e, nil, locals))
	testutil.Eventually(t, func() error {
		if keys := n.addressEntries(t); len(keys) != 1 {
			return fmt.Errorf("entries %+v of one address, want 1", keys)
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
}

// TestEnforcerRepairsWhatWasNotTold: the kernel drops notifications when there are too many, and following begins
// again.
func TestEnforcerRepairsWhatWasNotTold(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	n.attach(t, p)
	e, locals := restrictedEngine(t, p)
	x := n.datapath.Enforcer()
	must(t, x.Apply(e, nil, locals))
	rules, err := nftables.New(nftables.WithNetNSFd(int(n.File().Fd())))
	must(t, err)
	rules.FlushRuleset()
	must(t, rules.Flush())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- x.Follow(ctx) }()
	testutil.Eventually(t, func() error {
		tables, err := rules.ListTables()
		if err == nil && len(tables) != 1 {
			err = fmt.Errorf("%d tables, want 1", len(tables))
		}
		return err
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
}
