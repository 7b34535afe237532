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

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// Uplinks are the devices by which packets leave the node: all of its network namespace but lo and the host ends of pods. The
// program to_uplink decides there what pods send, on addresses that the node has translated.
type Uplinks interface {
	// Require attaches the program to all uplinks, and to those that come later, or detaches it from all. A device that refuses it is no
	// error: it is not among Decided, and the log and the doctor tell of it. Nothing must rely on Decided any more when it is detached.
	Require(required bool) error
	// Decided returns the indexes of the devices that have the program, in order.
	Decided() []int
	// Changed has a token when Decided may have changed since the last one was taken. There may be one reader.
	Changed() <-chan struct{}
}

// uplinkHandle is that of our filter: on a device that is not ours, others have filters of priority 1, too. The newest of a priority comes first.
const uplinkHandle = 0x706f7269

// uplinks is [Uplinks] in the network namespace of the thread that started it.
type uplinks struct {
	log     *slog.Logger
	changed chan struct{}
	wake    chan struct{} // has a token when Require was called: for Follow

	netlink   sync.Mutex      // held while devices are listed and changed; taken before mu
	handle    *netlink.Handle // nil unless started; guarded by netlink
	filter    netlink.BpfFilter
	namespace *os.File

	mu       sync.Mutex // guards the fields below
	asked    bool       // Require was called: before, nobody knows what a former agent's programs are needed for
	required bool
	decided  map[int]bool
	refusals map[int]string // by device, so that each is logged once
}

func newUplinks(log *slog.Logger) *uplinks {
	return &uplinks{log: log, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), decided: map[int]bool{}, refusals: map[int]string{}}
}

func uplinkFilter(p *loader.Program) netlink.BpfFilter {
	return netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			Parent: netlink.HANDLE_MIN_EGRESS, Handle: uplinkHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: p.FD(), Name: bpf.ToUplink, DirectAction: true, Id: int(p.ID),
	}
}

// isUplink reports whether the device is one. The program expects a link header: what has none, as a tunnel of IP in IP, is left to the guard.
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
	u.handle, u.filter, u.namespace = handle, uplinkFilter(program), namespace
	return nil
}

// stop leaves the filters where they are. The next start knows nothing of what was required.
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
	u.asked, u.required, u.decided, u.refusals = false, false, map[int]bool{}, map[int]string{}
}

func (u *uplinks) Require(required bool) error {
	u.mu.Lock()
	known := u.asked && u.required == required && !required // what was detached is not looked for again
	u.asked, u.required = true, required
	u.mu.Unlock()
	if known {
		return nil
	}
	defer signal(u.wake)
	return u.compareAll()
}

func (u *uplinks) Decided() []int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.decided))
}

func (u *uplinks) Changed() <-chan struct{} { return u.changed }

// signal leaves a token.
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

func (u *uplinks) isDecided(index int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.decided[index]
}

// setDecided notes whether the device has the program.
func (u *uplinks) setDecided(index int, decided bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.decided[index] == decided {
		return
	}
	if decided {
		u.decided[index] = true
	} else {
		delete(u.decided, index)
	}
	signal(u.changed)
}

// compareAll makes every uplink what it should be.
func (u *uplinks) compareAll() error {
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
			u.compare(l)
		}
	}
	for _, index := range u.Decided() {
		if !there[index] {
			u.forget(index)
		}
	}
	return err
}

// compareOne is compareAll of one device.
func (u *uplinks) compareOne(l netlink.Link) error {
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return ErrNotStarted
	}
	u.compare(l)
	return nil
}

// compare expects the lock of netlink.
func (u *uplinks) compare(l netlink.Link) {
	index, name := l.Attrs().Index, l.Attrs().Name
	found, err := programAt(u.handle, index, u.filter)
	required := u.isRequired()
	switch {
	case err != nil:
	case required && found != u.filter.Id:
		if err = u.attach(index); err == nil {
			u.log.Info("egress of pods is decided on a device", "ifname", name, "ifindex", index)
		}
	case !required && found != 0:
		u.setDecided(index, false)
		if err = u.detach(index); err == nil {
			u.log.Info("egress of pods is no more decided on a device", "ifname", name, "ifindex", index)
		}
	}
	if errors.Is(err, unix.ENODEV) { // it has gone
		u.forget(index)
		return
	}
	u.setDecided(index, required && err == nil)
	u.noteRefusal(l, err)
}

// errIngress is why a device cannot have the program: filters for the egress of the qdisc ingress, which takes the place of clsact, would
// be run at the ingress.
var errIngress = errors.New("another program has put the qdisc ingress there: replace it by clsact")

// attach replaces a program of ours between two packets.
func (u *uplinks) attach(index int) error {
	err := u.handle.QdiscAdd(clsact(index))
	if errors.Is(err, unix.EEXIST) {
		err = u.checkClsact(index)
	}
	if err != nil {
		return explain("add clsact to link", index, err)
	}
	filter := u.filter
	filter.LinkIndex = index
	return explain("attach "+filter.Name+" to link", index, u.handle.FilterReplace(&filter))
}

func (u *uplinks) checkClsact(index int) error {
	qdiscs, err := nl.Dump(func() ([]netlink.Qdisc, error) { return u.handle.QdiscList(nl.LinkAt(index)) })
	if err == nil && !slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "clsact" }) {
		err = errIngress
	}
	return err
}

// detach leaves the qdisc: filters of others may be on it, or come at any time.
func (u *uplinks) detach(index int) error {
	filter := u.filter
	filter.LinkIndex = index
	err := u.handle.FilterDel(&filter)
	if isRefusal(err) {
		return nil
	}
	return explain("detach "+filter.Name+" from link", index, err)
}

func (u *uplinks) forget(index int) {
	u.setDecided(index, false)
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.refusals, index)
}

// noteRefusal logs what a device says, once.
func (u *uplinks) noteRefusal(l netlink.Link, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	index := l.Attrs().Index
	if err == nil {
		delete(u.refusals, index)
		return
	}
	if u.refusals[index] != err.Error() {
		u.refusals[index] = err.Error()
		u.log.Warn("egress of pods cannot be decided on a device: what pods with an egress policy send there is dropped",
			"ifname", l.Attrs().Name, "ifindex", index, "error", err)
	}
}
