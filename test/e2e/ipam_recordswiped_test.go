package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// TestRecordsWiped: all records are gone. Pods keep their network, nodes claim again what they have in use, an
// administrator ends the recovery and creates the pool again, and nodes go on.
func TestRecordsWiped(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	one, two := api.newRig("--node-name=one"), api.newRig("--node-name=two")
	a, b, c := one.pod(), one.pod(), two.pod()
	api.Restore(api.empty, 0)
	began := time.Now()
	for name, p := range map[string]pod{"one": a, "two": c} {
		testutil.Eventually(t, func() error { return api.owns(name, p.ipv4, p.ipv6) })
	}
	t.Logf("claimed again after %s", time.Since(began).Round(time.Millisecond))
	if err := testutil.Ping(a.Namespace, b.ipv4, reach); err != nil {
		t.Error(err)
	}
	testutil.Eventually(t, func() error { // the agents have begun a recovery, which an administrator ends when both have written their blocks
		if done := api.asAdmin("ipam", "recover", "--end"); done.code != 0 {
			return fmt.Errorf("porin ipam recover --end: %+v", done)
		}
		return nil
	})
	given := map[netip.Addr]bool{a.ipv4: true, b.ipv4: true, c.ipv4: true}
	three := api.newRig("--node-name=three") // creates the pool
	for _, r := range []*rig{one, two, three} {
		ctr := testutil.NewContainer(r)
		testutil.Eventually(t, func() error {
			_, err := r.cni.Add(ctr)
			return err
		})
		p := r.add(ctr) // the same answer
		if given[p.ipv4] {
			t.Errorf("%s is given out twice", p.ipv4)
		}
		given[p.ipv4] = true
	}
	for _, r := range []*rig{one, two, three} {
		testutil.Eventually(t, func() error {
			if answer := r.checked(); len(answer.Findings)+len(answer.Errors) > 0 {
				return fmt.Errorf("%+v %v", answer.Findings, answer.Errors)
			}
			return nil
		})
	}
}
