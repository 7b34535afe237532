package datapath_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// pace is about the time that the exec of a CNI plugin takes. It keeps a measurement from paying for what the last one
// left to the kernel.
const pace = 3 * time.Millisecond

// yard is a node with one container that has the other ends of any number of links.
type yard struct {
	*node
	container *testutil.Namespace
	inside    *rtnl.Conn
}

func newYard(b *testing.B) *yard {
	b.Helper()
	y := &yard{node: newNode(b), container: testutil.NetNS(b)}
	y.inside = y.container.Conn(b)
	return y
}

// endpoint makes endpoint number i and its link, up on both sides.
func (y *yard) endpoint(b *testing.B, i int) endpointmanager.Endpoint {
	b.Helper()
	ep := endpointOf(b, i)
	var host rtnl.Link
	must(b, y.conn.Do(
		rtnl.NewVeth(rtnl.Veth{
			Name: ep.Spec.Host.Name, MAC: rtnl.MAC(ep.Spec.Host.MAC),
			Peer: rtnl.VethPeer{Name: "eth" + strconv.Itoa(i), MAC: rtnl.MAC(ep.Spec.Container.MAC), NetNS: y.container.FD()},
		}),
		rtnl.LinkByName(ep.Spec.Host.Name, &host),
	))
	must(b, y.inside.Do(rtnl.LinkUp(host.Peer)))
	ep.Spec.Host.Index = host.Index
	return ep
}

func (y *yard) endpoints(b *testing.B, n int) (all []endpointmanager.Endpoint) {
	b.Helper()
	for i := range n {
		ep := y.endpoint(b, 1+i)
		y.attachOne(b, ep)
		all = append(all, ep)
	}
	return all
}

func (y *yard) attachOne(b *testing.B, ep endpointmanager.Endpoint) {
	b.Helper()
	_, err := y.step.Attach(context.Background(), ep)
	must(b, err)
}

func (y *yard) detachOne(b *testing.B, ep endpointmanager.Endpoint) {
	b.Helper()
	must(b, y.step.Detach(context.Background(), ep, endpointmanager.DeleteConfig{}))
}

func BenchmarkAttachDetach(b *testing.B) {
	y := newYard(b)
	var attaching, detaching []time.Duration
	for i := 0; b.Loop(); i++ {
		ep := y.endpoint(b, 1+i%60000)
		time.Sleep(pace)
		start := time.Now()
		y.attachOne(b, ep)
		attaching = append(attaching, time.Since(start))
		time.Sleep(pace)
		start = time.Now()
		y.detachOne(b, ep)
		detaching = append(detaching, time.Since(start))
	}
	b.ReportMetric(0, "ns/op")
	reportTimes(b, attaching, "attach")
	reportTimes(b, detaching, "detach")
}

func BenchmarkDetach32AtOnce(b *testing.B) {
	y := newYard(b)
	var total time.Duration
	count := 0
	for b.Loop() {
		all := y.endpoints(b, 256)
		work := make(chan endpointmanager.Endpoint, len(all))
		for _, ep := range all {
			work <- ep
		}
		close(work)
		start := time.Now()
		var group sync.WaitGroup
		for range 32 {
			group.Go(func() {
				for ep := range work {
					y.detachOne(b, ep)
				}
			})
		}
		group.Wait()
		total += time.Since(start)
		count += len(all)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(count)/total.Seconds(), "detach/s")
}

func BenchmarkRestartWith250(b *testing.B) {
	y := newYard(b)
	all := y.endpoints(b, 250)
	var starting, restoring, pruning []time.Duration
	for b.Loop() {
		y.stop(b)
		start := time.Now()
		y.start(b)
		started := time.Now()
		for _, ep := range all {
			_, err := y.step.Restore(context.Background(), ep)
			must(b, err)
		}
		restored := time.Now()
		_, err := y.step.Prune(context.Background(), all)
		must(b, err)
		starting, restoring = append(starting, started.Sub(start)), append(restoring, restored.Sub(started))
		pruning = append(pruning, time.Since(restored))
	}
	b.ReportMetric(0, "ns/op")
	reportTimes(b, starting, "start")
	reportTimes(b, restoring, "restore250")
	reportTimes(b, pruning, "prune250")
}

func reportTimes(b *testing.B, all []time.Duration, what string) {
	slices.Sort(all)
	for _, p := range []int{50, 90} {
		b.ReportMetric(float64(all[len(all)*p/100].Microseconds()), what+"-p"+strconv.Itoa(p)+"-us")
	}
}

// BenchmarkExamine250 is what the doctor's loop costs a node, and what a CHECK does.
func BenchmarkExamine250(b *testing.B) {
	y := newYard(b)
	all := y.endpoints(b, 250)
	for i := range all {
		all[i].State = endpointmanager.Ready
	}
	c := &clinic{node: y.node, endpoints: all}
	c.checker = datapath.NewChecker(y.datapath, c, c)
	var whole, one []time.Duration
	for b.Loop() {
		start := time.Now()
		c.wantHealthy(b)
		whole = append(whole, time.Since(start))
		start = time.Now()
		c.examine(b, all[7].Spec.Attachment.String())
		one = append(one, time.Since(start))
	}
	b.ReportMetric(0, "ns/op")
	reportTimes(b, whole, "all")
	reportTimes(b, one, "one")
}
