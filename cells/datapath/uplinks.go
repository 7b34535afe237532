package datapath

import (
	"context"
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

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/tchook"
)

// Uplinks are the devices that packets leave the node through: see isUplink. The program to_uplink applies the pods'
// egress policies there, to addresses after the node's translation. (from_uplink is there for
// [Datapath.SetRemoteBlocks].)
type Uplinks interface {
	// Require attaches the program to all uplinks, also to later ones, or detaches it from all. A device that
	// refuses the program is no error: it is not among Attached, and the log and a finding of the doctor say so. Before
	// Require(false), nothing may rely on Attached any more.
	Require(required bool) error
	// Attached returns the indexes of the devices that have the program, in order.
	Attached() []int
	// Changed receives a token when Attached may have changed. It is for one reader.
	Changed() <-chan struct{}
}

// uplinkSide is one of the two sides of the uplinks, and what is said of the program there.
type uplinkSide struct {
	tchook.Side
	reason                                reason // without which it is not known whether the program is required
	missing                               string // the kind of finding
	attached, detached, refused, orphaned string // what the log and a finding say
}

var (
	uplinkEgress = &uplinkSide{
		Side:   tchook.Side{Program: bpf.ToUplink, First: true, Priority: filterPriority},
		reason: egressPolicy, missing: uplinkProgramMissing,
		attached: "egress policy can be enforced on a device", detached: "egress policy is no longer enforced on a device",
		refused:  "egress policy cannot be enforced on a device: what pods with an egress policy send there is dropped",
		orphaned: "no endpoint has an egress policy, and there are no pods on other nodes",
	}
	// uplinkIngress is behind from_tunnel, whose filter has the priority 2.
	uplinkIngress = &uplinkSide{
		Side:   tchook.Side{Program: bpf.FromUplink, Ingress: true, Priority: 3},
		reason: directPath, missing: fromUplinkMissing,
		attached: "packets from pods of other nodes bypass the stack on a device", detached: "packets from pods of other nodes go through the stack on a device",
		refused:  "packets from pods of other nodes can only go through the stack on a device",
		orphaned: "there are no pods on other nodes",
	}
)

// uplinks is [Uplinks] in the network namespace of the thread that started it, for one side.
type uplinks struct {
	side    *uplinkSide
	log     *slog.Logger
	changed chan struct{}
	wake    chan struct{} // has a token when Require was called: for Follow

	withoutTCX bool // a test simulates an older kernel

	netlink sync.Mutex      // held while devices are listed and changed; taken before mu
	handle  *netlink.Handle // nil unless started; guarded by netlink
	hook    *tchook.Hook
	program *loader.Program

	mu       sync.Mutex      // guards the fields below
	required map[reason]bool // while the side's reason is not there, programs of a previous agent stay: it is not known yet
	attached map[int]bool
	refusals map[int]string // by device, so that each is logged once
}

// reason is why a program has to be on the uplinks.
type reason string

const (
	egressPolicy reason = "egress policy" // an endpoint has one
	directPath   reason = "direct path"   // other nodes have blocks
)

func newUplinks(side *uplinkSide, log *slog.Logger) *uplinks {
	return &uplinks{side: side, log: log, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), required: map[reason]bool{}, attached: map[int]bool{}, refusals: map[int]string{}}
}

// isUplink reports whether the device is an uplink: it has Ethernet headers, which the programs expect, and is neither
// lo, nor a pod's host end, nor the proxy's, nor an ifb, which only queues packets: no packet leaves the node through
// these. Packets of a pod with an egress policy to a device without Ethernet headers, such as an IP-in-IP tunnel, the
// chain forward of package hostfilter drops.
func isUplink(l netlink.Link) bool {
	return l.Attrs().Flags&net.FlagLoopback == 0 && l.Attrs().EncapType == "ether" && l.Type() != "ifb" && !link.IsHostEnd(l) && !link.IsProxyDevice(l.Attrs().Name)
}

// resume requires the program for a previous agent's reason, until require says otherwise.
func (u *uplinks) resume(why reason) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.required[why] = true
}

