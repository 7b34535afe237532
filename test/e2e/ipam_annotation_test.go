package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// annotated returns a container of the pod shop/NAME with these annotations, which the runtime hands over when the list
// declares that.
func annotated(t *testing.T, name string, annotations map[string]string) *testutil.Container {
	t.Helper()
	c := asking(t, "", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME="+name, "K8S_POD_UID="+name)
	c.Caps = map[string]any{"io.kubernetes.cri.pod-annotations": annotations}
	return c
}

// TestReservationAnnotation: a pod of a StatefulSet, which is created again and again, asks for its address, by the
// list that the agent has written.
func TestReservationAnnotation(t *testing.T) {
	r := withPools(t, nil)
	r.putPool(singles("fixed", "10.65.0.0/28"))
	db := decoded[v1.Reservation](r, "ipam", "reserve", "--permanent", "--owner=shop/db-0", "--pool=fixed", "10.65.0.5")
	asks := map[string]string{"porin.dev/reservation": db.Token}
	// attach adds a container of the pod.
	attach := func() pod {
		t.Helper()
		c := annotated(t, "db-0", asks)
		r.add(c)
		p := r.add(c) // again, as after a lost answer
		if p.ipv4 != db.Addresses.IPv4 || r.pooled()[p.ipv4] != "fixed" {
			t.Fatalf("the pod got %s of pool %q, want %s of fixed", p.ipv4, r.pooled()[p.ipv4], db.Addresses.IPv4)
		}
		return p
	}
	p := attach()
	r.failsWith(annotated(t, "db-1", asks), codeConflict, "address 10.65.0.5: in use by another endpoint", "delete that one")
	if done := r.cli("ipam", "release", "10.65.0.5"); done.code == 0 || !strings.Contains(done.err, "in use by endpoint "+p.ID+":eth0") {
		t.Errorf("release of what is in use: exit code %d: %s", done.code, done.err)
	}
	r.cni.MustDel(t, p.Container)
	attach()
	p = attach() // another sandbox of the pod, without a DEL of the one before
	r.agent.Kill(t)
	r.agent.Start(t)
	r.agrees()
	r.cni.MustDel(t, p.Container)
	p = attach()
	r.cni.MustDel(t, p.Container)

	for value, words := range map[string]string{
		"T0 K3N":                 "the pod's annotation porin.dev/reservation is malformed",
		strings.Repeat("T", 300): "the pod's annotation porin.dev/reservation is longer than 64 characters",
	} {
		r.refuses(annotated(t, "db-0", map[string]string{"porin.dev/reservation": value}), words)
	}
	r.failsWith(annotated(t, "db-0", map[string]string{"porin.dev/reservation": db.Token, "porin.dev/pool": "default"}), codeConflict,
		"the reservation is of pool fixed, and not of pool default", "name no pool besides the reservation")
	if out, err := r.porin("pool", "set", "fixed", "--allowed-namespace=bank"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testutil.Eventually(t, func() error {
		_, err := r.cni.Add(annotated(t, "db-0", asks))
		if err == nil || !strings.Contains(err.Error(), `not for this namespace: it is for pods of bank, and not of "shop"`) {
			return fmt.Errorf("a namespace that the pool is not for: %v", err)
		}
		return nil
	})
	r.agrees()
}
