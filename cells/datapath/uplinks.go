package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

// Uplinks are the devices by which packets leave the node: all of its network namespace but lo and the host ends of pods. The
// program to_uplink applies the pods' egress policies there, to addresses after the node's translation.
type Uplinks interface {
	// Require attaches the program to all uplinks, and to those that come later, or detaches it from all. A device that
	// refuses the program is no error: it is not among Attached, and the log and a finding of the doctor say so. Before
	// Require(false), nothing may rely on Attached any more.
	Require(required bool) error
	// Attached returns the indexes of the devices that have the program, in order.
	Attached() []int
	// Changed receives a token when Attached may have changed. It is for one reader.
	Changed() <-chan struct{}
}

// uplinks is [Uplinks] in the network namespace of the thread that started it.
type uplinks struct {
	log     *slog.Logger
	changed chan struct{}
	wake    chan struct{} // has a token when Require was called: for Follow

	withoutTCX bool // a test has the kernel be an older one

	netlink   sync.Mutex      // held while devices are listed and changed; taken before mu
	handle    *netlink.Handle // nil unless started; guarded by netlink
	hook      uplinkHook
	programID uint32
	namespace *os.File

	mu            sync.Mutex // guards the fields below
	requireCalled bool       // before that, programs of a former agent stay: it is not known whether they are required
	required      bool
	attached      map[int]bool
	refusals      map[int]string // by device, so that each is logged once
}

func newUplinks(log *slog.Logger) *uplinks {
	return &uplinks{log: log, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), attached: map[int]bool{}, refusals: map[int]string{}}
}

// isUplink reports whether the device is one. The program expects an Ethernet header. What pods send to a device
// without one, such as an IP-in-IP tunnel, the chain forward of package hostfilter drops.
func isUplink(l netlink.Link) bool {
	return l.Attrs().Flags&net.FlagLoopback == 0 && l.Attrs().EncapType == "ether" && !link.IsHostEnd(l)
}

// start opens a socket in the namespace of the calling thread. The program and the namespace must stay open until stop.
func (u *uplinks) start(program *loader.Program, namespace *os.File) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	u.netlink.Lock()
	defer u.netlink.Unlock()
	inNamespace := func(f func() error) error { return netns.In(int(namespace.Fd()), f) }
	u.handle, u.programID, u.namespace = handle, program.ID, namespace
	u.hook = newUplinkHook(program, handle, inNamespace, !u.withoutTCX && loader.HasTCX())
	return nil
}

// stop leaves the filters attached. After the next start, Require has to be called again.
func (u *uplinks) stop() {
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return
	}
	u.handle.Close()
	u.handle = nil
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requireCalled, u.required, u.attached, u.refusals = false, false, map[int]bool{}, map[int]string{}
}

func (u *uplinks) Require(required bool) error {
	u.mu.Lock()
	done := u.requireCalled && !u.required && !required // detached before
	u.requireCalled, u.required = true, required
	u.mu.Unlock()
	if done {
		return nil
	}
	defer signal(u.wake)
	return u.reconcileAll()
}

func (u *uplinks) Attached() []int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.attached))
}

func (u *uplinks) Changed() <-chan struct{} { return u.changed }

// signal leaves a token in the channel, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (u *uplinks) isRequired() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.required
}

func (u *uplinks) isAttached(index int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.attached[index]
}

// setAttached records whether the device has the program.
func (u *uplinks) setAttached(index int, attached bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attached[index] == attached {
		return
	}
	if attached {
		u.attached[index] = true
	} else {
		delete(u.attached, index)
	}
	signal(u.changed)
}

// reconcileAll attaches the program to every uplink, or detaches it, as required.
func (u *uplinks) reconcileAll() error {
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return ErrNotStarted
	}
	links, err := nl.Dump(u.handle.LinkList)
	if len(links) == 0 && err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	there := map[int]bool{}
	for _, l := range links {
		if isUplink(l) {
			there[l.Attrs().Index] = true
			u.reconcile(l)
		}
	}
	for _, index := range u.Attached() {
		if !there[index] {
			u.forget(index)
		}
	}
	return err
}

// reconcileLink is reconcileAll for one device.
func (u *uplinks) reconcileLink(l netlink.Link) error {
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return ErrNotStarted
	}
	u.reconcile(l)
	return nil
}

// reconcile expects the lock netlink.
func (u *uplinks) reconcile(l netlink.Link) {
	index, name := l.Attrs().Index, l.Attrs().Name
	found, err := u.hook.find(index)
	required := u.isRequired()
	switch {
	case err != nil:
	case required && found != u.programID:
		if err = u.hook.attach(index); err == nil {
			u.log.Info("egress policy is enforced on a device", "ifname", name, "ifindex", index)
		}
	case !required && found != 0:
		u.setAttached(index, false)
		if err = u.hook.detach(index); err == nil {
			u.log.Info("egress policy is no longer enforced on a device", "ifname", name, "ifindex", index)
		}
	}
	if errors.Is(err, unix.ENODEV) { // the device is gone
		u.forget(index)
		return
	}
	u.setAttached(index, required && err == nil)
	u.logRefusal(l, err)
}

func (u *uplinks) forget(index int) {
	u.setAttached(index, false)
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.refusals, index)
}

// logRefusal logs why a device refuses the program, once. A nil error ends the refusal.
func (u *uplinks) logRefusal(l netlink.Link, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	index := l.Attrs().Index
	if err == nil {
		delete(u.refusals, index)
		return
	}
	if u.refusals[index] != err.Error() {
		u.refusals[index] = err.Error()
		u.log.Warn("egress policy cannot be enforced on a device: what pods with an egress policy send there is dropped",
			"ifname", l.Attrs().Name, "ifindex", index, "error", err)
	}
}
