package link_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// pace is about the time that the exec of a CNI plugin takes. It keeps a measurement from paying for what the last one
// left to the kernel.
const pace = 3 * time.Millisecond

// pairs makes n links with their other ends in one container.
func pairs(b *testing.B, n *node, c *container, count int) (indexes []int) {
	b.Helper()
	for i := range count {
		ep := endpointOf(fmt.Sprintf("net%d", i), byte(1+i%250))
		ep.Addresses = endpoint.Addresses{}
		indexes = append(indexes, n.attach(b, c, ep).Host.Index)
	}
	return indexes
}

// BenchmarkRemove deletes links one after the other, and 256 of them 32 at once.
func BenchmarkRemove(b *testing.B) {
	n, c := newNode(b), newContainer(b)
	benchmarkRemove(b, n, c, func(index int) error { return n.step.Remove(b.Context(), index) })
}

func benchmarkRemove(b *testing.B, n *node, c *container, remove func(index int) error) {
	const count, workers = 256, 32
	var one []time.Duration
	var all time.Duration
	for b.Loop() {
		for _, index := range pairs(b, n, c, 16) {
			time.Sleep(pace)
			start := time.Now()
			must(b, remove(index))
			one = append(one, time.Since(start))
		}
		work := make(chan int, count)
		for _, index := range pairs(b, n, c, count) {
			work <- index
		}
		close(work)
		start := time.Now()
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for index := range work {
					if err := remove(index); err != nil {
						b.Error(err)
					}
				}
			})
		}
		group.Wait()
		all += time.Since(start)
	}
	slices.Sort(one)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(one[len(one)/2].Microseconds()), "remove-p50-us")
	b.ReportMetric(float64(one[len(one)*9/10].Microseconds()), "remove-p90-us")
	b.ReportMetric(float64(count*b.N)/all.Seconds(), "remove/s")
}
