package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

const (
	patience = 30 * time.Second      // bounds whatever must come true
	hurry    = 25 * time.Millisecond // within which a plugin is killed that is
	// tryAgainLater is the CNI code of what another try may do.
	tryAgainLater = 11
	retry         = 10 * time.Millisecond // after which a runtime tries DEL again
)

// source is what one loop chooses by: the same for the same seed.
func (w *world) source(host, loop int) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, uint64(host)<<32|uint64(uint32(loop))))
}

// comeAndGo attaches and detaches containers one after the other.
func (h *host) comeAndGo(ns *testutil.Namespace, random *rand.Rand, over time.Time) {
	for time.Now().Before(over) {
		c := &testutil.Container{Namespace: ns, ID: testutil.NewContainerID(), IfName: "eth0"}
		c.Args = h.podOf(guests, c.ID[:16])
		h.choosePool(c)
		pod, ok := h.attach(c, random)
		if ok {
			h.use(pod, random)
			h.owners.release(pod)
		}
		h.detach(c, random)
		if h.api != nil {
			h.api.Delete("pods", guests, c.ID[:16])
		}
	}
}

// attach may be cut short.
func (h *host) attach(c *testutil.Container, random *rand.Rand) (pod nodecheck.Pod, ok bool) {
	ctx, cancel := maybeKilled(random)
	defer cancel()
	result, err := h.cni.AddContext(ctx, c)
	switch {
	case ctx.Err() != nil && err != nil:
		h.counts.addsKilled.Add(1)
		return pod, false
	case err != nil:
		h.counts.addsFailed.Add(1)
		if failure, ok := errors.AsType[*types.Error](err); !ok || failure.Code != tryAgainLater {
			h.wrongs.add("ADD fails for another reason than an agent that is away", err.Error())
		}
		return pod, false
	}
	h.counts.adds.Add(1)
	if pod, err = nodecheck.PodOf(c, result); err != nil {
		h.wrongs.add("unreadable result", err.Error())
		return pod, false
	}
	if other, taken := h.owners.take(pod); taken {
		h.wrongs.add("address twice", fmt.Sprintf("%s %s: %s and %s", pod.IPv4, pod.IPv6, c.ID, other))
	}
	return pod, true
}

// use sends a packet that a policy denies, and sometimes a packet that is answered.
func (h *host) use(pod nodecheck.Pod, random *rand.Rand) {
	h.tryAsGuest(pod, random)
	if random.IntN(8) == 0 {
		h.tryWebAsGuest(pod, random)
	}
	if random.IntN(4) > 0 {
		return
	}
	to := []netip.Addr{h.node.IPv4, h.node.IPv6}[random.IntN(2)]
	if err := testutil.Ping(pod.Namespace, to, patience); err != nil {
		h.wrongs.add("unreachable pod", err.Error())
	}
}

// detach calls DEL until it succeeds, as a runtime does. Some are cut short when there is a source of chance.
func (h *host) detach(c *testutil.Container, random *rand.Rand) {
	for deadline := time.Now().Add(patience); ; time.Sleep(retry) {
		ctx, cancel := maybeKilled(random)
		err := h.cni.DelContext(ctx, c)
		killed := ctx.Err() != nil
		cancel()
		if err == nil {
			break
		}
		if killed {
			h.counts.delsKilled.Add(1)
		} else if h.counts.delsFailed.Add(1); time.Now().After(deadline) {
			h.wrongs.add("DEL does not succeed", err.Error())
			return
		}
	}
	h.counts.dels.Add(1)
	if links, err := c.Links(); err != nil || len(links) != 1 {
		h.wrongs.add("link in a container left", fmt.Sprintf("%s: %v, %v", c.ID, testutil.Names(links), err))
	}
}

// maybeKilled is a context that ends soon, in one of four calls.
func maybeKilled(random *rand.Rand) (context.Context, context.CancelFunc) {
	if random == nil || random.IntN(4) > 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(hurry))))
}

// owners are the addresses that runtimes have been given and have not given back.
type owners struct {
	mu sync.Mutex // guards the field below
	by map[netip.Addr]string
}

func (o *owners) take(p nodecheck.Pod) (other string, taken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, addr := range []netip.Addr{p.IPv4, p.IPv6} {
		if owner, ok := o.by[addr]; ok {
			other, taken = owner, true
		}
		o.by[addr] = p.ID
	}
	return other, taken
}

func (o *owners) release(p nodecheck.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.by, p.IPv4)
	delete(o.by, p.IPv6)
}
