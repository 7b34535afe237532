package e2e

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// settled tells whether the container takes packets for its IPv6 address. The kernel makes the route for that some time
// after it has answered that the address is there.
func settled(p pod) error {
	conn, err := rtnl.DialAt(p.FD())
	if err != nil {
		return err
	}
	defer conn.Close()
	var way rtnl.Route
	if err = conn.Do(rtnl.GetRoute(p.ipv6, &way)); err == nil && way.Type != unix.RTN_LOCAL {
		err = fmt.Errorf("the route to %s is of type %d, and not local", p.ipv6, way.Type)
	}
	return err
}

func TestAContainerTakesPacketsOnceItsADDHasAnswered(t *testing.T) {
	r := newRig(t)
	var calls sync.WaitGroup
	for range 64 {
		c := testutil.NewContainer(t)
		calls.Go(func() {
			if err := settled(r.add(c)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// running tells whether the kernel passes packets to the host end: it begins to some time after the container's end has
// come up, in a work queue, and drops them until then. A list does not wait for that, as asking for one link would.
func running(r *rig, p pod) error {
	conn, err := rtnl.DialAt(r.node.FD())
	if err != nil {
		return err
	}
	defer conn.Close()
	links, err := conn.Links()
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.Name == v1.HostInterfaceName(p.ID, p.IfName) && link.Flags&unix.IFF_RUNNING == 0 {
			return fmt.Errorf("%s has the flags %#x, and is not running", link.Name, link.Flags)
		}
	}
	return nil
}

func TestTheNodeSendsToAContainerOnceItsADDHasAnswered(t *testing.T) {
	r := newRig(t)
	var calls sync.WaitGroup
	for range 64 {
		c := testutil.NewContainer(t)
		calls.Go(func() {
			if err := running(r, r.add(c)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}
