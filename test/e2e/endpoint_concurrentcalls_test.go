package e2e

import (
	"strings"
	"sync"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestConcurrentADDAndDEL(t *testing.T) {
	r := newRig(t, "--ipam-quarantine=0s", "--ipam-pod-cidr=10.9.0.0/24,fd00:9::/64")
	var loops sync.WaitGroup
	for range 8 {
		c := testutil.NewContainer(t)
		loops.Go(func() {
			for range 5 {
				var both sync.WaitGroup
				both.Go(func() {
					if _, err := r.cni.Add(c); err != nil && strings.Contains(err.Error(), "\n") {
						t.Errorf("ADD: %v", err)
					}
				})
				both.Go(func() {
					if err := r.cni.Del(c); err != nil {
						t.Errorf("DEL: %v", err)
					}
				})
				both.Wait()
			}
			if err := r.cni.Del(c); err != nil {
				t.Errorf("the last DEL: %v", err)
			}
		})
	}
	loops.Wait()
	r.nothingLeft()
}
