package flow

import (
	"runtime"
	"testing"
	"unsafe"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// indexed are endpoints by reference, as the manager has them.
type indexed map[endpoint.Ref]endpoint.Endpoint

func (x indexed) Get(ref endpoint.Ref) (endpoint.Endpoint, error) {
	ep, ok := x[ref]
	if !ok {
		return ep, endpointmanager.ErrNotFound
	}
	return ep, nil
}

func (w *world) index() {
	all := indexed{}
	for _, ep := range w.endpoints.List() {
		all[endpoint.ByID(ep.ID)] = ep
		for _, ref := range ep.Refs() {
			all[ref] = ep
		}
	}
	w.directory.endpoints = all
}

// BenchmarkEvent is one event, from the datapath's to what clients get.
func BenchmarkEvent(b *testing.B) {
	w := newWorld(b, 10_000)
	w.pod(1, "web")
	w.pod(2, "client")
	w.policy("test", webFromClient)
	w.index()
	toWeb := tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort)
	for name, e := range map[string]abi.FlowEvent{
		"allowed": shortcut(seen(2, abi.EventFromPod, toWeb)), "denied": droppedFor(abi.DropPolicyIngress, seen(2, abi.EventFromPod, toWeb.Reverse())),
		"outside": toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, outside, 443))),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.tell(e)
			}
		})
	}
}

// BenchmarkMemory is what a flow takes that is remembered, in the ring and as a distinct one.
func BenchmarkMemory(b *testing.B) {
	w := newWorld(b, recentCount)
	w.pod(2, "client")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 2 * recentCount {
		w.tell(toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, outside, uint16(i)))))
	}
	per := float64(heap()-before) / recentCount
	for b.Loop() {
		runtime.KeepAlive(w)
	}
	b.ReportMetric(per, "bytes/flow")
	b.ReportMetric(float64(unsafe.Sizeof(record{})), "bytes/record")
}
