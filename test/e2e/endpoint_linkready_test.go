package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

// ready returns nil when the container takes packets for its IPv6 address. The kernel makes the route for that some
// time after it has answered that the address is there.
func ready(p pod) error {
	_, handle, err := netns.Open(p.FD())
	if err != nil {
		return err
	}
	defer handle.Close()
	routes, err := handle.RouteGetWithOptions(p.ipv6.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err == nil && (len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL) {
		err = fmt.Errorf("the routes to %s are %+v, want one that is local", p.ipv6, routes)
	}
	return err
}

func TestContainerReadyAfterADD(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var calls sync.WaitGroup
	for range 64 {
		c := testutil.NewContainer(t)
		calls.Go(func() {
			if err := ready(r.add(c)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// running reports whether the kernel passes packets to the host end: it begins to some time after the container's end
// has come up, in a work queue, and drops them until then. A list does not wait for that, as asking for one link would.
func running(r *rig, p pod) error {
	links, err := r.node.Links()
	if err != nil {
		return err
	}
	name := v1.HostInterfaceName(p.ID, p.IfName)
	i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name })
	if i < 0 {
		return fmt.Errorf("%s is not there", name)
	}
	if flags := links[i].Attrs().RawFlags; flags&unix.IFF_RUNNING == 0 {
		return fmt.Errorf("%s has the flags %#x, and is not running", name, flags)
	}
	return nil
}

func TestHostEndReadyAfterADD(t *testing.T) {
	t.Parallel()
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
