package bpf_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"porin.dev/porin/internal/testutil"
)

func TestVerifier(t *testing.T) {
	testutil.Root(t)
	for _, gateway := range []netip.Addr{addr("0.0.0.0"), addr("169.254.1.1"), addr("255.255.255.255")} {
		t.Run("gateway "+gateway.String(), func(t *testing.T) {
			collection, err := ebpf.NewCollection(specWith(t, gateway))
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
