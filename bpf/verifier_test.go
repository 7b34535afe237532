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

// maxVerified is so many instructions that the verifier may go through in one program: 10,000 take it some 15 ms, at
// each start that loads programs.
const maxVerified = 40_000

func TestVerifier(t *testing.T) {
	testutil.Root(t)
	loadConntrack(t, testutil.NetNS(t))
	for gateway, conntrack := range map[netip.Addr]uint8{addr("0.0.0.0"): 0, addr("169.254.1.1"): 1, addr("255.255.255.255"): 1} {
		t.Run(fmt.Sprintf("gateway %s, conntrack %d", gateway, conntrack), func(t *testing.T) {
			spec := specWith(t, gateway)
			if err := spec.Variables[bpf.ConntrackPresent].Set(conntrack); err != nil {
				t.Fatal(err)
			}
			verify(t, spec)
		})
	}
}

// TestVerifierTunnel is about the programs of the VXLAN device.
func TestVerifierTunnel(t *testing.T) {
	testutil.Root(t)
	spec, err := bpf.Tunnel()
	if err != nil {
		t.Fatal(err)
	}
	verify(t, spec)
}

// verify loads the programs, and asks how far the verifier has gone.
func verify(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	collection, err := ebpf.NewCollection(spec)
	if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		t.Fatalf("%+v", verifier)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer collection.Close()
	for name, program := range collection.Programs {
		info, err := program.Info()
		if err != nil {
			t.Fatal(err)
		}
		// Linux 5.16 and later say it.
		if verified, known := info.VerifiedInstructions(); known && verified > maxVerified {
			t.Errorf("the verifier goes through %d instructions of %s, want %d at the most: a global function is verified once", verified, name, maxVerified)
		}
	}
}
