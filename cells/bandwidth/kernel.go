package bandwidth

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
)

// filterPriority is after the datapath's programs.
const filterPriority = 2

const devicePrefix = "pbw"

// addrGenModeNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addrGenModeNone = 1

var deviceName = regexp.MustCompile(`^` + devicePrefix + `[a-z2-7]{12}$`)

// nameOf is the name of the device in which waits what an endpoint sends.
func nameOf(a endpoint.Attachment) string {
	return devicePrefix + strings.TrimPrefix(a.HostEnd(), v1.HostInterfacePrefix)
}

// IsDevice reports whether the device bears Porin's mark: an ifb with the name that nameOf gives.
func IsDevice(l netlink.Link) bool {
	return l.Type() == "ifb" && deviceName.MatchString(l.Attrs().Name)
}

// kernel does it, in one network namespace.
type kernel struct{ *netlink.Handle }

// devices lists the devices with Porin's mark.
func (k kernel) devices() (devices []netlink.Link, err error) {
	all, err := nl.Dump(k.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range all {
		if IsDevice(l) {
			devices = append(devices, l)
		}
	}
	return devices, nil
}

// find returns the device of that name; nil when there is none.
func (k kernel) find(name string) (netlink.Link, error) {
	l, err := k.LinkByName(name)
	if nl.IsNoLink(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get link %s: %w", name, err)
	}
	if !IsDevice(l) {
		return nil, fmt.Errorf("link %s is of kind %s: %w", name, l.Type(), ErrForeign)
	}
	return l, nil
}

// setBucket makes the bucket the root qdisc of a link.
func (k kernel) setBucket(link int, b bucket) error {
	err := k.QdiscReplace(b.qdisc(link))
	return explain(fmt.Sprintf("set a token bucket on link %d", link), err, "the qdisc tbf (CONFIG_NET_SCH_TBF)")
}

// bucketAt is the bucket that is the root qdisc of a link; false for none.
func (k kernel) bucketAt(link int) (bucket, bool, error) {
	qdiscs, err := nl.Dump(func() ([]netlink.Qdisc, error) { return k.QdiscList(nl.LinkAt(link)) })
	for _, q := range qdiscs {
		if tbf, ok := q.(*netlink.Tbf); ok && tbf.Parent == netlink.HANDLE_ROOT {
			return bucket{tbf.Rate, tbf.Buffer, tbf.Limit}, true, nil
		}
	}
	if err = nl.IgnoreAbsent(err); err != nil {
		err = fmt.Errorf("list the qdiscs of link %d: %w", link, err)
	}
	return bucket{}, false, err
}

// makeDevice makes the device of an endpoint, or takes the existing one.
func (k kernel) makeDevice(ep endpoint.Endpoint) (index int, err error) {
	name := nameOf(ep.Spec.Attachment)
	device, err := k.find(name)
	if device == nil && err == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = name, 1, 1
		err = explain("make device "+name, k.LinkAdd(&netlink.Ifb{LinkAttrs: attrs}), "devices of the kind ifb (CONFIG_IFB)")
		if err == nil {
			device, err = k.find(name)
		}
	}
	if err != nil {
		return 0, err
	}
	if device == nil {
		return 0, fmt.Errorf("make device %s: it was removed meanwhile", name)
	}
	return device.Attrs().Index, nil
}

// startDevice gives the device its bucket, and then lets packets in. It needs no address.
func (k kernel) startDevice(index int, b bucket) error {
	if err := k.setBucket(index, b); err != nil {
		return err
	}
	err := k.LinkSetIP6AddrGenMode(nl.LinkAt(index), addrGenModeNone)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6
		return fmt.Errorf("keep IPv6 off link %d: %w", index, err)
	}
	if err := k.LinkSetUp(nl.LinkAt(index)); err != nil {
		return fmt.Errorf("bring up link %d: %w", index, err)
	}
	return nil
}

