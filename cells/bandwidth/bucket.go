package bandwidth

import (
	"math"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/endpoint"
)

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
