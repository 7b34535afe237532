package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

// connections is an [ipam.ConnectionCleaner] that takes its time.
type connections struct {
	takes time.Duration
	err   error

	mu      sync.Mutex // guards the fields below
	batches [][]netip.Addr
}

func (c *connections) DeleteConnections(addrs []netip.Addr) error {
	time.Sleep(c.takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, addrs)
	return c.err
}

func (c *connections) sizes() (sizes []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, batch := range c.batches {
		sizes = append(sizes, len(batch))
	}
	return sizes
}

// cleaned runs a test on a node of many addresses whose cleaner runs.
func cleaned(t *testing.T, connections *connections, run func(t *testing.T, a *allocator.Allocator, c *ipam.Cleaner)) {
	synctest.Test(t, func(t *testing.T) {
		a := podCIDRNode(t)
		c := ipam.NewCleaner(a, connections, new(ipam.CleanFailures), slog.New(slog.DiscardHandler))
		c.Task().Start(nil)
		defer func() { _ = c.Task().Stop(context.Background()) }()
		run(t, a, c)
	})
}

func release(t *testing.T, a *allocator.Allocator, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := allocator.NewSource(a, nil).Allocate(t.Context(), allocator.Request{Owner: allocator.Handle(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
		a.Release(allocator.Handle(fmt.Sprint(i)))
	}
}

// TestCleanerBatches: a release waits for nothing, and what is released meanwhile is one batch.
func TestCleanerBatches(t *testing.T) {
	kernel := &connections{takes: time.Second}
	cleaned(t, kernel, func(t *testing.T, a *allocator.Allocator, _ *ipam.Cleaner) {
		began := time.Now()
		release(t, a, 0, 1)
		synctest.Wait()
		release(t, a, 1, 50)
		if took := time.Since(began); took != 0 {
			t.Errorf("releases waited for %s", took)
		}
		time.Sleep(time.Hour)
		if got := fmt.Sprint(kernel.sizes()); got != "[1 49]" {
			t.Errorf("batches of %s addresses, want [1 49]", got)
		}
	})
}

// TestCleanerPauses: while addresses are released all the time, it works a twentieth of it.
func TestCleanerPauses(t *testing.T) {
	kernel := &connections{takes: time.Second}
	cleaned(t, kernel, func(t *testing.T, a *allocator.Allocator, _ *ipam.Cleaner) {
		for i := range 210 {
			release(t, a, i, i+1)
			time.Sleep(time.Second)
		}
		if got := len(kernel.sizes()); got < 10 || got > 11 {
			t.Errorf("%d batches of 1 s in 210 s, want 10", got)
		}
	})
}

func TestCleanerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, kernel := podCIDRNode(t), &connections{err: errors.New("the kernel said no")}
		failures := new(ipam.CleanFailures)
		c := ipam.NewCleaner(a, kernel, failures, slog.New(slog.DiscardHandler))
		want := allocator.Request{Owner: "x", Want: ipv4("10.0.0.2")}
		release(t, a, 0, 1)
		time.Sleep(time.Minute)
		_, err := allocator.NewSource(a, nil).Allocate(t.Context(), want)
		wantFault(t, "before the deletion has failed", err, allocator.ErrQuarantined)
		if err := c.Clean(); !errors.Is(err, kernel.err) {
			t.Errorf("the deletion ends with %v, want %v", err, kernel.err)
		}
		if err := c.Clean(); err != nil { // there is nothing to do
			t.Error(err)
		}
		if _, err := allocator.NewSource(a, nil).Allocate(t.Context(), want); err != nil {
			t.Errorf("after the deletion has failed, and the quarantine: %v", err)
		}
		if failures.Load() != 1 {
			t.Errorf("%d failures, want 1", failures.Load())
		}
	})
}
