package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// churn adds and deletes containers, each in a loop of its own, until it is told to stop. An ADD may fail for want of
// an agent, and a DEL never.
type churn struct {
	*rig
	containers []*testutil.Container
	stop       atomic.Bool
	added      atomic.Int64 // that succeeded
	running    sync.WaitGroup
}

func (r *rig) churn(loops int) *churn {
	c := &churn{rig: r}
	for range loops {
		container := testutil.NewContainer(r)
		c.containers = append(c.containers, container)
		c.running.Go(func() {
			for !c.stop.Load() {
				c.once(container)
			}
		})
	}
	return c
}

func (c *churn) once(container *testutil.Container) {
	_, err := c.cni.Add(container)
	switch failure, _ := errors.AsType[*types.Error](err); {
	case err == nil:
		c.added.Add(1)
	case failure == nil || failure.Code != codeTryAgainLater:
		c.Errorf("ADD: %v: want success, or CNI code %d", err, codeTryAgainLater)
	}
	if rand.N(4) == 0 {
		return // again over what is there, or is not
	}
	if err := c.cni.Del(container); err != nil {
		c.Errorf("DEL: %v", err)
	}
}

// grows waits until so many more ADDs have succeeded.
func (c *churn) grows(n int64) {
	c.Helper()
	target := c.added.Load() + n
	testutil.Eventually(c, func() error {
		if now := c.added.Load(); now < target {
			return fmt.Errorf("%d containers were attached, want %d", now, target)
		}
		return nil
	})
}

// end stops the loops, takes down what they left, and checks that nothing is left of it.
func (c *churn) end() {
	c.Helper()
	c.stop.Store(true)
	c.running.Wait()
	for _, container := range c.containers {
		c.cni.MustDel(c, container)
	}
	c.nothingLeft()
}

// ownedOnce checks that no two endpoints have an address.
func (r *rig) ownedOnce() {
	r.Helper()
	owners := map[netip.Addr]v1.Endpoint{}
	for _, ep := range r.endpoints() {
		for _, addr := range []netip.Addr{ep.Addresses.IPv4, ep.Addresses.IPv6} {
			if other, taken := owners[addr]; taken && addr.IsValid() { // it has none yet
				r.Errorf("%s has two owners: %+v and %+v", addr, other, ep)
			}
			owners[addr] = ep
		}
	}
}

func TestKillAtRandomTimes(t *testing.T) {
	r := newRig(t, "--ipam-quarantine=0s", "--ipam-pod-cidr=10.9.0.0/24,fd00:9::/64")
	witness, other := r.pod(), r.pod()
	c := r.churn(20)
	for range 8 {
		c.grows(1 + rand.Int64N(40))
		r.agent.Kill(t)
		if err := testutil.Ping(witness.Namespace, other.ipv6, reach); err != nil {
			t.Errorf("without an agent: %v", err)
		}
		r.agent.Start(t)
		r.ownedOnce()
	}
	c.containers = append(c.containers, witness.Container, other.Container)
	if all := r.endpoints(); !slices.ContainsFunc(all, func(ep v1.Endpoint) bool { return ep.ContainerID == witness.ID && ep.State == "ready" }) {
		t.Errorf("the container that nobody touched is not ready: %+v", all)
	}
	c.end()
}

func TestStopDuringADDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--ipam-quarantine=0s", "--ipam-pod-cidr=10.9.0.0/24,fd00:9::/64")
	c := r.churn(8)
	for range 3 {
		c.grows(10)
		began := time.Now()
		r.agent.Stop(t) // and its exit code is 0
		if took := time.Since(began); took > reach {
			t.Errorf("it took %v to stop", took)
		}
		r.agent.Start(t)
		r.ownedOnce()
	}
	c.end()
}
