package bpf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/internal/testutil"
)

func TestVerifier(t *testing.T) {
	testutil.Root(t)
	loadConntrack(t, testutil.NetNS(t))
	for gateway, conntrack := range map[netip.Addr]uint8{addr("0.0.0.0"): 0, addr("169.254.1.1"): 1, addr("255.255.255.255"): 1} {
		t.Run(fmt.Sprintf("gateway %s, conntrack %d", gateway, conntrack), func(t *testing.T) {
			spec := specWith(t, gateway)
			if err := spec.Variables[bpf.ConntrackPresent].Set(conntrack); err != nil {
				t.Fatal(err)
			}
			collection, err := ebpf.NewCollection(spec)
			if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
				t.Fatalf("%+v", verifier)
			}
			if err != nil {
				t.Fatal(err)
			}
			collection.Close()
		})
	}
}
