package datapath

import (
	"context"
	"net/netip"
	"time"

	"porin.dev/porin/bpf"
)

// Upgrade makes the datapath another version's: the digest of its object is another.
func (d *Datapath) Upgrade() {
	d.pins.loader = newLoader(d.cfg, append([]byte("another"), bpf.EndpointObject()...), d.log)
}

// WithoutTCX makes the kernel an older one.
func (d *Datapath) WithoutTCX() { d.uplinks.withoutTCX, d.fromUplinks.withoutTCX = true, true }

// UsesTCX reports whether devices get the program by TCX.
func (d *Datapath) UsesTCX() bool { return d.uplinks.hook.TCX }

// FollowUplinks is the task.
func (d *Datapath) FollowUplinks(ctx context.Context) error { return d.uplinks.run(ctx) }

// TakeOverAfter makes the kernel wait so long for a sweep.
func (d *Datapath) TakeOverAfter(wait time.Duration) { d.sweeper.takeOverAfter = wait }

// HoldSweep makes a sweep wait until it is released.
func (d *Datapath) HoldSweep() (release func()) {
	d.sweeper.mu.Lock()
	return d.sweeper.mu.Unlock
}

// PodRouteFound reports whether there is a route to an endpoint's address.
func (d *Datapath) PodRouteFound(link int, addr netip.Addr) (found bool, err error) {
	_, found, err = (&podRoutes{reader: d.links.reader}).Get(placed{link, hostPrefix(addr)})
	return found, err
}
