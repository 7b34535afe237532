package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/boottime"
)

// TestALeaseThatIsLostLeavesNothing has a node sleep with leases that it has renewed, and wake up when they are over: a
// hundred times in all.
func TestALeaseThatIsLostLeavesNothing(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, nil)
	var ahead atomic.Int64
	s := openAt(t, server.Config(), func() time.Duration { return boottime.Now() + time.Duration(ahead.Load()) })
	for range 4 {
		var leases []store.Lease
		for range 25 {
			l, err := s.Lease(t.Context(), 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
		}
		testEventually(t, func() bool { return store.Streams(s) == len(leases) })
		ahead.Add(int64(time.Hour))
		for _, l := range leases {
			<-l.Lost()
		}
		testEventually(t, func() bool { return store.Streams(s) == 0 })
	}
	client := server.Client(t)
	testEventually(t, func() bool {
		left, err := client.Leases(t.Context())
		return err == nil && len(left.Leases) == 0
	})
}
