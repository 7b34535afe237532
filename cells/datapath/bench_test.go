package datapath_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/testutil"
)

// pace is about the time that the exec of a CNI plugin takes. It keeps a measurement from paying for what the last one
// left to the kernel.
const pace = 3 * time.Millisecond

// benchNode is a node with one container that has the other ends of any number of links.
type benchNode struct {
	*node
	container *endpoint.Namespace
}

func newBenchNode(b *testing.B) *benchNode {
	b.Helper()
	return &benchNode{node: newNode(b), container: endpointmanagertest.OpenNamespace(b, testutil.NetNS(b).Path())}
}

// endpoint makes endpoint number i and its link.
func (y *benchNode) endpoint(b *testing.B, i int) endpoint.Endpoint {
	b.Helper()
	return y.link(b, y.container, endpointAt(b, i, endpoint.Attachment{ContainerID: "container", IfName: "eth" + strconv.Itoa(i)}))
}

func (y *benchNode) endpoints(b *testing.B, n int) (all []endpoint.Endpoint) {
	b.Helper()
	for i := range n {
		ep := y.endpoint(b, 1+i)
		y.attachOne(b, ep)
		all = append(all, ep)
	}
	return all
}

func (y *benchNode) attachOne(b *testing.B, ep endpoint.Endpoint) {
	b.Helper()
	_, err := y.step.Attach(context.Background(), ep, y.container)
	must(b, err)
}

// meter adds up what an operation takes: time, CPU of the whole process, and memory.
type meter struct {
	times  []time.Duration
	cpu    time.Duration
	mem    runtime.MemStats // at the beginning of the last operation
	allocs uint64
	bytes  uint64
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (m *meter) measure(b *testing.B, operation func()) {
	b.Helper()
	time.Sleep(pace)
	runtime.ReadMemStats(&m.mem)
	allocs, bytes, cpu, start := m.mem.Mallocs, m.mem.TotalAlloc, cpuTime(b), time.Now()
	operation()
	m.times = append(m.times, time.Since(start))
	m.cpu += cpuTime(b) - cpu
	runtime.ReadMemStats(&m.mem)
	m.allocs, m.bytes = m.allocs+m.mem.Mallocs-allocs, m.bytes+m.mem.TotalAlloc-bytes
}

func (m *meter) report(b *testing.B, what string) {
	n := float64(len(m.times))
	reportTimes(b, m.times, what)
	b.ReportMetric(float64(m.cpu.Microseconds())/n, what+"-cpu-us")
	b.ReportMetric(float64(m.allocs)/n, what+"-allocs")
	b.ReportMetric(float64(m.bytes)/n/1024, what+"-KiB")
}

// BenchmarkAttachDetach is one endpoint of both families: the datapath's steps, and the links'.
func BenchmarkAttachDetach(b *testing.B) {
	n := newNode(b)
	var making, attaching, detaching, deleting meter
	for i := 0; b.Loop(); i++ {
		container := endpointmanagertest.OpenNamespace(b, testutil.NetNS(b).Path())
		ep := endpointOf(b, 1+i%60000)
		making.measure(b, func() { ep = n.link(b, container, ep) })
		attaching.measure(b, func() {
			_, err := n.step.Attach(context.Background(), ep, container)
			must(b, err)
		})
		detaching.measure(b, func() { must(b, n.step.Detach(context.Background(), ep, endpoint.DeleteConfig{})) })
		deleting.measure(b, func() { must(b, n.links.Detach(context.Background(), ep, endpoint.DeleteConfig{})) })
		container.Close()
	}
	b.ReportMetric(0, "ns/op")
	making.report(b, "make-link")
	attaching.report(b, "attach")
	detaching.report(b, "detach")
	deleting.report(b, "delete-link")
}

func BenchmarkDetach32AtOnce(b *testing.B) {
	y := newBenchNode(b)
	var total time.Duration
	count := 0
	for b.Loop() {
		all := y.endpoints(b, 256)
		work := make(chan endpoint.Endpoint, len(all))
		for _, ep := range all {
			work <- ep
		}
		close(work)
		start := time.Now()
		var group sync.WaitGroup
		for range 32 {
			group.Go(func() {
				for ep := range work {
					must(b, y.detachOne(context.Background(), ep))
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
	y := newBenchNode(b)
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
	y := newBenchNode(b)
	all := y.endpoints(b, 250)
	for i := range all {
		all[i].State = endpoint.Ready
	}
	c := &checkedNode{node: y.node, Manager: endpointmanagertest.NewManager(nil)}
	c.Set(all...)
	c.checker = datapath.NewChecker(y.datapath, c, c, y.links)
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
