package flow

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/model"
)

// recentCount is how many distinct flows are remembered, at about 300 bytes each.
const recentCount = 10_000

// Recent is what was seen of connections from one address to a port of another. Both are as they are without translation.
type Recent struct {
	From, To    netip.Addr
	Protocol    model.Protocol
	Port        uint16
	Count       uint64
	First, Last time.Time
	Verdict     string // of the last one, as in v1.Flow: allowed, audit or denied
}

type recentKey struct {
	from, to netip.Addr
	protocol uint8
	port     uint16
}

type recentFlow struct {
	recentKey
	count       uint64
	first, last int64
	verdict     verdict
}

// recentFlows forgets what it has not seen for the longest time.
type recentFlows struct {
	size int

	mu    sync.Mutex // guards the fields below
	byKey map[recentKey]*list.Element
	order *list.List // of *recentFlow, the latest first
}

func newRecentFlows(size int) *recentFlows {
	return &recentFlows{size: size, byKey: map[recentKey]*list.Element{}, order: list.New()}
}

// add leaves out what no policy has decided about.
func (l *recentFlows) add(batch []record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		if r := &batch[i]; r.lost == 0 && r.verdict != dropped {
			l.see(r)
		}
	}
}

// see expects the lock.
func (l *recentFlows) see(r *record) {
	key := recentKey{r.from.Addr(), r.to.Addr(), r.protocol, r.to.Port()}
	if !model.Protocol(r.protocol).HasPorts() {
		key.port = 0 // an echo has its identifier there
	}
	at := l.byKey[key]
	if at == nil {
		if l.order.Len() >= l.size {
			oldest := l.order.Back()
			delete(l.byKey, oldest.Value.(*recentFlow).recentKey)
			l.order.Remove(oldest)
		}
		at = l.order.PushFront(&recentFlow{recentKey: key, first: r.time})
		l.byKey[key] = at
	}
	l.order.MoveToFront(at)
	seen := at.Value.(*recentFlow)
	seen.count++
	seen.last, seen.verdict = r.time, r.verdict
}

func (l *recentFlows) list() []Recent {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Recent, 0, l.order.Len())
	for at := l.order.Front(); at != nil; at = at.Next() {
		seen := at.Value.(*recentFlow)
		all = append(all, Recent{
			From: seen.from, To: seen.to, Protocol: model.Protocol(seen.protocol), Port: seen.port, Count: seen.count,
			First: time.Unix(0, seen.first).UTC(), Last: time.Unix(0, seen.last).UTC(), Verdict: seen.verdict.String(),
		})
	}
	return all
}