// start opens a socket in the namespace of the calling thread. The program and the namespace must stay open until stop.
func (u *uplinks) start(program *loader.Program, namespace *os.File) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	u.netlink.Lock()
	defer u.netlink.Unlock()
	u.handle, u.program = handle, program
	u.hook = &tchook.Hook{Side: u.side.Side, TCX: !u.withoutTCX && loader.HasTCX(), Handle: handle, Namespace: namespace}
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
	u.required, u.attached, u.refusals = map[reason]bool{}, map[int]bool{}, map[int]string{}
}

// Require implements [Uplinks].
func (u *uplinks) Require(required bool) error { return u.require(egressPolicy, required) }

// require attaches the program while it is required for any reason, and detaches it when it is required for none.
func (u *uplinks) require(why reason, required bool) error {
	u.mu.Lock()
	wasRequired, wasKnown := u.isRequiredLocked()
	u.required[why] = required
	isRequired, isKnown := u.isRequiredLocked()
	u.mu.Unlock()
	if !isKnown || wasKnown && !wasRequired && !isRequired {
		return nil
	}
	defer task.Wake(u.wake)
	return u.reconcileAll()
}

// isRequired reports whether the program has to be on the uplinks, and whether that is known.
func (u *uplinks) isRequired() (required, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.isRequiredLocked()
}

func (u *uplinks) isRequiredLocked() (required, known bool) {
	for _, required := range u.required {
		if required {
			return true, true
		}
	}
	_, known = u.required[u.side.reason]
	return false, known
}

func (u *uplinks) Attached() []int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.attached))
}

func (u *uplinks) Changed() <-chan struct{} { return u.changed }

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
	task.Wake(u.changed)
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
			u.remove(index)
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
	found, err := u.hook.Find(index)
	required, _ := u.isRequired()
	switch {
	case err != nil:
	case required && found != u.program.ID:
		if err = u.hook.Attach(index, u.program.Program, u.program.ID); err == nil {
			u.log.Info(u.side.attached, "ifname", name, "ifindex", index)
		}
	case !required && found != 0:
		u.setAttached(index, false)
		if err = u.hook.Detach(index); err == nil {
			u.log.Info(u.side.detached, "ifname", name, "ifindex", index)
		}
	}
	if errors.Is(err, unix.ENODEV) { // the device is gone
		u.remove(index)
		return
	}
	u.setAttached(index, required && err == nil)
	u.logRefusal(l, err)
}

func (u *uplinks) remove(index int) {
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
		u.log.Warn(u.side.refused, "ifname", l.Attrs().Name, "ifindex", index, "error", err)
	}
}

// findings compares the devices with what is required.
func (u *uplinks) findings() (findings []doctor.Finding, err error) {
	required, known := u.isRequired()
	if !known {
		return nil, nil
	}
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return nil, ErrNotStarted
	}
	links, err := nl.Dump(u.handle.LinkList)
	for _, l := range links {
		if !isUplink(l) {
			continue
		}
		found, programErr := u.hook.Find(l.Attrs().Index)
		err = errors.Join(err, programErr)
		if finding, ok := u.finding(l, found, required); ok && programErr == nil {
			findings = append(findings, finding)
		}
	}
	return findings, nl.IgnoreInterrupted(err)
}

// finding returns what is wrong with a device, whose program has the ID found; 0 is no program.
func (u *uplinks) finding(l netlink.Link, found uint32, required bool) (f doctor.Finding, ok bool) {
	index, name := l.Attrs().Index, l.Attrs().Name
	f = doctor.Finding{
		Subject: fmt.Sprintf("program %s on link %s, index %d", u.side.Program, name, index),
		Repair:  func(context.Context) error { return u.repair(l) },
	}
	switch {
	case required && found == 0:
		f.Kind, f.Detail = u.side.missing, reconcile.Missing
	case required && found != u.program.ID:
		f.Kind, f.Detail = u.side.missing, fmt.Sprintf("%d instead of %d", found, u.program.ID)
	case !required && found != 0:
		f.Kind, f.Detail = programOrphan, u.side.orphaned
	}
	return f, f.Kind != ""
}

// repair returns why the device refuses the program, if it does.
func (u *uplinks) repair(l netlink.Link) error {
	if err := u.reconcileLink(l); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if reason := u.refusals[l.Attrs().Index]; reason != "" {
		return errors.New(reason)
	}
	return nil
}