// redirect sends packets from a host end through a device first. An existing filter for that stays, so that no packet
// bypasses the device meanwhile.
func (k kernel) redirect(host, device int) error {
	if err := k.QdiscAdd(nl.Clsact(host)); err != nil && !errors.Is(err, unix.EEXIST) {
		return explain(fmt.Sprintf("add clsact to link %d", host), err, "the qdisc clsact (CONFIG_NET_SCH_INGRESS)")
	}
	to, there, err := k.redirectedTo(host)
	if err != nil || there && to == device {
		return err
	}
	filter := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: host, Parent: netlink.HANDLE_MIN_INGRESS, Priority: filterPriority, Protocol: unix.ETH_P_ALL},
	}
	if there {
		if err := k.FilterDel(filter); err != nil {
			return fmt.Errorf("remove a filter of link %d: %w", host, err)
		}
	}
	filter.Actions = []netlink.Action{netlink.NewMirredAction(device)}
	return explain(fmt.Sprintf("redirect from link %d to %d", host, device), k.FilterAdd(filter),
		"filters of the kind u32 with the action mirred (CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED)")
}

// redirectedTo is the device that what comes by a host end goes through, 0 if it is gone; there says whether it is
// redirected.
func (k kernel) redirectedTo(host int) (device int, there bool, err error) {
	filters, err := nl.Dump(func() ([]netlink.Filter, error) { return k.FilterList(nl.LinkAt(host), netlink.HANDLE_MIN_INGRESS) })
	for _, f := range filters {
		u32, ok := f.(*netlink.U32)
		if !ok || u32.Priority != filterPriority {
			continue
		}
		for _, action := range u32.Actions {
			if mirred, ok := action.(*netlink.MirredAction); ok {
				return mirred.Ifindex, true, nil
			}
		}
	}
	if err = nl.IgnoreAbsent(err); err != nil {
		err = fmt.Errorf("list the filters of link %d: %w", host, err)
	}
	return 0, false, err
}

// explain says what was refused, and what the kernel lacks when that is why.
func explain(doing string, err error, lacks string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%s: %w: %s: %w", doing, ErrKernel, lacks, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

const (
	// burstTime is how long the rate lasts at once by default: long enough for a node whose processors are busy, and 0.4 %
	// of what passes in 5 s.
	burstTime = 0.02
	// queueTime is how long a packet waits at the most.
	queueTime = 0.05
	// leastQueue is what may wait at the least, in bytes: some packets, without which TCP does not reach a low rate.
	leastQueue = 1 << 14
	// linkHeader is the length of an Ethernet header, in bytes.
	linkHeader = 14
	// tick is the unit of time of qdiscs in ns (PSCHED_SHIFT in net/pkt_sched.h).
	tick = 64
)

// bucket is what the kernel is told of a limit.
type bucket struct {
	rate  uint64 // bytes per second
	burst uint32 // time that the burst takes at that rate, in ticks
	limit uint32 // of what waits, in bytes
}

// bucketOf is the bucket of a limit in bits. The kernel counts the link header of each packet: the rate counts IP
// packets of the full size. A burst holds a packet at least, else none would ever pass.
func bucketOf(rate, burst uint64, mtu int) bucket {
	packet := float64(mtu + linkHeader)
	bytes := float64(rate) / 8 * packet / float64(mtu)
	burstBytes := bytes * burstTime
	if !endpoint.IsDefaultBurst(burst) {
		burstBytes = float64(burst) / 8
	}
	burstBytes = max(burstBytes, packet)
	return bucket{
		rate:  uint64(math.Ceil(bytes)),
		burst: uint32(min(math.Ceil(burstBytes/bytes*1e9/tick), math.MaxUint32)),
		limit: uint32(min(burstBytes+max(bytes*queueTime, leastQueue), math.MaxUint32)),
	}
}

// bits is the limit that the bucket was made for.
func (b bucket) bits(mtu int) uint64 {
	return uint64(float64(b.rate) * 8 * float64(mtu) / float64(mtu+linkHeader))
}

// handle is of the qdiscs of ours ("po" in ASCII).
var handle = netlink.MakeHandle(0x706f, 0)

func (b bucket) qdisc(link int) *netlink.Tbf {
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: handle, Parent: netlink.HANDLE_ROOT},
		Rate:       b.rate, Buffer: b.burst, Limit: b.limit,
	}
}
