package bandwidth

import (
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBucketOf(t *testing.T) {
	for name, c := range map[string]struct {
		rate, burst uint64
		mtu         int
		want        bucket
	}{
		// 1514 bytes with link header of 1500 are 12616667 bytes/s; 20 ms of it; 50 ms may wait behind it.
		"100 Mbit/s":               {1e8, 0, 1500, bucket{12616667, 20e6 / tick, 252333 + 630833}},
		"a burst of containerd":    {1e8, math.MaxUint32, 1500, bucket{12616667, 20e6 / tick, 252333 + 630833}},
		"a burst of CRI-O":         {1e8, math.MaxInt32, 1500, bucket{12616667, 20e6 / tick, 252333 + 630833}},
		"a burst of its own":       {1e8, 8e6, 1500, bucket{12616667, 1238441, 1e6 + 630833}},
		"a burst below one packet": {1e8, 8, 1500, bucket{12616667, 1875, 1514 + 630833}},
		"a slow link":              {1e6, 0, 1500, bucket{126167, 20e6 / tick, 2523 + leastQueue}},
		"the slowest":              {1000, 0, 1500, bucket{127, 187500000, 1514 + leastQueue}},
		"the slowest of great MTU": {1000, 0, 65535, bucket{126, math.MaxUint32, 65549 + leastQueue}},
		"the fastest":              {1e15, 1 << 34, 1500, bucket{126166666666667, 267, math.MaxUint32}},
	} {
		got := bucketOf(c.rate, c.burst, c.mtu)
		near := func(got, want uint32) bool { return math.Abs(float64(got)-float64(want)) <= 0.01*float64(want) }
		if got.rate != c.want.rate || !near(got.burst, c.want.burst) || !near(got.limit, c.want.limit) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if bits := got.bits(c.mtu); math.Abs(float64(bits)-float64(c.rate)) > 0.01*float64(c.rate) {
			t.Errorf("%s: a rate of %d reads back as %d", name, c.rate, bits)
		}
	}
}

func TestExplainKernel(t *testing.T) {
	for _, errno := range []error{unix.ENOENT, unix.EOPNOTSUPP} {
		err := explain("set a token bucket on link 3", errno, "the qdisc tbf (CONFIG_NET_SCH_TBF)")
		if !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "CONFIG_NET_SCH_TBF") {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := explain("set a token bucket on link 3", unix.EPERM, "the qdisc tbf"); errors.Is(err, ErrKernel) || !errors.Is(err, unix.EPERM) {
		t.Errorf("EPERM: %v", err)
	}
}
