package flow

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
)

// recentCount is how many distinct flows are remembered, at about 300 bytes each.
const recentCount = 10_000

type recentKey struct {
	from, to netip.Addr
	protocol uint8
	port     uint16
}

type recentFlow struct {
	recentKey
	fromPod, toPod *Pod // nil for an end that is none
	count          uint64
	last           int64 // Unix, ns
}

// recentFlows are those from one address to a port of another, both as they are without translation. It forgets what it
// has not seen for the longest time.
type recentFlows struct {
	size int

	mu    sync.Mutex // guards the fields below
	byKey map[recentKey]*list.Element
	order *list.List // of *recentFlow, the latest first
	since int64      // all that was seen later is there; Unix, ns
}

func newRecentFlows(size int) *recentFlows {
	return &recentFlows{size: size, byKey: map[recentKey]*list.Element{}, order: list.New(), since: time.Now().UnixNano()}
}

// add leaves out what no policy has decided about.
func (l *recentFlows) add(batch []record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		if r := &batch[i]; r.lost == 0 && r.request == nil && r.verdict != dropped {
			l.seeLocked(r)
		}
	}
}

func (l *recentFlows) seeLocked(r *record) {
	key := recentKey{r.from.Addr(), r.to.Addr(), r.protocol, r.to.Port()}
	if !model.Protocol(r.protocol).HasPorts() {
		key.port = 0 // an echo has its identifier there
	}
	at := l.byKey[key]
	if at == nil {
		if l.order.Len() >= l.size {
			oldest := l.order.Remove(l.order.Back()).(*recentFlow)
			delete(l.byKey, oldest.recentKey)
			l.since = oldest.last
		}
		at = l.order.PushFront(&recentFlow{recentKey: key})
		l.byKey[key] = at
	}
	l.order.MoveToFront(at)
	seen := at.Value.(*recentFlow)
	if seen.fromPod.attachment() != r.from.pod.attachment() || seen.toPod.attachment() != r.to.pod.attachment() {
		seen.count = 0 // those were others, who are gone
	}
	seen.fromPod, seen.toPod = r.from.pod, r.to.pod
	seen.count++
	seen.last = r.time
}

// list returns the latest first, of ends that still have their addresses. ownerOf is the attachment that has an address
// now, or "".
func (l *recentFlows) list(ownerOf func(netip.Addr) string) (flows []policy.Flow, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	flows = make([]policy.Flow, 0, l.order.Len())
	for at := l.order.Front(); at != nil; at = at.Next() {
		seen := at.Value.(*recentFlow)
		if ownerOf(seen.from) != seen.fromPod.attachment() || ownerOf(seen.to) != seen.toPod.attachment() {
			continue
		}
		flows = append(flows, policy.Flow{
			From: seen.from, To: seen.to, Protocol: model.Protocol(seen.protocol), Port: seen.port, Count: seen.count, LastSeen: time.Unix(0, seen.last).UTC(),
		})
	}
	return flows, time.Unix(0, l.since).UTC()
}
