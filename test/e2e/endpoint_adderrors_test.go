package e2e

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// codeTryAgain is what a runtime gets of a failure that may be over in a while.
const codeTryAgain = types.ErrTryAgainLater

// failsWith wants an ADD of the container to fail with this code, words of its text, and a hint that begins so. Of
// another fault than the one at hand the error says nothing.
func (r *rig) failsWith(c *testutil.Container, code uint, words, hint string) {
	r.Helper()
	_, err := r.cni.Add(c)
	failure, ok := errors.AsType[*types.Error](err)
	if !ok || failure.Code != code || !strings.Contains(failure.Msg, words) || !strings.HasPrefix(failure.Details, hint) {
		r.Errorf("the ADD fails with\n%#v\nwant code %d, %q, and the hint %q", err, code, words, hint)
	}
	for _, other := range []string{"remove pods from this node", "ask for another", "release", "correct what the pod", "asked for more"} {
		if err != nil && strings.Contains(err.Error(), other) {
			r.Errorf("the error has a hint of another fault: %v", err)
		}
	}
}

// singles is a pool of single addresses: each is a block.
func singles(name, prefix string) v1.PoolSpec {
	return v1.PoolSpec{Name: name, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}, IPv4BlockBits: 32}
}

// TestAddStoreUnavailable asks for addresses of three pools: the node has no block of the first, has all addresses of
// the second in use, and has not seen the third.
func TestAddStoreUnavailable(t *testing.T) {
	t.Parallel()
	r := newAPI(t).newRig()
	r.server.putPool(singles("blue", "10.65.0.0/30"))
	r.server.putPool(singles("red", "10.66.0.0/30"))
	r.add(asking(t, "", "PORIN_POOL=red"))
	testutil.Eventually(t, func() error {
		usage, err := r.api.IPAM(t.Context())
		if err == nil && !slices.ContainsFunc(usage.Pools, func(p v1.Pool) bool { return p.Name == "blue" }) {
			err = errors.New("the agent has not seen pool blue")
		}
		return err
	})
	r.server.stop()
	const hint = "find out why the store does not answer: see porin doctor"
	r.failsWith(asking(t, "", "PORIN_POOL=blue"), codeTryAgain, "pool blue: no block of it can be claimed: ", hint)
	r.failsWith(asking(t, "", "PORIN_POOL=red"), codeTryAgain, "no further block can be claimed: ", hint)
	r.agent.Restart(t)
	r.failsWith(asking(t, "", "PORIN_POOL=blue"), codeTryAgain, "pool blue: no block of it can be claimed: ", hint)
	r.failsWith(asking(t, "", "PORIN_POOL=green"), codeTryAgain, `pool "green" is not known yet: `, hint) // perhaps of others
	if done := r.cli("ipam", "reserve", "--owner=x", "--pool=green"); done.code == 0 || !strings.Contains(done.err, hint) {
		t.Errorf("porin ipam reserve: %+v", done)
	}
}

// TestAddWithoutFreeBlock: other nodes have claimed all blocks of one pool, and both nodes have blocks of another.
func TestAddWithoutFreeBlock(t *testing.T) {
	api := newAPI(t)
	one, two := api.newRig("--node-name=one"), api.newRig("--node-name=two")
	api.putPool(singles("web", "10.65.0.0/31"))
	api.putPool(singles("both", "10.66.0.0/31"))
	for range 2 {
		two.add(asking(t, "", "PORIN_POOL=web"))
	}
	one.add(asking(t, "", "PORIN_POOL=both"))
	two.add(asking(t, "", "PORIN_POOL=both"))
	const hint = "make the pool larger with porin cluster pool set, or see porin node list for nodes that are gone"
	for range 2 { // the second time the blocks are not listed again
		one.failsWith(asking(t, "", "PORIN_POOL=web"), codeTryAgain, ":eth0: pool web has no free block: 2 of 2 IPv4 blocks are claimed by other nodes (", hint)
		one.failsWith(asking(t, "", "PORIN_POOL=both"), codeTryAgain,
			"/32 has 1, of which 1 in use and 0 in quarantine; pool both has no free block: 1 of 2 IPv4 blocks are claimed by other nodes and 1 by this one (", hint)
	}
}

// TestAddInRecovery begins a recovery.
func TestAddInRecovery(t *testing.T) {
	api := newAPI(t)
	one := api.newRig("--node-name=one")
	api.putPool(singles("web", "10.65.0.0/31"))
	one.pod()
	if done := one.cli("ipam", "recover", "--begin"); done.code != 0 {
		t.Fatalf("porin ipam recover: %+v", done)
	}
	one.failsWith(asking(t, "", "PORIN_POOL=web"), codeTryAgain, "pool web: no block of it can be claimed: a recovery of the cluster's store is under way",
		"see porin ipam recover")
	one.pod() // of its own block
}

// TestAddOfUnknownPool has the settings of the agent name a pool that is not there, and a pod.
func TestAddOfUnknownPool(t *testing.T) {
	r := withPools(t, nil, "--ipam-namespace-pool=shop=violet", "--ipam-node-pool=green")
	r.failsWith(asking(t, "", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=a"), codeInvalidConfig, `pool "violet": no such pool: the pools are: default`,
		`create the pool, or correct --ipam-namespace-pool of the agent, which has it for namespace "shop"`)
	r.failsWith(asking(t, ""), codeInvalidConfig, `pool "green": no such pool`, "create the pool, or correct --ipam-node-pool of the agent")
	r.failsWith(asking(t, "red"), codeInvalidConfig, `pool "red": no such pool`, "create the pool, or have the pod name another one")
}

// TestAddOfUnknownReservation has a token of nothing.
func TestAddOfUnknownReservation(t *testing.T) {
	r := withPools(t, nil)
	r.failsWith(asking(t, "", "PORIN_RESERVATION=4UFXKSCNGRY3KIRXEYBGT6NQXC"), codeConflict, ":eth0: no such reservation, or it is over (",
		"a reservation is of one node, and ends by its time or with the pod that has used it: reserve again with porin ipam reserve")
}
